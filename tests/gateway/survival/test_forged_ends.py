"""A forged record of how a kernel ended keeps no other kernel from being recovered."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.base.clock import iso_moment
from jupyter_aliquot.gateway.recovery.discovery import ProcessFinder
from jupyter_aliquot.gateway.recovery.plan import RecoveryAction, plan_recovery
from jupyter_aliquot.gateway.state.records import KernelRecord, KernelState
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.wire.files import UnreadableRecordError, parse_ended
from jupyter_aliquot.provisioner.relay.wire.proc import read_boot_id

# A process that cannot be: numbers of processes are smaller.
ENDED = {
    "pid": 1 << 30,
    "start_time_ticks": 1,
    "exit_code": None,
    "signal": 9,
    "at": 1e9,
    "last_words": "",
    "reason": "",
}
FORGED: list[dict[str, Any]] = [
    *({"signal": one} for one in ([9], {"a": 1}, "9", 1.5, True, 1 << 80)),
    *({"exit_code": one} for one in ([1], "x", {"a": 1}, True)),
    *({"at": one} for one in (float("nan"), float("inf"), 1e308, -1e12, "1", None, True, 10**400)),
    *({"pid": one} for one in ([1], "1")),
]


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_an_end_that_cannot_be_is_no_end(forged: dict[str, Any]) -> None:
    with pytest.raises(UnreadableRecordError):
        parse_ended({**ENDED, **forged})


def test_words_that_are_too_long_lose_their_beginning() -> None:
    assert parse_ended({**ENDED, "last_words": "y" + "x" * (1 << 20)}).last_words == "x" * (1 << 16)


@pytest.mark.parametrize("forged", [{}, {"signal": [9]}, {"at": float("nan")}, {"at": -1e12}, {"at": 1e308}], ids=str)
def test_a_forged_end_keeps_no_kernel_from_being_recovered(forged: dict[str, Any], tmp_path: Path) -> None:
    folder = RuntimeDir(tmp_path).relay("k")
    folder.mkdir(parents=True)
    process = {"pid": ENDED["pid"], "start_time_ticks": 1}
    relay = {"kernel_id": "k", "front": {}, **process, "version": 1, "gateway": "g", "facts": {}, "kernel": process}
    (folder / "relay.json").write_text(json.dumps({**relay, "boot_id": read_boot_id()}))
    (folder / "ended.json").write_text(json.dumps({**ENDED, **forged}))
    records = [
        KernelRecord("k", "bob", "python3", KernelState.RUNNING, 5.0, read_boot_id()),
        KernelRecord("other", "ada", "python3", KernelState.PENDING, 6.0, read_boot_id()),
    ]
    finder = ProcessFinder(RuntimeDir(tmp_path), "g", None, logging.getLogger())
    found = asyncio.run(finder.find(records, has_images=False))
    undecided: list[str] = []
    decisions = plan_recovery(records, found, read_boot_id(), 1e9, lambda one, error: undecided.append(one))
    assert [one.action for one in decisions] == [RecoveryAction.ENDED, RecoveryAction.REQUEUE]
    assert decisions[0].ending is not None
    assert iso_moment(decisions[0].ending.at) == "2001-09-09T01:46:40.000Z"
    assert not undecided
