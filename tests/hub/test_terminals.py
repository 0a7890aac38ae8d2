"""Programs of an account get grants of the Hub's gateway: papermill, nbclient, and attackers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_accounts import HubOfAccounts, accounts_problem
from hub_process import until
from made_accounts import GATEWAY, UIDS, MadeAccounts

from jupyter_aliquot.provisioner.relay.wire.proc import start_time_ticks

SECONDS = 120.0
_BECOME = """
import os, sys
uid, *command = sys.argv[1:]
os.setgroups([]); os.setgid(int(uid)); os.setuid(int(uid))
os.chdir(os.environ["HOME"])
os.execvp(command[0], command)
"""
_CELLS = [
    "import os, ctypes; print(os.getuid(), os.getcwd())",
    "cuda, free, total = ctypes.CDLL('libcuda.so.1'), ctypes.c_size_t(), ctypes.c_size_t()\n"
    "context = ctypes.c_void_p()\n"
    "assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0\n"
    "assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0\n"
    "print(total.value >> 20)",
]
_HOLD = """
import asyncio, sys
from jupyter_client.manager import AsyncKernelManager
async def main():
    manager = AsyncKernelManager(kernel_name="python3.gpu-0.25")
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready()
    print(manager.kernel_id, manager.provisioner.pid, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        said = []
        await client.execute_interactive(line, output_hook=lambda m: said.append(m["content"].get("text", "")))
        print("".join(said).strip(), flush=True)
    await manager.shutdown_kernel(now=True)
asyncio.run(main())
"""


class Machine:
    """The Hub, whose gateway serves the accounts of a list of root's."""

    def __init__(self, hub: HubOfAccounts) -> None:
        self.hub = hub
        self.run = hub.home / "run"
        self.tokens = {user: hub.token_of(user) for user in ("ada.lovelace", "bob", "eve")}

    def command(self, user: str, *command: str) -> dict[str, Any]:
        """Return the arguments of subprocess for a command that an account runs at home."""
        home = self.hub.folder_of(user)
        own = {"HOME": str(home), "ALIQUOT_RUNTIME_DIR": str(self.run), "XDG_RUNTIME_DIR": str(home)}
        return {
            "args": self.hub.accounts.command([sys.executable, "-c", _BECOME, str(UIDS[user]), *command]),
            "env": {
                "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
                "JUPYTER_PREFER_ENV_PATH": "1",
                **own,
            },
            "text": True,
        }

    def holder(self, user: str) -> subprocess.Popen[str]:
        command = self.command(user, sys.executable, "-c", _HOLD)
        return subprocess.Popen(**command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def held(self, user: str = "ada.lovelace") -> list[dict[str, Any]]:
        told = self.hub.gateway("aliquot/api/v1/status", token=self.tokens[user])
        return [one for one in told["kernels"] if one["owner"] == user]


class Asker:
    """A raw connection to the gateway's socket, as an account."""

    def __init__(self, machine: Machine, user: str | int) -> None:
        self.uid = user if isinstance(user, int) else UIDS[user]
        self.socket = connect_as(self.uid, machine.run / "gateway.sock")
        self._lines = self.socket.makefile("r")

    def say(self, **message: Any) -> Any:
        self.socket.sendall(json.dumps({"version": 1, **message}).encode() + b"\n")
        return self.hear()

    def hear(self) -> Any:
        line = self._lines.readline()
        return json.loads(line) if line else None

    def ask(self, kernel_id: str, hundredths: int = 25, **more: Any) -> Any:
        """Ask, and return the grant or the refusal."""
        told = self.say(op="ask", kernel_id=kernel_id, hundredths=hundredths, wait_seconds=60, **more)
        while "event" in told:
            told = self.hear()
        return told

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


def connect_as(uid: int, path: Path) -> socket.socket:
    """Connect as an account: the system notes the account of that moment."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS)
    os.seteuid(uid)
    try:
        connection.connect(os.fspath(path))
    finally:
        os.seteuid(0)
    return connection


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    if problem := accounts_problem():
        pytest.skip(problem)
    with HubOfAccounts("--Aliquot.client_accounts=HOME/etc/accounts", "--Aliquot.status_refresh_seconds=1") as hub:
        (hub.home / "etc" / "accounts").write_text("ada\nbob\neve\ntwin\ndoor\nlow\n@docker\n")
        yield Machine(hub)


@pytest.fixture
def asker(machine: Machine) -> Iterator[Any]:
    made: list[Asker] = []

    def make(user: str | int) -> Asker:
        made.append(Asker(machine, user))
        return made[-1]

    yield make
    for one in made:
        one.close()
    until(lambda: not [one for user in machine.tokens for one in machine.held(user)], SECONDS)


def a_notebook(path: Path, uid: int) -> Path:
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": code,
            "id": f"c{number}",
        }
        for number, code in enumerate(_CELLS)
    ]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": cells, "metadata": spec, "nbformat": 4, "nbformat_minor": 5}))
    os.chown(path, uid, uid)
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["jupyter", "execute", "--inplace", "--kernel_name=python3.gpu-0.25", "{path}"],
        ["papermill", "-k", "python3.gpu-0.25", "--no-progress-bar", "{path}", "{path}"],
    ],
)
def test_a_notebook_of_a_terminal_runs_as_its_account_within_a_grant(command: list[str], machine: Machine) -> None:
    project = machine.hub.folder_of("ada", "work")
    if not project.exists():
        MadeAccounts.make_folder(UIDS["ada"], project)
    path = a_notebook(project / "nb.ipynb", UIDS["ada"])
    ran = subprocess.run(
        **machine.command("ada", *(word.format(path=path) for word in command)),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    outputs = ["".join(cell["outputs"][0]["text"]).strip() for cell in json.loads(path.read_text())["cells"][-2:]]
    uid, folder = outputs[0].split()
    assert (int(uid), outputs[1]) == (UIDS["ada"], "4096")
    assert folder in (str(project), str(machine.hub.folder_of("ada")))
    until(lambda: not machine.held(), SECONDS)


def test_a_terminal_and_a_notebook_count_in_one_limit(machine: Machine, asker: Any) -> None:
    token = machine.tokens["ada.lovelace"]
    kernel = machine.hub.gateway("api/kernels", "POST", {"name": "python3.gpu-0.5"}, token=token)
    refused = asker("ada").ask("in-a-terminal")
    machine.hub.gateway(f"api/kernels/{kernel['id']}", "DELETE", token=token)
    assert (refused["ok"], refused["code"]) == (False, "limit")
    assert "may have 0.5" in refused["message"]


def test_no_terminal_asks_for_more_than_the_largest_size(asker: Any) -> None:
    refused = asker("ada").ask("too-large", hundredths=17_00)
    assert (refused["ok"], refused["code"]) == (False, "limit")
    assert "this gateway grants a kernel at most" in refused["message"]


@pytest.mark.parametrize("field", ["pid", "start_time_ticks"])
def test_a_number_that_no_process_has_is_refused_and_its_grant_comes_back(
    field: str, machine: Machine, asker: Any
) -> None:
    ada = asker("ada")
    assert ada.ask("odd")["ok"]
    answer = ada.say(op="bound", **{"pid": 1, "start_time_ticks": 1, field: float("inf")})
    assert (answer["ok"], answer["code"]) == (False, "bad_request")
    assert ada.say(op="release")["ok"]
    until(lambda: not machine.held(), SECONDS)


def test_the_name_is_the_sockets_and_never_the_messages(machine: Machine, asker: Any) -> None:
    bob = asker("bob")
    granted = bob.ask("bobs", owner="ada", account=UIDS["ada"], uid=UIDS["ada"], teams=["staff"])
    assert granted["grant"]["owner"] == "bob"
    (shown,) = until(lambda: machine.held("bob"), SECONDS)
    assert (shown["id"], shown["gpus"]) == ("bobs", 0.25)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("homeless", "does not list this account"),
        ("door", "may not log in"),
        ("low", "number 101"),
        ("dockhand", "can become root"),
        (4321, "no such account"),
    ],
)
def test_an_account_that_may_not_ask_is_told_why(user: str | int, words: str, asker: Any) -> None:
    refused = asker(user).ask("k1")
    assert (refused["ok"], refused["code"]) == (False, "account")
    assert words in refused["message"]


def test_nobody_touches_anothers_grant(machine: Machine, asker: Any) -> None:
    ada = machine.holder("ada")
    assert ada.stdin is not None
    assert ada.stdout is not None
    kernel_id, pid = ada.stdout.readline().split()
    try:
        assert asker("bob").say(op="hold", kernel_id=kernel_id)["ok"] is False
        assert "exists already" in asker("bob").ask(kernel_id)["message"]
        assert asker("bob").say(op="release", kernel_id=kernel_id)["code"] == "bad_request"
        bob = asker("bob")
        assert bob.ask("bobs")["ok"]
        ticks = start_time_ticks(int(pid))
        bound = bob.say(op="bound", pid=int(pid), start_time_ticks=ticks)
        assert f"belongs to user {UIDS['ada']}" in bound["message"]
        control = connect_as(UIDS["bob"], machine.run / "agent.sock")
        lines = control.makefile("rw")
        for op in ("release", "resize", "reserve", "bind", "activity", "watch", "trimmer", "interrupt", "status"):
            fields = {"pid": int(pid), "start_time_ticks": ticks, "owner": "ada.lovelace", "hundredths": 25}
            activity = {"open": 0, "work": 0, "since": None, "input": None}
            lines.write(json.dumps({"id": 1, "op": op, "kernel_id": kernel_id, **fields, **activity}) + "\n")
            lines.flush()
            answer = json.loads(lines.readline())
            assert (op, answer["ok"]) == (op, False)
        lines.close()
        control.close()
        hook = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.seteuid(UIDS["bob"])
        try:
            hook.connect(str(machine.run / "kernels" / kernel_id / "hook.sock"))
        finally:
            os.seteuid(0)
        assert f"is of the account {UIDS['ada']}".encode() in hook.recv(4096)
        hook.close()
        ada.stdin.write("print('lives')\n")
        ada.stdin.flush()
        assert ada.stdout.readline().strip() == "lives"
        until(lambda: [one["id"] for one in machine.held()] == [kernel_id], SECONDS)
    finally:
        ada.communicate(timeout=SECONDS)
    until(lambda: not machine.held(), SECONDS)


def test_a_released_grant_is_not_taken_again_at_the_agent(machine: Machine, asker: Any) -> None:
    bob, other = asker("bob"), asker("bob")
    assert bob.ask("bobs")["ok"]
    assert other.ask("others")["ok"]  # keeps bob's account among those that the agent hears
    control = connect_as(UIDS["bob"], machine.run / "agent.sock")
    lines = control.makefile("rw")

    def reserve() -> Any:
        same = {"owner": "bob", "hundredths": 25, "memory_limit": None, "workload_class": "production"}
        lines.write(json.dumps({"id": 1, "op": "reserve", "kernel_id": "bobs", **same}) + "\n")
        lines.flush()
        return json.loads(lines.readline())

    assert reserve()["ok"]
    assert bob.say(op="release")["released"]
    assert reserve()["code"] == "not_found"
    lines.close()
    control.close()


def test_a_client_that_waits_is_told_its_place(machine: Machine, asker: Any) -> None:
    ada, eve, bob = asker("ada"), asker("eve"), asker("bob")
    assert ada.ask("adas", 50)["ok"]
    assert eve.ask("eves", 50)["ok"]
    told = bob.say(op="ask", kernel_id="bobs", hundredths=25, wait_seconds=600)
    assert (told["event"], told["position"], told["length"]) == ("waiting", 1, 1)
    assert "Needs 0.25 GPU; none is free" in told["reason"]
    eve.close()
    while "event" in told:
        told = bob.hear()
    assert told["grant"]["owner"] == "bob"


def test_an_account_that_asks_without_end_is_refused_and_disturbs_no_other(machine: Machine, asker: Any) -> None:
    answers = (asker("eve").say(op="nonsense") for _ in range(1000))
    refused = next(one for one in answers if one["code"] != "bad_request")
    assert refused["code"] == "limit"
    assert f"the account {UIDS['eve']} asked" in refused["message"]
    assert asker("bob").ask("not-disturbed")["ok"]


def test_a_thousand_open_connections_of_an_account_stop_no_other(machine: Machine, asker: Any) -> None:
    """Those beyond an account's own are closed before a line of them is read."""
    with contextlib.ExitStack() as flood:
        first = [flood.enter_context(connect_as(UIDS["eve"], machine.run / "gateway.sock")) for _ in range(512)]
        assert asker("bob").ask("beside-a-flood")["ok"]
        more = [flood.enter_context(connect_as(UIDS["eve"], machine.run / "gateway.sock")) for _ in range(512)]
        assert asker("bob").ask("beside-a-larger-flood")["ok"]
        told = [json.loads(one.makefile("r").readline()) for one in (first[-1], more[-1])]
        assert {one["code"] for one in told} == {"limit"}


def test_a_line_that_is_too_long_ends_the_connection_alone(machine: Machine, asker: Any) -> None:
    bob = asker("bob")
    with contextlib.suppress(OSError):
        bob.socket.sendall(b"x" * (1 << 20) + b"\n")
        assert bob.hear() is None
    until(lambda: asker("bob").ask(f"next-{time.monotonic_ns()}").get("ok"), SECONDS)


def gateway_pids(run: Path) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
                if " serve " in command and str(run) in command and entry.stat().st_uid == UIDS[GATEWAY]:
                    found.add(int(entry.name))
    return found


def test_a_grant_outlives_the_gateway_in_the_next_ones_ledger(machine: Machine) -> None:
    ada = machine.holder("ada")
    assert ada.stdin is not None
    assert ada.stdout is not None
    kernel_id, _ = ada.stdout.readline().split()
    ada.stdin.write("kept = 'kept'\n")
    ada.stdin.flush()
    assert ada.stdout.readline() == "\n"
    before = gateway_pids(machine.run)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    until(lambda: gateway_pids(machine.run) - before, SECONDS)
    machine.hub.wait_for_gateway()
    (held,) = until(machine.held, SECONDS)
    assert (held["id"], held["gpus"]) == (kernel_id, 0.25)
    refused = Asker(machine, "ada")
    assert refused.ask("more", 50)["code"] == "limit"
    refused.close()
    ada.stdin.write("print(kept)\n")
    ada.stdin.flush()
    assert ada.stdout.readline().strip() == "kept"
    _, said = ada.communicate(timeout=SECONDS)
    assert "Traceback" not in said
    until(lambda: not machine.held(), SECONDS)
