"""A relay host of root: relays and kernels have their owner's account, and no other account reaches them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from made_accounts import GATEWAY, GROUPS, UIDS, MadeAccounts
from owners_house import ADA, BOB, ENV, SLEEP, OwnersHouse, an_owners_house, kernel_pid, status_of
from relay_house import Gateway, kill_and_wait, lives, until
from second_account import as_another

from jupyter_aliquot.gpu_hook.base.process_account import account_of
from jupyter_aliquot.provisioner.accounts import Account
from jupyter_aliquot.provisioner.errors import LaunchError, RelayProtocolError, RelayRefusedError, RelayUnavailableError
from jupyter_aliquot.provisioner.kernel_accounts import AccountListError, read_account_list
from jupyter_aliquot.provisioner.relay.client import control as client, kernel_relay
from jupyter_aliquot.provisioner.relay.host.login_limits import login_limits
from jupyter_aliquot.provisioner.relay.host.tenants import Tenants
from jupyter_aliquot.provisioner.relay.server.own_record import OwnRecord
from jupyter_aliquot.provisioner.relay.wire.files import (
    UnreadableRecordError,
    is_anothers,
    read_ended_in,
    read_relay_records,
)
from jupyter_aliquot.provisioner.relay.wire.proc import start_time_ticks
from jupyter_aliquot.provisioner.relay.wire.protocol import Record

PARENT = """
import os, subprocess, sys
subprocess.run([*sys.argv[1:], f"--end-with-parent={os.getpid()}"])
"""


@pytest.fixture
def a_house() -> Iterator[OwnersHouse]:
    with an_owners_house() as house:
        yield house


def test_relay_and_kernel_are_the_accounts_in_its_home(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        for pid in (record.pid, kernel_pid(record)):
            assert status_of(pid, "Uid").split() == [str(ADA)] * 4
            assert status_of(pid, "Gid").split() == [str(ADA)] * 4
            assert status_of(pid, "Groups").split() == [str(ADA), str(GROUPS["students"][0])]
            assert int(status_of(pid, "CapPrm"), 16) == 0
        assert os.readlink(f"/proc/{kernel_pid(record)}/cwd") == str(a_house.accounts.homes / "ada")
        assert account_of(a_house.host_pid) == 0

    asyncio.run(scene())


def test_a_kernel_starts_in_the_folder_that_only_its_account_may_enter(a_house: OwnersHouse) -> None:
    folder = MadeAccounts.make_folder(ADA, a_house.accounts.homes / "ada" / "project")

    async def scene() -> None:
        record = await a_house.sleeper(cwd=str(folder))
        assert os.readlink(f"/proc/{kernel_pid(record)}/cwd") == str(folder)
        gone = await a_house.sleeper(cwd=str(a_house.accounts.homes / "bob"))
        assert os.readlink(f"/proc/{kernel_pid(gone)}/cwd") == str(folder.parent), "bob's home is closed: her own"

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-such", "has no such account"),
        *((name, "no such account|cannot be") for name in ("../ada", "ada/", "a\0da", "a\nda", ".", "a" * 5000)),
        ("root", "number 0"),
        ("low", "number 101"),
        ("door", "may not log in: its shell is /usr/sbin/nologin"),
        ("twin", "the account 'eve' has the same number 3003"),
    ],
)
def test_an_account_that_is_no_persons_is_refused(name: str, words: str, a_house: OwnersHouse) -> None:
    async def scene() -> None:
        with pytest.raises(RelayRefusedError, match=words) as caught:
            await a_house.relay(account=name)
        assert caught.value.code == "account"

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("lines", "name", "words"),
    [
        (None, "ada", ""),
        (None, "dockhand", "in the group 'docker', whose members can become root"),
        ("# all of them\n3000-3999", "ada", ""),
        ("3000-3999", "dockhand", "in the group 'docker'"),
        ("3000-3999\ndockhand  # an administrator", "dockhand", ""),
        ("@students", "ada", ""),
        ("@students\nbob", "bob", ""),
        ("@students", "bob", "does not list this account"),
        ("", "ada", "does not list this account"),
        ("root\n0-9999", "root", "number 0"),
        ("low", "low", "number 101"),
        ("bob\n@students,@staff", "bob", "line 2 of the list .* cannot be read"),
        ("ada bob", "ada", "line 1 of the list .* cannot be read: 'ada bob'. Write one account a line"),
    ],
)
def test_root_alone_says_which_accounts_have_kernels(
    lines: str | None, name: str, words: str, a_house: OwnersHouse
) -> None:
    if lines is not None:
        a_house.name_list(lines)

    async def scene() -> None:
        if not words:
            assert account_of((await a_house.relay(account=name)).pid) == UIDS[name]
            return
        with pytest.raises(RelayRefusedError, match=words) as caught:
            await a_house.relay(account=name)
        assert caught.value.code == "account"

    asyncio.run(scene())


@pytest.mark.parametrize("kind", ["of the gateway", "for its group", "a link", "in a folder of the gateway"])
def test_a_list_that_another_account_can_change_allows_no_kernel(kind: str, a_house: OwnersHouse) -> None:
    path = a_house.account_list
    a_house.name_list("ada")
    if kind == "of the gateway":
        os.chown(path, UIDS[GATEWAY], 0)
    elif kind == "for its group":
        path.chmod(0o664)
    elif kind == "a link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    else:
        path.parent.chmod(0o777)

    async def scene() -> None:
        with pytest.raises(RelayRefusedError, match=r"the list of accounts .*\. Make it root's: sudo chown root"):
            await a_house.relay(account="ada")

    asyncio.run(scene())


def test_a_list_that_the_host_was_told_of_and_that_is_not_there_allows_no_kernel(a_house: OwnersHouse) -> None:
    a_house.name_list(None)

    async def scene() -> None:
        with pytest.raises(RelayRefusedError, match=r"there is no list of accounts at .*\. Make it, or name the right"):
            await a_house.relay(account="ada")

    asyncio.run(scene())


@pytest.mark.usefixtures("a_house")
@pytest.mark.parametrize("mode", [0o755, 0o775])
def test_no_list_in_a_folder_that_another_account_can_change_is_not_no_list(mode: int, tmp_path: Path) -> None:
    """Refuse kernels where another account may have removed the list."""
    folder = tmp_path / "aliquot"
    folder.mkdir()
    assert read_account_list(folder / "kernel-accounts") is None
    if mode == 0o755:
        os.chown(folder, UIDS[GATEWAY], UIDS[GATEWAY])
    folder.chmod(mode)
    for path in (folder / "kernel-accounts", folder / "none" / "kernel-accounts"):
        with pytest.raises(AccountListError, match="counts only where root alone can change it"):
            read_account_list(path)


@pytest.mark.usefixtures("a_house")
@pytest.mark.parametrize(
    "line",
    [
        "2999-2000",
        "@ students",
        "ada,bob",
        "ada:bob",
        "@students,@staff",
        "!eve",
        "2000-",
        "2000..2999",
        "*",
        "3001",
        "uid:3001",
        "-ada",
        "@",
        "\ufeffada",
    ],
)
def test_a_line_that_is_no_account_group_or_range_is_told_with_its_number(line: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel-accounts"
    path.write_text(f"bob  # a person\n\n{line}\n", encoding="utf-8")
    with pytest.raises(AccountListError, match="line 3 of the list"):
        read_account_list(path)


@pytest.mark.usefixtures("a_house")
def test_names_of_persons_of_directories_and_of_groups_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "kernel-accounts"
    path.write_text("ada.l\n2019ab\neve@example.org\nEXAMPLE\\bob\n@domain users\n2000-2999\n_x-y\n")
    found = read_account_list(path)
    assert found is not None
    assert found.names == {"ada.l", "2019ab", "eve@example.org", "EXAMPLE\\bob", "_x-y"}
    assert (found.groups, found.ranges) == ({"domain users"}, (range(2000, 3000),))


def test_a_relay_without_an_account_is_the_gateways(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        assert account_of(record.pid) == UIDS[GATEWAY]
        assert record.folder.stat().st_uid == UIDS[GATEWAY]

    asyncio.run(scene())


def test_a_host_that_is_not_roots_for_a_gateway_starts_no_relay_as_another(a_house: OwnersHouse) -> None:
    a_house.settings = client.RelaySettings(exit_when_idle_seconds=None)

    async def scene() -> None:
        with pytest.raises(RelayRefusedError, match="starts no relay as 'ada'"):
            await a_house.relay(account="ada")

    asyncio.run(scene())


def connects(path: Path) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(os.fspath(path))
            connection.sendall(b"\0")
            return "connected" if connection.recv(1) else "turned away"
        except (BrokenPipeError, ConnectionResetError):
            return "turned away"
        except OSError as error:
            return type(error).__name__


def test_the_host_listens_to_root_and_the_gateways_account_alone(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        await a_house.start()
        assert as_another(lambda: connects(a_house.runtime.relay_socket), BOB) == "PermissionError"
        a_house.runtime.relay_socket.chmod(0o666)
        assert as_another(lambda: connects(a_house.runtime.relay_socket), BOB) == "turned away"
        answered = as_another(lambda: asyncio.run(_status(a_house)), UIDS[GATEWAY])
        assert answered == "relays=[]"

    asyncio.run(scene())


async def _status(house: OwnersHouse) -> str:
    answer = await client._ask(house.runtime.relay_socket, {"op": "status"}, "the relay host")
    return f"relays={answer.header['relays']}"


def _said(does: Callable[[], object]) -> str:
    try:
        return repr(does())
    except OSError as error:
        return type(error).__name__


def test_no_other_account_reads_reaches_or_ends_a_kernel(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        folder, pid = record.folder, kernel_pid(record)
        tries: dict[str, Callable[[], object]] = {
            "lists the relays": lambda: os.listdir(folder.parent),
            "lists the folder": lambda: os.listdir(folder),
            "reads the record": lambda: (folder / "relay.json").read_bytes(),
            "reads the kernel's connection file": lambda: record.kernel_connection_file.read_bytes(),
            "ends the kernel": lambda: os.kill(pid, signal.SIGKILL),
            "ends the relay": lambda: os.kill(record.pid, signal.SIGKILL),
            "reads the environment": lambda: Path(f"/proc/{pid}/environ").read_bytes(),
            "reads the relay's memory": lambda: open(f"/proc/{record.pid}/mem", "rb").close(),
        }
        for what, does in tries.items():
            assert as_another(lambda does=does: _said(does), BOB) == "PermissionError", what
        for name in ("link.sock", "f-1", "f-5", "k/s-1"):
            assert as_another(lambda name=name: connects(folder / name), BOB) == "PermissionError", name
        assert lives(record)

    asyncio.run(scene())


def test_the_gateways_account_reads_the_record_and_reaches_the_relay_but_not_the_kernels_folder(
    a_house: OwnersHouse,
) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        uid = UIDS[GATEWAY]
        assert as_another(lambda: client.read_relay_record(record.folder).kernel_id, uid) == record.kernel_id
        assert as_another(lambda: _said(lambda: os.listdir(record.kernel_folder)), uid) == "PermissionError"
        asked = as_another(lambda: repr(asyncio.run(client.set_facts(record, {"a": 1})).facts), uid)
        assert asked == "{'a': 1}"
        assert as_another(lambda: _said(lambda: os.kill(kernel_pid(record), signal.SIGINT)), uid) == "PermissionError"
        as_another(lambda: repr(asyncio.run(client.signal_kernel(record, signal.SIGINT))), uid)
        await until(lambda: not record.has_living_kernel)

    asyncio.run(scene())


def test_a_stopped_relay_leaves_nothing(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        await client.stop_relay(record)
        await until(lambda: not record.folder.exists())
        assert not record.has_living_kernel

    asyncio.run(scene())


def test_a_relay_that_its_owner_stopped_is_removed_by_force(
    a_house: OwnersHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        os.kill(record.pid, signal.SIGSTOP)
        monkeypatch.setattr(client, "_ANSWER_SECONDS", 0.5)
        uid = UIDS[GATEWAY]
        assert "Error" not in as_another(lambda: repr(asyncio.run(client.stop_relay(record))), uid)
        await until(lambda: not lives(record) and not record.folder.exists())
        assert not record.has_living_kernel

    asyncio.run(scene())


@pytest.mark.parametrize("is_host_new", [False, True])
def test_a_killed_relay_is_replaced_by_one_of_the_same_account(is_host_new: bool, a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        if is_host_new:
            a_house.kill_host()
        kill_and_wait(record.pid)
        await a_house.start()
        found = await until(lambda: (new := client.read_relay_record(record.folder)).pid != record.pid and new)
        assert (account_of(found.pid), found.has_living_kernel) == (ADA, True)
        await client.stop_relay(found)
        await until(lambda: not record.has_living_kernel)

    asyncio.run(scene())


def test_a_record_that_its_account_forged_leads_root_nowhere(a_house: OwnersHouse) -> None:
    roots = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    its = {"pid": roots.pid, "start_time_ticks": start_time_ticks(roots.pid)}

    async def scene() -> None:
        record = await a_house.sleeper()
        fields = json.loads((record.folder / "relay.json").read_text())
        os.kill(record.pid, signal.SIGSTOP)
        (record.folder / "relay.json").write_text(json.dumps({**fields, "kernel": its, **its}))
        await client._ask_host(record.folder, {"op": "signal", "number": int(signal.SIGKILL)})
        await client._ask_host(record.folder, {"op": "remove"})
        assert roots.poll() is None
        kill_and_wait(record.pid)
        kill_and_wait(kernel_pid(record))

    try:
        asyncio.run(scene())
    finally:
        roots.kill()
        roots.wait()


def test_a_pipe_in_the_place_of_a_record_holds_the_host_up_no_moment(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        (record.folder / "relay.json").unlink()
        os.mkfifo(record.folder / "relay.json")
        other = await a_house.relay(account="bob")
        assert account_of(other.pid) == BOB
        kill_and_wait(record.pid)
        kill_and_wait(kernel_pid(record))

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("account", "words"),
    [
        ("homeless", "The home .*/homeless of the account 'homeless' cannot be entered: there is no such folder"),
        ("bob", "The home .*/bob of the account 'bob' cannot be entered: Permission denied"),
    ],
)
def test_a_home_that_cannot_be_entered_is_said(account: str, words: str, a_house: OwnersHouse) -> None:
    os.chown(a_house.accounts.homes / "bob", ADA, ADA)

    async def scene() -> None:
        with pytest.raises(RelayRefusedError, match=words):
            await a_house.sleeper(account)

    asyncio.run(scene())


def test_a_program_that_the_account_may_not_run_is_said(a_house: OwnersHouse) -> None:
    program = a_house.accounts.homes / "bob" / "python"
    program.symlink_to("/usr/bin/env")

    async def scene() -> None:
        record = await a_house.relay(account="ada")
        with pytest.raises(RelayRefusedError, match=r"cannot be started as 'ada': Permission denied\. .*namei -l"):
            await client.spawn(record, client.KernelLaunch((str(program), "-c", "1"), ENV))

    asyncio.run(scene())


def test_an_account_that_is_removed_keeps_its_kernel_and_starts_none(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        a_house.accounts.write(*(name for name in UIDS if name != "ada"))
        kill_and_wait(record.pid)
        found = await until(lambda: (new := client.read_relay_record(record.folder)).pid != record.pid and new)
        assert (account_of(found.pid), found.has_living_kernel) == (ADA, True)
        await client.signal_kernel(found, signal.SIGKILL)
        await until(lambda: not found.has_living_kernel)
        with pytest.raises(RelayRefusedError, match="The account 'ada' was removed"):
            await client.spawn(found, client.KernelLaunch(SLEEP, ENV))

    asyncio.run(scene())


def test_the_limits_of_a_login_are_those_of_its_nearest_line() -> None:
    import resource

    lines = [
        "# a comment",
        "*        hard nproc   100",
        "@staff   soft nofile  2000  # of the group",
        "*        -    nofile  1000",
        "ada      hard nofile  unlimited",
        "bob      -    core    0",
        "ada      -    maxlogins 3",
        "ada      soft stack   many",
        "ada      -    memlock 64",
    ]
    assert login_limits(lines, "ada", {"staff"}) == {
        resource.RLIMIT_NPROC: (None, 100),
        resource.RLIMIT_NOFILE: (2000, resource.RLIM_INFINITY),
        resource.RLIMIT_MEMLOCK: (64 << 10, 64 << 10),
    }


@pytest.mark.parametrize("where", ["record", "request"])
def test_a_forged_kernel_id_leads_no_reader_to_another_folder(where: str, a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        path = record.folder / "relay.json"
        fields = json.loads(path.read_text())
        os.kill(record.pid, signal.SIGSTOP)
        target = fields if where == "record" else fields["request"]
        target["kernel_id"] = "../../etc"
        path.write_text(json.dumps(fields))
        with pytest.raises(UnreadableRecordError):
            OwnRecord.found(record.folder) if where == "request" else client.read_relay_record(record.folder)
        kill_and_wait(record.pid)
        assert account_of((await a_house.relay(account="bob")).pid) == BOB
        kill_and_wait(kernel_pid(record))

    asyncio.run(scene())


def test_a_link_to_another_accounts_relay_is_not_followed(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        hers, his = await a_house.sleeper("ada"), await a_house.sleeper("bob")
        os.kill(hers.pid, signal.SIGSTOP)  # it would put its socket back
        hers.link_socket.unlink()
        hers.link_socket.symlink_to(his.link_socket)
        with pytest.raises(RelayUnavailableError, match=f"of account {ADA}, leads to a process of account {BOB}"):
            await client.set_facts(hers, {"forged": True})
        with pytest.raises(RelayUnavailableError, match=f"leads to a process of account {BOB}"):
            await Gateway(hers).connect()
        await client.stop_relay(hers)  # the host ends hers, and leaves his
        await until(lambda: not hers.folder.exists())
        assert lives(his)
        assert client.read_relay_record(his.folder).facts == his.facts
        kill_and_wait(his.pid)
        kill_and_wait(kernel_pid(his))

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("name", "forged"),
    [("relay.json", {"pid": float("inf")}), ("ended.json", {"at": 10**400, "pid": 1, "start_time_ticks": 1})],
    ids=["record", "end"],
)
def test_a_number_without_bound_ends_neither_the_host_nor_a_scan(
    name: str, forged: dict[str, float], a_house: OwnersHouse
) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        host = a_house.host_pid
        fields = json.loads((record.folder / "relay.json").read_text())
        ended = {"exit_code": None, "signal": None}
        kill_and_wait(record.pid)  # the host takes a look, and may put another relay there
        (record.folder / name).write_text(json.dumps({**(fields if name == "relay.json" else ended), **forged}))
        other = await a_house.relay(account="bob")
        assert account_of(other.pid) == BOB
        assert a_house.host_pid == host
        assert other.kernel_id in {found.kernel_id for found in read_relay_records(a_house.runtime)}
        assert read_ended_in(record.folder) is None
        kill_and_wait(kernel_pid(record))

    asyncio.run(scene())


def test_a_record_of_another_kernel_in_an_answer_is_refused(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        fields = json.loads((record.folder / "relay.json").read_text())
        forged = Record({"op": "set", "record": {**fields, "kernel_id": "0" * 8}}, [])
        with pytest.raises(RelayProtocolError, match="answered the record of kernel '00000000'"):
            client._record(record.folder, forged)
        shutil.rmtree(record.folder)
        # For the gateway the kernel stays another account's when its folder is gone.
        assert as_another(lambda: str(is_anothers(record.folder)), UIDS[GATEWAY]) == "True"
        kill_and_wait(record.pid)
        kill_and_wait(kernel_pid(record))

    asyncio.run(scene())


def test_a_host_that_acted_as_a_user_still_ends_with_its_parent(a_house: OwnersHouse) -> None:
    a_house.settings = replace(a_house.settings, command=(sys.executable, "-c", PARENT, *a_house.settings.command))

    async def scene() -> None:
        record = await a_house.sleeper()
        host = a_house.host_pid
        await client._ask_host(record.folder, {"op": "signal", "number": int(signal.SIGCONT)})  # with the user's rights
        kill_and_wait(int(status_of(host, "PPid")))
        await until(lambda: not os.path.exists(f"/proc/{host}"))
        assert lives(record)
        kill_and_wait(record.pid)
        kill_and_wait(kernel_pid(record))

    asyncio.run(scene())


def test_a_kernel_restarts_below_no_relay_of_another_account(
    a_house: OwnersHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = {name: Account(name, uid, uid, "/", "/bin/sh") for name, uid in UIDS.items()}
    monkeypatch.setattr(kernel_relay, "find_account", accounts.__getitem__)

    async def scene() -> None:
        record = await a_house.sleeper("ada")
        relay = kernel_relay.KernelRelay(record, logging.getLogger(__name__))
        relay.require_account("ada")
        with pytest.raises(LaunchError, match="as 'bob', but its relay is of another account"):
            relay.require_account("bob")
        await client.stop_relay(record)

    asyncio.run(scene())


@pytest.mark.parametrize(("mode", "is_opened"), [(0o700, True), (0o1777, False)])
def test_a_folder_for_output_that_others_have_keeps_its_mode(
    mode: int, is_opened: bool, a_bare_user: int, tmp_path: Path
) -> None:
    account = Account("bare", a_bare_user, a_bare_user, "/", "/bin/sh")
    top = tmp_path / "spill"
    top.mkdir()
    top.chmod(mode)
    own = Tenants(account).spill_dir(top, account)
    assert (own, own.stat().st_uid) == (top / str(a_bare_user), a_bare_user)
    assert stat.S_IMODE(top.stat().st_mode) == (0o711 if is_opened else mode)


def test_a_folder_for_output_that_is_closed_to_others_is_said(a_bare_user: int, tmp_path: Path) -> None:
    account = Account("bare", a_bare_user, a_bare_user, "/", "/bin/sh")
    tmp_path.chmod(0o750)
    with pytest.raises(PermissionError, match="closed to other accounts; make its mode 711, or set --spill-dir"):
        Tenants(account).spill_dir(tmp_path, account)
