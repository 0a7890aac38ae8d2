"""The work that a process shows on its board, and its reading of its neighbours' boards.

The files are board.c and neighbours.c.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Board, BoardKind

US = 1000
MERGED = 20 * US
EINVAL, EPERM, EPROTO = 22, 1, 71
U64 = ctypes.c_uint64


class Hook:
    """board.c and neighbours.c in this process."""

    def __init__(self, parts: Any, module: Any) -> None:
        self._calls, self._module = parts.library, module
        self._calls.activity_page_prepare.restype = ctypes.c_bool
        assert self._calls.activity_page_prepare()

    def install(self, board: Any) -> int:
        return int(self._calls.activity_page_install(board.descriptor))

    def set_active(self, is_active: bool, device: int = 0) -> None:
        self._calls.activity_page_set_active(device, ctypes.c_bool(is_active))

    def add(self, start: int, end: int, device: int = 0) -> None:
        self._calls.activity_page_add_interval(device, U64(start), U64(end))

    def add_lost(self, nanoseconds: int, device: int = 0) -> None:
        self._calls.activity_page_add_lost(device, U64(nanoseconds))

    def meet(self, board: Any, number: int = 0, device: int = 0, board_device: int = 0) -> int:
        notice = self._module.Notice((ctypes.c_uint32 * 4)(), BoardKind.NEIGHBOUR, number, device, board_device)
        return int(self._calls.peers_add(ctypes.byref(notice), board.reader))

    def lose(self, number: int) -> None:
        self._calls.peers_remove(number)

    def forget(self) -> None:
        self._calls.peers_forget()

    def look(self, device: int = 0) -> tuple[int, int, int]:
        """Return has_peers, are_active and idle_since."""
        state = self._module.PaceState(occupied=5, are_active=9, idle_since=9, has_peers=9)
        self._calls.peers_look(device, ctypes.byref(state))
        assert state.occupied == 5
        return state.has_peers, state.are_active, state.idle_since


@pytest.fixture
def hook(make_parts: Callable[..., Any], hook_parts: Any) -> Hook:
    return Hook(make_parts("activity_page.c", "peers.c"), hook_parts)


@pytest.fixture
def board(board_files: Any) -> Iterator[Any]:
    with board_files.BoardFile() as made:
        yield made


def test_work_is_shown_from_its_begin_to_its_end(hook: Hook, board: Any) -> None:
    assert hook.install(board) == 0
    assert board.is_mapped
    assert (board.is_active(3), board.word(Board.SINCE, 3)) == (0, 0)
    before = time.monotonic_ns()
    hook.set_active(True, 3)
    began = board.word(Board.SINCE, 3)
    assert board.is_active(3) == 1
    hook.set_active(True, 3)
    assert board.word(Board.SINCE, 3) == began  # the pause goes on
    hook.set_active(False, 3)
    assert board.is_active(3) == 0
    assert before <= began <= board.word(Board.SINCE, 3) <= time.monotonic_ns()
    assert [board.is_active(device) for device in range(protocol.MAX_DEVICES)] == [0] * protocol.MAX_DEVICES


def test_short_pauses_make_one_interval_of_two(hook: Hook, board: Any) -> None:
    assert hook.install(board) == 0
    hook.add(1000 * US, 1100 * US)
    hook.add(1119 * US, 1200 * US)
    hook.add(1150 * US, 1180 * US)
    hook.add(1220 * US, 1300 * US)
    assert board.intervals() == [(1000 * US, 1200 * US), (1220 * US, 1300 * US)]
    assert board.word(Board.LOST) == 0


def test_what_comes_too_late_to_be_shown_is_lost(hook: Hook, board: Any) -> None:
    assert hook.install(board) == 0
    hook.add(1000 * US, 1100 * US)
    hook.add(400 * US, 500 * US)
    hook.add(900 * US, 1150 * US)
    hook.add_lost(7)
    assert board.intervals() == [(1000 * US, 1150 * US)]
    assert board.word(Board.LOST) == 100 * US + 100 * US + 7


def test_empty_intervals_and_devices_of_nobody_change_nothing(hook: Hook, board: Any) -> None:
    assert hook.install(board) == 0
    before = board.map[Board.DEVICES :]
    hook.add(500, 500)
    hook.add(600, 500)
    for device in (-1, protocol.MAX_DEVICES, 1 << 20):
        hook.add(1, 2, device)
        hook.set_active(True, device)
        hook.add_lost(5, device)
    assert board.map[Board.DEVICES :] == before


def test_nothing_of_the_work_is_missing(hook: Hook, board: Any) -> None:
    """The ring's shown and lost work together are all measured work, whatever comes."""
    assert hook.install(board) == 0
    chance = random.Random(3)
    want: list[list[int]] = []
    lost, end = 0, 1_000_000 * US
    for _ in range(3000):
        end += chance.randrange(1, 400 * US)
        start = end - chance.randrange(1, 450 * US)
        hook.add(start, end, 15)
        if want and start < want[-1][1] + MERGED:
            lost += max(0, want[-1][0] - start)
            want[-1][1] = end
        else:
            want.append([start, end])
    assert board.word(Board.INTERVAL_COUNT, 15) == len(want) > 3 * protocol.BOARD_INTERVALS
    assert board.intervals(15) == [tuple(one) for one in want[-protocol.BOARD_INTERVALS :]]
    assert board.word(Board.LOST, 15) == lost > 0


def test_a_new_board_goes_on_where_the_old_one_was(hook: Hook, board: Any, board_files: Any) -> None:
    hook.add(100 * US, 200 * US)  # before the agent was there
    hook.set_active(True, 1)
    assert hook.install(board) == 0
    assert (board.intervals(), board.is_active(1)) == ([(100 * US, 200 * US)], 1)
    with board_files.BoardFile() as next_one:
        assert hook.install(next_one) == 0
        hook.add(210 * US, 300 * US)
        hook.add_lost(4, 1)
        assert (next_one.intervals(), next_one.is_active(1)) == ([(100 * US, 300 * US)], 1)
        assert (next_one.word(Board.LOST, 1), board.word(Board.LOST, 1)) == (4, 0)
        assert board.intervals() == [(100 * US, 200 * US)]


def test_the_agent_may_forbid_writing_as_soon_as_the_board_is_mapped(hook: Hook, board: Any) -> None:
    assert hook.install(board) == 0
    future_write = 0x10
    fcntl.fcntl(board.descriptor, fcntl.F_ADD_SEALS, future_write)
    hook.set_active(True)
    assert board.is_active() == 1
    assert hook.install(board) == EPERM  # and no second time
    hook.set_active(False)
    assert board.is_active() == 0


@pytest.mark.parametrize("flaw", ["short", "unsealed"])
def test_a_board_that_could_shrink_is_refused(hook: Hook, board_files: Any, flaw: str) -> None:
    options = {"short": {"size": protocol.BOARD_BYTES - 1}, "unsealed": {"seals": fcntl.F_SEAL_GROW}}[flaw]
    with board_files.BoardFile(**options) as refused:
        assert hook.install(refused) == EINVAL
        assert hook.meet(refused) == EINVAL
    hook.set_active(True)  # on the private pages
    assert hook.look() == (0, 0, 0)


def test_a_descriptor_that_is_no_memory_is_refused(hook: Hook, board: Any) -> None:
    with open("/dev/null", "rb+") as other:
        os.dup2(other.fileno(), board.descriptor)
        os.dup2(other.fileno(), board.reader)
    assert hook.install(board) != 0
    assert hook.meet(board) != 0


def test_without_neighbours_nobody_is_active(hook: Hook) -> None:
    assert hook.look() == (0, 0, 0)
    hook.lose(3)
    hook.forget()
    assert hook.look(-1) == hook.look(16) == (0, 0, 0)


def test_the_pause_begins_with_the_last_of_the_neighbours(hook: Hook, board_files: Any) -> None:
    with board_files.BoardFile(has_magic=True) as one, board_files.BoardFile(has_magic=True) as other:
        one.show(0, 1000, device=2)
        other.show(0, 5000)
        assert hook.meet(one, number=0, device=1, board_device=2) == 0
        assert hook.look(1) == (1, 0, 1000)
        assert hook.meet(other, number=31, device=1) == 0
        assert hook.look(1) == (1, 0, 5000)
        one.show(1, 7000, device=2)
        assert hook.look(1) == (1, 1, 5000)
        one.show(0, 9000, device=2)
        assert hook.look(1) == (1, 0, 9000)
        assert hook.look(0) == hook.look(2) == (0, 0, 0)


def test_a_neighbour_that_is_gone_counts_no_longer_and_its_number_is_free(hook: Hook, board_files: Any) -> None:
    with board_files.BoardFile(has_magic=True) as one, board_files.BoardFile(has_magic=True) as other:
        one.show(1, 1000)
        other.show(0, 30)
        assert hook.meet(one, number=7) == hook.meet(other, number=8) == 0
        hook.lose(7)
        assert hook.look() == (1, 0, 30)
        assert hook.meet(one, number=7, device=5) == 0
        assert hook.look(5) == (1, 1, 0)
        assert hook.meet(one, number=8, device=5) == 0  # in place of the other
        assert hook.look() == (0, 0, 0)
        hook.forget()
        assert hook.look(5) == (0, 0, 0)


def test_a_refused_board_leaves_its_number_empty(hook: Hook, board_files: Any) -> None:
    with board_files.BoardFile(has_magic=True) as one, board_files.BoardFile(seals=0) as flawed:
        one.show(1, 1000)
        assert hook.meet(one, number=2) == 0
        assert hook.meet(flawed, number=2) == EINVAL
        assert hook.look() == (0, 0, 0)
        for number, device, board_device in ((32, 0, 0), (0, 16, 0), (0, 0, 16)):
            assert hook.meet(one, number, device, board_device) == EINVAL


@pytest.mark.parametrize(("magic", "version", "want"), [(0, 0, 0), (0x31425141, 9, EPROTO), (0x66666666, 4, EPROTO)])
def test_only_boards_are_read(hook: Hook, board: Any, magic: int, version: int, want: int) -> None:
    """A board without a magic belongs to a process that has not received it yet, and is idle."""
    board.map[:8] = magic.to_bytes(4, "little") + version.to_bytes(4, "little")
    assert hook.meet(board) == want
    assert hook.look() == (int(want == 0), 0, 0)


def test_garbage_on_a_board_stops_work_and_nothing_else(hook: Hook, board_files: Any) -> None:
    chance = random.Random(8)
    with board_files.BoardFile(has_magic=True) as one:
        assert hook.meet(one, board_device=15) == 0
        for _ in range(200):
            one.map[64:] = chance.randbytes(protocol.BOARD_BYTES - 64)
            has, active, since = hook.look()
            assert (has, active) == (1, int(one.is_active(15) != 0))
            assert since == (0 if active else one.word(Board.SINCE, 15))
        one.show(7, 2**64 - 1, device=15)
        assert hook.look() == (1, 1, 0)
        hook.lose(0)  # it ends with what the agent says
        assert hook.look() == (0, 0, 0)
