"""The file of the last terminations, with reasons: bounded, and there again after a restart."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.terminations.failures import Failure
from jupyter_aliquot.gateway.terminations.store import KEPT_SECONDS, EndedKernel, Endings
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request, WorkloadClass
from jupyter_aliquot.provisioner.terminations import Ending, EndingCode

LOG = logging.getLogger("test")
REQUEST = Request(GpuShare(25), Bytes(1 << 30), WorkloadClass.OPPORTUNISTIC)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


def ended(kernel_id: str, at: float = 1000.0, code: EndingCode = EndingCode.CRASH) -> EndedKernel:
    return EndedKernel(kernel_id, "python3", "alice", "a.ipynb", Ending(code, f"why {kernel_id}", at), REQUEST)


async def test_endings_are_there_again_after_a_restart_the_last_first(tmp_path: Path) -> None:
    path, clock = tmp_path / "endings.json", Clock()
    endings = Endings(path, clock, LOG)
    kernels = [ended("k1", 1000.0), ended("k2", 1001.0, EndingCode.USER)]
    kernels[0] = replace(kernels[0], failure=Failure.DRIVER)
    kernels[1] = replace(kernels[1], needed_bytes=5 << 30)
    plain = EndedKernel("k3", "python3", "bob", "", Ending(EndingCode.EXITED, "exit", 1002.0, exit_code=0))
    for kernel in (*kernels, plain):
        endings.record(kernel)
    await endings.flush()
    again = Endings(path, clock, LOG)
    assert again.listed() == endings.listed() == (plain, *reversed(kernels))
    assert again.of("k2") == kernels[1]
    again.record(ended("k4", 1003.0))
    await again.flush()
    again.record(replace(plain, ending=replace(plain.ending, at=1004.0)))
    await again.flush()
    assert Endings(path, clock, LOG).listed() == again.listed() != endings.listed()
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["endings.json"]


async def test_who_tells_of_ends_hears_of_each() -> None:
    endings = Endings(None, Clock(), LOG)
    heard: asyncio.Queue[int] = asyncio.Queue()
    endings.observe(lambda: heard.put_nowait(len(endings.listed())))
    for number, kernel_id in enumerate(("k1", "k2"), start=1):
        endings.record(ended(kernel_id))
        assert await asyncio.wait_for(heard.get(), 30) == number


async def test_an_id_that_ends_again_is_told_by_its_last_end_and_one_that_runs_again_not_at_all(tmp_path: Path) -> None:
    endings = Endings(tmp_path / "endings.json", Clock(), LOG)
    endings.record(ended("k1"))
    endings.record(ended("k2"))
    endings.record(ended("k1", code=EndingCode.OOM))
    assert [(kernel.id, kernel.ending.code) for kernel in endings.listed()] == [
        ("k1", EndingCode.OOM),
        ("k2", EndingCode.CRASH),
    ]
    endings.forget("k1")
    endings.forget("nobody")
    await endings.flush()
    assert [kernel.id for kernel in Endings(tmp_path / "endings.json", Clock(), LOG).listed()] == ["k2"]
    counts = endings.counts()
    assert (counts["crash"], counts["oom"], counts["culled"]) == (2, 1, 0)


async def test_they_are_bounded_in_number_and_in_age(tmp_path: Path) -> None:
    clock = Clock()
    endings = Endings(tmp_path / "endings.json", clock, LOG, kept=3)
    for number in range(5):
        clock.seconds = 1000.0 + number
        endings.record(ended(f"k{number}", clock.seconds))
    assert [kernel.id for kernel in endings.listed()] == ["k4", "k3", "k2"]
    clock.seconds = 1003.5 + KEPT_SECONDS
    assert [kernel.id for kernel in endings.listed()] == ["k4"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"kernels": 7}', "\x00"])
async def test_a_file_that_cannot_be_read_does_not_keep_the_server_from_starting(tmp_path: Path, text: str) -> None:
    path = tmp_path / "endings.json"
    path.write_text(text)
    endings = Endings(path, Clock(), LOG)
    assert endings.listed() == ()
    endings.record(ended("k1"))
    await endings.flush()
    assert len(Endings(path, Clock(), LOG).listed()) == 1


async def test_one_record_of_a_later_version_is_left_out_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "endings.json"
    endings = Endings(path, Clock(), LOG)
    endings.record(ended("k1"))
    endings.record(ended("k2"))
    await endings.flush()
    document = json.loads(path.read_text())
    document["kernels"][0]["ending"]["code"] = "bored"
    path.write_text(json.dumps(document))
    assert [kernel.id for kernel in Endings(path, Clock(), LOG).listed()] == ["k2"]


async def test_a_folder_that_takes_no_file_is_logged_and_reasons_are_still_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endings = Endings(tmp_path / "missing" / "endings.json", Clock(), LOG)
    endings.record(ended("k1"))
    await endings.flush()
    assert endings.of("k1") is not None
    assert "endings=not_saved" in caplog.text
    assert "kernel=k1 owner=alice ended=crash reason=why k1" in caplog.text
