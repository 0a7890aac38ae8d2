"""A grant.json that a kernel's own process wrote: it may cost that kernel, and no other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.processes import Process
from jupyter_aliquot.gpu_hook.agent.ledger.journal import (
    Entry,
    JournalError,
    Reservation,
    Tally,
    read_entry,
    show_devices,
    write_entry,
)
from jupyter_aliquot.gpu_hook.placement.placement import Part

PARTS = (Part("GPU-00000000-0000-0000-0000-0000000000a0", 0, 50, 1 << 29),)
_BESIDE = {**vars(PARTS[0]), "uuid": "GPU-00000000-0000-0000-0000-0000000000b0", "index": 1}
ENTRY = Entry(
    Reservation("k", "ada", 50, None, "production", "a.ipynb", {}, PARTS, 0.0),
    bound=(Process(7, 8),),
    tallies=(Tally(),),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    for entry in (ENTRY, replace(ENTRY, moves_to=Part(**_BESIDE))):
        write_entry(tmp_path / "k", entry)
        assert read_entry(tmp_path / "k") == entry


def test_the_devices_that_a_kernel_had_are_the_last_of_them_and_each_once(tmp_path: Path) -> None:
    for turn in range(2):
        for number in range(40):
            show_devices(tmp_path, [f"GPU-{number:032}"])
        want = [f"GPU-{number:032}" for number in range(39 - 32, 39)]
        assert os.readlink(tmp_path / "devices-before").split(",") == want, turn
    show_devices(tmp_path, want[:1])
    assert os.readlink(tmp_path / "devices") == want[0]
    assert os.readlink(tmp_path / "devices-before").split(",") == [*want[1:], f"GPU-{39:032}"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data["reservation"].update(created=float("inf")), id="endless time"),
        pytest.param(lambda data: data["reservation"].update(hundredths=float("inf")), id="an endless share"),
        pytest.param(lambda data: data["reservation"].update(generation=1 << 70), id="a generation of no word"),
        pytest.param(lambda data: data["reservation"]["parts"][0].update(quota_bytes=-(1 << 40)), id="negative bytes"),
        pytest.param(lambda data: data["reservation"]["parts"][0].update(hundredths=-100), id="a negative share"),
        pytest.param(lambda data: data["bound"][0].update(pid=1 << 40), id="a pid that is none"),
        pytest.param(lambda data: data["tallies"][0].update(busy_seconds=float("nan")), id="no time"),
        pytest.param(lambda data: data["reservation"].update(residency="vmmm"), id="a mode that is none"),
        pytest.param(lambda data: data.update(moves_to={"uuid": "GPU-b"}), id="half of a part that it moves to"),
        pytest.param(lambda data: data.update(moves_to=data["reservation"]["parts"][0]), id="a move to its own device"),
        pytest.param(lambda data: data.update(moves_to={**_BESIDE, "hundredths": 100}), id="a move to a larger part"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    folder = tmp_path / "k"
    folder.mkdir()
    write_entry(folder, ENTRY)
    data = json.loads((folder / "grant.json").read_text())
    change(data)
    (folder / "grant.json").write_text(json.dumps(data))
    with pytest.raises(JournalError):
        read_entry(folder)


def test_one_of_an_agent_that_evicted_none_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    folder.mkdir()
    write_entry(folder, replace(ENTRY, is_evicted=True))
    assert read_entry(folder).is_evicted
    data = json.loads((folder / "grant.json").read_text())
    for field in LATER:
        del data[field]
    (folder / "grant.json").write_text(json.dumps(data))
    assert not read_entry(folder).is_evicted
    assert not read_entry(folder).is_aside
    assert not read_entry(folder).is_ending
    assert read_entry(folder).moves_to is None


LATER = ("is_evicted", "is_aside", "is_ending", "moves_to")  # an earlier agent does not write them


@pytest.mark.parametrize("field", [field for field in vars(ENTRY) if field not in LATER])
def test_one_without_a_field_is_refused(tmp_path: Path, field: str) -> None:
    folder = tmp_path / "k"
    folder.mkdir()
    write_entry(folder, ENTRY)
    data = json.loads((folder / "grant.json").read_text())
    del data[field]
    (folder / "grant.json").write_text(json.dumps(data))
    with pytest.raises(JournalError, match=field):
        read_entry(folder)


def test_one_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "grant.json").write_text("[" * 100_000)
    with pytest.raises(JournalError):
        read_entry(tmp_path / "k")


def test_one_that_was_cut_off_at_any_byte_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    folder.mkdir()
    write_entry(folder, replace(ENTRY, is_swapped=True, saved_bytes={PARTS[0].uuid: 7}, is_evicted=True))
    whole = (folder / "grant.json").read_bytes()
    for size in range(len(whole)):
        (folder / "grant.json").write_bytes(whole[:size])
        with pytest.raises(JournalError):
            read_entry(folder)
