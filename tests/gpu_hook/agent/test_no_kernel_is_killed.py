"""Copies of swapped-out memory in a memory cgroup that is smaller than what was set aside for them.

The kernel (Linux) would kill a process of the cgroup: no copy may bring it there, also where
another program takes the memory.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20
LIMIT = 256 * MIB
# Lends copies until the arena refuses, as an agent whose administrator set aside more than there is.
COPIES = """
import asyncio, sys
from jupyter_aliquot.gpu_hook.agent.devices.host_memory import machine_memory_bytes
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, ArenaFullError, HostBudget
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.agent.scheduling.overcommit import OvercommitKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.settings import HostBudget as Setting, LeaseSettings

PIECE, SET_ASIDE = 16 << 20, 4 << 30

async def main():
    arena = Arena(HostBudget(SET_ASIDE), PIECE)
    keeper = OvercommitKeeper(Ledger(machine_memory_bytes()), LeaseSettings(host=Setting(amount=SET_ASIDE)), arena)
    print(machine_memory_bytes(), flush=True)
    for number in range(SET_ASIDE // PIECE):
        sys.stdin.readline()
        keeper.look()
        try:
            await arena.lend("k", number, PIECE)
        except ArenaFullError:
            print("full", bool(keeper.problem), flush=True)
            break
        print(arena.use.used_bytes, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""
HOG = "import sys; taken = b'x' * int(sys.argv[1]); print('took', flush=True); sys.stdin.read()"


class Group:
    """A memory cgroup of its own, in either version."""

    def __init__(self) -> None:
        name = f"aliquot-test-{uuid.uuid4().hex[:8]}"
        root = Path("/sys/fs/cgroup")
        self.is_first = (root / "memory/memory.limit_in_bytes").exists()
        self.folder = (root / "memory" if self.is_first else root) / name
        self.folder.mkdir()
        self.processes: list[subprocess.Popen[str]] = []
        (self.folder / ("memory.limit_in_bytes" if self.is_first else "memory.max")).write_text(str(LIMIT))
        swap = self.folder / ("memory.memsw.limit_in_bytes" if self.is_first else "memory.swap.max")
        if swap.exists():
            swap.write_text(str(LIMIT) if self.is_first else "0")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        tasks = self.folder / "cgroup.procs"
        process = subprocess.Popen(
            [sys.executable, "-c", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: tasks.write_text(str(os.getpid())) and None,
        )
        self.processes.append(process)
        return process

    def kills(self) -> int:
        file = self.folder / ("memory.oom_control" if self.is_first else "memory.events")
        return dict((words[0], int(words[1])) for line in file.read_text().splitlines() if (words := line.split()))[
            "oom_kill"
        ]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self.folder.rmdir()


@pytest.fixture
def a_group() -> Iterator[Group]:
    try:
        group = Group()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    with contextlib.closing(group):
        yield group


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return line(process)


def lent_until_full(copies: subprocess.Popen[str]) -> int:
    lent = 0
    while not (said := go_on(copies)).startswith("full"):
        lent = int(said)
    assert said == "full True", "and says so"
    return lent


def test_copies_stop_before_the_limit_of_a_cgroup(a_group: Group) -> None:
    copies = a_group.start(COPIES)
    assert int(line(copies)) == LIMIT, "the agent knows how much it has"
    assert 64 * MIB <= lent_until_full(copies) < LIMIT
    assert (a_group.kills(), copies.poll()) == (0, None)


def test_memory_that_another_program_takes_is_not_lent(a_group: Group) -> None:
    copies = a_group.start(COPIES)
    line(copies)
    before = int(go_on(copies))
    hog = a_group.start(HOG, str(96 * MIB))
    assert line(hog) == "took"
    lent = lent_until_full(copies)
    assert before <= lent < LIMIT - 96 * MIB
    assert (a_group.kills(), copies.poll(), hog.poll()) == (0, None, None)
