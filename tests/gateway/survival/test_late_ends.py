"""A relay records a kernel's end after its last messages: a gateway that starts meanwhile waits for the record."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.recovery import discovery
from jupyter_aliquot.gateway.recovery.plan import FoundProcesses
from jupyter_aliquot.gateway.state.records import KernelRecord, KernelState
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.wire.files import Ended, write_ended
from jupyter_aliquot.provisioner.relay.wire.proc import read_boot_id, start_time_ticks

# A process that cannot be: numbers of processes are smaller.
KERNEL = {"pid": 1 << 30, "start_time_ticks": 1}
RECORD = KernelRecord("k", "bob", "python3", KernelState.RUNNING, 5.0, "")


def a_living_relay(top: Path) -> Path:
    """Return the folder of a relay, which is this process; its kernel has ended."""
    folder = RuntimeDir(top).relay("k")
    folder.mkdir(parents=True)
    relay = {"kernel_id": "k", "front": {}, "version": 1, "gateway": "g", "facts": {}, "kernel": KERNEL}
    relay |= {"pid": os.getpid(), "start_time_ticks": start_time_ticks(os.getpid()), "boot_id": read_boot_id()}
    (folder / "relay.json").write_text(json.dumps(relay))
    return folder


async def found(top: Path) -> Mapping[str, FoundProcesses]:
    finder = discovery.ProcessFinder(RuntimeDir(top), "g", None, logging.getLogger())
    return await finder.find([RECORD], has_images=False)


def test_an_end_that_is_about_to_be_recorded_is_waited_for(tmp_path: Path) -> None:
    folder = a_living_relay(tmp_path)

    async def play() -> FoundProcesses:
        looking = asyncio.create_task(found(tmp_path))
        done, _ = await asyncio.wait({looking}, timeout=0.2)
        assert not done, "it did not wait"
        write_ended(folder, Ended(KERNEL["pid"], KERNEL["start_time_ticks"], None, 11, 1e9))
        return (await looking)["k"]

    end = asyncio.run(play()).end
    assert end is not None
    assert end.signal == 11


def test_a_relay_that_cannot_record_an_end_holds_up_no_start_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_ENDED_SECONDS", 0.1)
    a_living_relay(tmp_path)
    end = asyncio.run(found(tmp_path))["k"].end
    assert end is not None
    assert (end.signal, end.exit_code) == (None, None)
