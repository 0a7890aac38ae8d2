"""Memory exhaustion differs from a kill by hand, on control groups of both versions."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_aliquot.provisioner.engine.oom_watch import MemoryFacts, MemoryWatch, judge_memory
from jupyter_aliquot.provisioner.resources import Bytes
from jupyter_aliquot.provisioner.terminations import ProcessEnd

GIB = 1 << 30


@pytest.mark.parametrize(
    ("signal", "says_engine", "killed_at", "want"),
    [
        (9, True, None, True),  # only the engine's report
        (9, False, 99.0, True),  # Podman 4: only our watch
        (9, True, 99.0, True),
        (9, False, None, False),  # killed by hand
        (9, True, 10.0, False),  # a child ran out long ago; then killed by hand
        (11, True, 99.0, False),  # a fault is a fault
        (None, True, 99.0, False),  # the kernel caught the loss of its child, and exited
    ],
)
def test_exit_137_alone_is_no_proof(signal: int | None, says_engine: bool, killed_at: float | None, want: bool) -> None:
    end = ProcessEnd(signal=signal, at=100.0, is_out_of_memory=says_engine, memory_limit=Bytes(4 * GIB))
    judged = judge_memory(end, MemoryFacts(killed_at, Bytes(4 * GIB - 4096), Bytes(4 * GIB)))
    assert judged.is_out_of_memory is want
    assert judged.memory_used == (4 * GIB - 4096 if want else None)


def test_without_a_watch_the_engines_word_stands_and_the_limit_was_reached() -> None:
    end = ProcessEnd(signal=9, is_out_of_memory=True, memory_limit=Bytes(GIB))
    judged = judge_memory(end, None)
    assert (judged.is_out_of_memory, judged.memory_used, judged.memory_limit) == (True, GIB, GIB)


def eventually(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def a_version_2_group(root: Path, has_leaf_limit: bool = True) -> Path:
    """Make files as Linux shows them in version 2, and a process in them."""
    group = root / "cgroup" / "machine" / "container"
    group.mkdir(parents=True)
    (root / "proc" / "7").mkdir(parents=True)
    path = "/machine/container" if has_leaf_limit else "/machine/container/init"
    (root / "proc" / "7" / "cgroup").write_text(f"0::{path}\n")
    (group / "memory.max").write_text(f"{GIB}\n")
    (group / "memory.peak").write_text(f"{GIB - 8192}\n")
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
    if not has_leaf_limit:
        (group / "init").mkdir()
        (group / "init" / "memory.max").write_text("max\n")
    return group


@pytest.mark.parametrize("has_leaf_limit", [True, False])
def test_version_2_tells_a_kill_from_mere_pressure(tmp_path: Path, has_leaf_limit: bool) -> None:
    group = a_version_2_group(tmp_path, has_leaf_limit)
    watch = MemoryWatch(tmp_path / "cgroup", tmp_path / "proc", clock=lambda: 1234.0)
    try:
        assert watch.start("c", 7)
        (group / "memory.peak").write_text(f"{GIB}\n")
        (group / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\n")
        eventually(lambda: watch.facts("c") == MemoryFacts(None, Bytes(GIB), Bytes(GIB)))
        (group / "memory.events").write_text("low 0\nhigh 0\nmax 13\noom 1\noom_kill 1\n")
        eventually(lambda: watch.facts("c") == MemoryFacts(1234.0, Bytes(GIB), Bytes(GIB)))
        watch.stop("c")
        assert watch.facts("c") is None
    finally:
        watch.close()


def test_what_cannot_be_watched_is_no_error(tmp_path: Path) -> None:
    watch = MemoryWatch(tmp_path, tmp_path)
    assert not watch.start("c", 7)
    watch.close()
