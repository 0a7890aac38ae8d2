"""The part of a record that a later gateway believes where the kernel's owner wrote it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jupyter_client.manager import KernelManager

from jupyter_aliquot.gateway.recovery.belief import SCHEMES, DoubtError, believed
from jupyter_aliquot.gateway.recovery.discovery import ProcessFinder
from jupyter_aliquot.gateway.recovery.plan import RecoveryAction, plan_recovery
from jupyter_aliquot.gateway.sharing.shares import UNSHARED
from jupyter_aliquot.gateway.state.persistence import KernelMemory, read_saved_kernel
from jupyter_aliquot.gateway.state.record_queue import RecordQueue
from jupyter_aliquot.gateway.state.records import KernelRecord, KernelRecords, KernelState
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.errors import AccountError
from jupyter_aliquot.provisioner.relay.wire.files import ProcessId, RelayRecord, read_relay_record
from jupyter_aliquot.provisioner.relay.wire.ports import FRONT_PORTS
from jupyter_aliquot.provisioner.relay.wire.proc import read_boot_id, start_time_ticks

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another account")

ADA = 3001
GRANT = {"owner": "ada", "hundredths": 25}
RECORD = KernelRecord(
    "k", "ada", "python3.gpu-0.25", KernelState.RUNNING, 5.0, "b", "a.ipynb", {"cwd": "/a"},
    teams=("vision",), grant=GRANT, spec={"argv": ["python"]},
)  # fmt: skip
FORGED: dict[str, Any] = {
    "owner": "bob",
    "teams": ["staff"],
    "kernelspec": "python3.gpu-4",
    "spec": {"argv": ["evil"]},
    "label": "b.ipynb",
    "queued_at": 0.0,
    "arguments": {"cwd": "/b"},
    "grant": {**GRANT, "hundredths": 400},
    "runtime": "container",
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., RelayRecord]:
    """Write the record of ada's relay, as ada could."""

    def make(**forged: Any) -> RelayRecord:
        folder = RuntimeDir(tmp_path).relay("k")
        folder.mkdir(parents=True, exist_ok=True)
        fields = {"kernel_id": "k", "front": {}, "pid": 1, "start_time_ticks": 1, "version": 1, "gateway": "g"}
        fields |= {"facts": FORGED, "boot_id": read_boot_id(), **forged}
        (folder / "relay.json").write_text(json.dumps(fields))
        os.chown(folder, ADA, ADA)
        return read_relay_record(folder)

    return make


def is_adas(user: str, folder: Path) -> bool:
    return user == "ada" and folder.stat().st_uid == ADA


def test_owner_teams_grant_and_kernelspec_are_the_gateways_own(write: Callable[..., RelayRecord]) -> None:
    relay = believed(write(), RECORD, is_adas)
    saved = read_saved_kernel(RECORD, relay.facts)
    assert (saved.owner, saved.teams, saved.grant, saved.spec) == ("ada", {"vision"}, GRANT, RECORD.spec)
    assert (saved.kernelspec, saved.label, saved.queued_at) == (RECORD.kernelspec, RECORD.label, RECORD.queued_at)
    assert relay.facts["runtime"] == "process"
    assert "400" not in json.dumps(dict(relay.facts))


def test_a_record_leads_to_no_socket_but_its_relays(write: Callable[..., RelayRecord]) -> None:
    forged = {"transport": "tcp", "ip": "10.0.0.1", "shell_port": 22, "key": "its own", "curve_publickey": 3}
    relay = believed(write(front=forged), RECORD, is_adas)
    assert relay.front == {"key": "its own", **FRONT_PORTS, "transport": "ipc", "ip": str(relay.folder / "f")}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, "no record of it"),
        (replace(RECORD, uid=3002), "not of the account of its owner 'ada'"),
        (replace(RECORD, owner="bob"), "not of the account of its owner 'bob'"),
    ],
    ids=["none", "another account in the record", "another owner's folder"],
)
def test_a_relay_that_this_gateway_does_not_know_is_not_believed(
    record: KernelRecord | None, words: str, write: Callable[..., RelayRecord]
) -> None:
    with pytest.raises(DoubtError, match=words):
        believed(write(), record, is_adas)


@pytest.mark.parametrize(
    ("front", "words"),
    [
        ({"signature_scheme": "x"}, "names the signature scheme 'x'"),
        ({"signature_scheme": "hmac-shake_128"}, "names the signature scheme"),
        ({"signature_scheme": ""}, "names the signature scheme"),
        ({"key": "\ud800"}, "its key has other characters"),
        ({"key": "k", "curve_secretkey": "\udcff"}, "its curve_secretkey has other characters"),
    ],
)
def test_a_record_that_no_gateway_could_use_is_not_believed(
    front: dict[str, str], words: str, write: Callable[..., RelayRecord]
) -> None:
    with pytest.raises(DoubtError, match=words):
        believed(write(front=front), RECORD, is_adas)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_a_gateway_takes_over_a_kernel_of_each_believed_scheme(scheme: str, write: Callable[..., RelayRecord]) -> None:
    relay = believed(write(front={"key": "k", "signature_scheme": scheme}), RECORD, is_adas)
    manager = KernelManager()
    manager.load_connection_info(cast(Any, dict(relay.front)))
    assert (manager.session.signature_scheme, manager.session.key) == (scheme, b"k")
    assert manager.session.sign([b"a message"])


def test_a_record_has_the_account_of_the_relay_once_there_is_one(
    write: Callable[..., RelayRecord], tmp_path: Path
) -> None:
    records = KernelRecords(tmp_path / "records", logging.getLogger())
    (tmp_path / "records").mkdir()
    kernel: Any = SimpleNamespace(
        kernel_id="k", owner="ada", teams=(), kernel_name="s", queued_at=1.0, label="", start_arguments={},
        pending_resize=None, shares=UNSHARED, last_crash=None, grant=None, stanza=dict,
    )  # fmt: skip
    accounts = []

    async def scene() -> None:
        queue = RecordQueue(records, logging.getLogger())
        memory = KernelMemory(queue, RuntimeDir(tmp_path), "g", "b", 60.0)
        for make in (lambda: None, write):
            make()
            memory.note(kernel, KernelState.RUNNING)
            await memory.noted("k")
            accounts.extend(record.uid for record in records.read())
        await memory.close()

    asyncio.run(scene())
    assert accounts == [None, ADA]


def fail(kernel_id: str, error: Exception) -> None:
    raise error


def away(user: str, folder: Path) -> bool:
    raise AccountError(f"the list of accounts does not answer for {user}")


@pytest.mark.parametrize(
    ("record", "has_folder", "want"),
    [
        (replace(RECORD, uid=ADA), away, RecoveryAction.RECOVER),
        (RECORD, is_adas, RecoveryAction.RECOVER),
        (RECORD, away, RecoveryAction.LEAVE),
        (replace(RECORD, spec=None), is_adas, RecoveryAction.LEAVE),
        (replace(RECORD, uid=ADA + 1), away, RecoveryAction.ENDED),
    ],
    ids=["account in the record", "found", "away", "of an earlier version", "another account"],
)
def test_a_kernel_runs_on_where_its_account_cannot_be_looked_up(
    record: KernelRecord, has_folder: Callable[[str, Path], bool], want: RecoveryAction,
    write: Callable[..., RelayRecord], tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    with subprocess.Popen(["sleep", "1000"], user=ADA) as kernel:
        ticks = start_time_ticks(kernel.pid)
        process = {"pid": kernel.pid, "start_time_ticks": ticks}
        write(**process, kernel=process)
        finder = ProcessFinder(RuntimeDir(tmp_path), "g", None, logging.getLogger(), has_folder)
        found = asyncio.run(finder.find([record], has_images=False))
        (decision,) = plan_recovery([replace(record, boot_id=read_boot_id())], found, read_boot_id(), 1.0, fail)
        kernel.kill()
    assert decision.action is want
    assert ("relay=left_running" in caplog.text) == (want is RecoveryAction.LEAVE)


def test_a_relay_that_ended_is_cleared_away_though_its_account_cannot_be_looked_up(
    write: Callable[..., RelayRecord],
) -> None:
    with pytest.raises(DoubtError, match="cannot be looked up"):
        believed(replace(write(), is_alive=False), RECORD, away)


def test_a_process_of_another_account_is_no_kernel(write: Callable[..., RelayRecord]) -> None:
    relay = replace(write(), kernel=ProcessId(os.getpid(), 1))
    with pytest.raises(DoubtError, match=f"names the process {os.getpid()} of another account"):
        believed(relay, RECORD, is_adas)


@pytest.mark.parametrize(
    ("records", "gateway", "want"),
    [
        ([RECORD], "g", {"k": ("vision",)}),
        ([RECORD], "another", {"k": ("vision",)}),
        ([], "g", {}),
        ([], "another", {}),
    ],
)
def test_the_gateways_records_decide_which_relays_of_other_accounts_are_its_own(
    records: list[KernelRecord], gateway: str, want: dict[str, tuple[str, ...]],
    write: Callable[..., RelayRecord], tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    write(gateway=gateway)
    finder = ProcessFinder(RuntimeDir(tmp_path), "g", None, logging.getLogger(), is_adas)
    found = asyncio.run(finder.find(records, has_images=False))
    assert {kernel_id: tuple(one.relay.facts["teams"]) for kernel_id, one in found.items() if one.relay} == want
    assert ("relay=not_believed" in caplog.text) == (gateway == "g" and not records)
