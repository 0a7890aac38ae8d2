"""Records of kernels: written whole, and checked when they are read."""

from __future__ import annotations

import json
import logging
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.state.records import KernelRecord, KernelRecords, KernelState
from jupyter_aliquot.provisioner.terminations import Ending, EndingCode

LOG = logging.getLogger("test")
RECORD = KernelRecord(
    kernel_id="k1",
    owner="alice",
    kernelspec="python3.gpu-0.25",
    state=KernelState.PENDING,
    queued_at=12.5,
    boot_id="b",
    label="a.ipynb",
    arguments={"cwd": "/tmp", "env": {"JPY_SESSION_NAME": "a.ipynb"}},
    teams=("speech", "vision"),
    uid=3001,
    last_crash=Ending(EndingCode.CRASH, "The kernel crashed with SIGSEGV", 12.0, signal=11),
)


@pytest.fixture
def records(tmp_path: Path) -> KernelRecords:
    return KernelRecords(tmp_path, LOG)


def test_what_was_written_is_read_the_longest_waiting_first(records: KernelRecords, tmp_path: Path) -> None:
    later = replace(RECORD, kernel_id="a", queued_at=13.0, state=KernelState.RUNNING)
    records.write(later)
    records.write(RECORD)
    assert KernelRecords(tmp_path, LOG).read() == (RECORD, later)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_record_that_was_cut_off_at_any_byte_is_set_aside_and_no_other_with_it(
    records: KernelRecords, tmp_path: Path
) -> None:
    records.write(replace(RECORD, kernel_id="whole"))
    records.write(RECORD)
    text = (tmp_path / "k1.json").read_bytes()
    for size in range(len(text)):
        (tmp_path / "k1.json").write_bytes(text[:size])
        assert [one.kernel_id for one in KernelRecords(tmp_path, LOG).read()] == ["whole"]
        assert not (tmp_path / "k1.json").exists()


def test_a_removed_record_is_gone(records: KernelRecords) -> None:
    records.write(RECORD)
    records.remove("k1")
    records.remove("k1")
    assert records.read() == ()


WHOLE = {
    "version": 1,
    "kernel_id": "bad",
    "owner": "o",
    "kernelspec": "s",
    "state": "running",
    "queued_at": 1.0,
    "boot_id": "b",
    "label": "",
    "arguments": {},
    "ended_for": {},
}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        "\udcff",
        json.dumps({**WHOLE, "version": 2}),
        json.dumps({**WHOLE, "kernel_id": "another"}),
        json.dumps({**WHOLE, "state": "asleep"}),
        json.dumps({**WHOLE, "queued_at": float("nan")}),
        json.dumps({**WHOLE, "arguments": 3}),
        json.dumps({**WHOLE, "ended_for": 3}),
        json.dumps({**WHOLE, "last_crash": {"code": "crash"}}),
        json.dumps({name: value for name, value in WHOLE.items() if name != "owner"}),
    ],
)
def test_an_unreadable_record_is_set_aside_and_the_others_are_read(
    content: str, records: KernelRecords, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records.write(RECORD)
    (tmp_path / "bad.json").write_bytes(content.encode(errors="surrogateescape"))
    assert records.read() == (RECORD,)
    assert (tmp_path / "unreadable" / "bad.json").exists()
    assert "record=bad.json unreadable reason=" in caplog.text
    assert records.read() == (RECORD,)


def test_a_half_written_record_does_not_replace_a_whole_one(records: KernelRecords, tmp_path: Path) -> None:
    records.write(RECORD)
    (tmp_path / ".k1.new").write_text('{"version": 1, "ker')
    assert records.read() == (RECORD,)


def test_a_full_disk_is_reported_once_and_stops_nothing(
    records: KernelRecords, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_space(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "replace", no_space)
        records.write(RECORD)
        records.write(RECORD)
    assert "No space left" in records.problem
    assert caplog.text.count("records=failed") == 1
    records.write(RECORD)
    assert not records.problem
    assert records.read() == (RECORD,)


def test_without_a_folder_nothing_is_remembered() -> None:
    records = KernelRecords(None, LOG)
    records.write(RECORD)
    records.remove("k1")
    assert records.read() == ()
