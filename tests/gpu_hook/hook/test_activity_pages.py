"""The work that a process shows on its activity page, and its reading of its peers' activity pages.

The files are activity_page.c and peers.c.
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
from jupyter_aliquot.gpu_hook.protocol.codec import ActivityPage, ActivityPageKind

US = 1000
MERGED = 20 * US
EINVAL, EPERM, EPROTO = 22, 1, 71
U64 = ctypes.c_uint64


class Hook:
    """activity_page.c and peers.c in this process."""

    def __init__(self, parts: Any, module: Any) -> None:
        self._calls, self._module = parts.library, module

    def install(self, activity: Any) -> int:
        return int(self._calls.activity_page_install(activity.descriptor))

    def set_active(self, is_active: bool, device: int = 0) -> None:
        self._calls.activity_page_set_active(device, ctypes.c_bool(is_active))

    def add(self, start: int, end: int, device: int = 0) -> None:
        self._calls.activity_page_add_interval(device, U64(start), U64(end))

    def meet(self, activity: Any, number: int = 0, device: int = 0, page_device: int = 0) -> int:
        notice = self._module.Notice((ctypes.c_uint32 * 4)(), ActivityPageKind.PEER, number, device, page_device)
        return int(self._calls.peers_add(ctypes.byref(notice), activity.reader))

    def lose(self, number: int) -> None:
        self._calls.peers_remove(number)

    def forget(self) -> None:
        self._calls.peers_forget()

    def look(self, device: int = 0) -> tuple[int, int, int]:
        """Return has_peers, are_active and idle_since."""
        state = self._module.PaceState(occupied=5, are_active=9, idle_since=9, has_peers=9)
        self._calls.peers_read(device, ctypes.byref(state))
        assert state.occupied == 5
        return state.has_peers, state.are_active, state.idle_since


@pytest.fixture
def hook(make_parts: Callable[..., Any], hook_parts: Any) -> Hook:
    return Hook(make_parts("activity_page.c", "peers.c"), hook_parts)


@pytest.fixture
def activity(activity_files: Any) -> Iterator[Any]:
    with activity_files.ActivityFile() as made:
        yield made


def test_work_is_shown_from_its_begin_to_its_end(hook: Hook, activity: Any) -> None:
    assert hook.install(activity) == 0
    assert activity.is_mapped
    assert (activity.is_active(3), activity.word(ActivityPage.SINCE, 3)) == (0, 0)
    before = time.monotonic_ns()
    hook.set_active(True, 3)
    began = activity.word(ActivityPage.SINCE, 3)
    assert activity.is_active(3) == 1
    hook.set_active(True, 3)
    assert activity.word(ActivityPage.SINCE, 3) == began  # the pause goes on
    hook.set_active(False, 3)
    assert activity.is_active(3) == 0
    assert before <= began <= activity.word(ActivityPage.SINCE, 3) <= time.monotonic_ns()
    assert [activity.is_active(device) for device in range(protocol.MAX_DEVICES)] == [0] * protocol.MAX_DEVICES


def test_short_pauses_make_one_interval_of_two(hook: Hook, activity: Any) -> None:
    assert hook.install(activity) == 0
    hook.add(1000 * US, 1100 * US)
    hook.add(1119 * US, 1200 * US)
    hook.add(1150 * US, 1180 * US)
    hook.add(1220 * US, 1300 * US)
    assert activity.intervals() == [(1000 * US, 1200 * US), (1220 * US, 1300 * US)]
    assert activity.word(ActivityPage.LOST) == 0


def test_what_comes_too_late_to_be_shown_is_lost(hook: Hook, activity: Any) -> None:
    assert hook.install(activity) == 0
    hook.add(1000 * US, 1100 * US)
    hook.add(400 * US, 500 * US)
    hook.add(900 * US, 1150 * US)
    assert activity.intervals() == [(1000 * US, 1150 * US)]
    assert activity.word(ActivityPage.LOST) == 100 * US + 100 * US


def test_empty_intervals_and_devices_of_nobody_change_nothing(hook: Hook, activity: Any) -> None:
    assert hook.install(activity) == 0
    before = activity.map[ActivityPage.DEVICES :]
    hook.add(500, 500)
    hook.add(600, 500)
    for device in (-1, protocol.MAX_DEVICES, 1 << 20):
        hook.add(1, 2, device)
        hook.set_active(True, device)
    assert activity.map[ActivityPage.DEVICES :] == before


def test_nothing_of_the_work_is_missing(hook: Hook, activity: Any) -> None:
    """The ring's shown and lost work together are all measured work, whatever comes."""
    assert hook.install(activity) == 0
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
    assert activity.word(ActivityPage.INTERVAL_COUNT, 15) == len(want) > 3 * protocol.ACTIVITY_INTERVALS
    assert activity.intervals(15) == [tuple(one) for one in want[-protocol.ACTIVITY_INTERVALS :]]
    assert activity.word(ActivityPage.LOST, 15) == lost > 0


def test_a_new_activity_page_goes_on_where_the_old_one_was(hook: Hook, activity: Any, activity_files: Any) -> None:
    hook.add(100 * US, 200 * US)  # before the agent was there
    hook.set_active(True, 1)
    assert hook.install(activity) == 0
    assert (activity.intervals(), activity.is_active(1)) == ([(100 * US, 200 * US)], 1)
    with activity_files.ActivityFile() as next_one:
        assert hook.install(next_one) == 0
        hook.add(210 * US, 300 * US)
        hook.add(50 * US, 60 * US, 1)
        hook.add(10 * US, 10 * US + 4, 1)  # too late to be shown
        assert (next_one.intervals(), next_one.is_active(1)) == ([(100 * US, 300 * US)], 1)
        assert (next_one.word(ActivityPage.LOST, 1), activity.word(ActivityPage.LOST, 1)) == (4, 0)
        assert activity.intervals() == [(100 * US, 200 * US)]


def test_the_agent_may_forbid_writing_as_soon_as_the_activity_page_is_mapped(hook: Hook, activity: Any) -> None:
    assert hook.install(activity) == 0
    future_write = 0x10
    fcntl.fcntl(activity.descriptor, fcntl.F_ADD_SEALS, future_write)
    hook.set_active(True)
    assert activity.is_active() == 1
    assert hook.install(activity) == EPERM  # and no second time
    hook.set_active(False)
    assert activity.is_active() == 0


@pytest.mark.parametrize("flaw", ["short", "unsealed"])
def test_an_activity_page_that_could_shrink_is_refused(hook: Hook, activity_files: Any, flaw: str) -> None:
    options = {"short": {"size": protocol.ACTIVITY_PAGE_BYTES - 1}, "unsealed": {"seals": fcntl.F_SEAL_GROW}}[flaw]
    with activity_files.ActivityFile(**options) as refused:
        assert hook.install(refused) == EINVAL
        assert hook.meet(refused) == EINVAL
    hook.set_active(True)  # on the private pages
    assert hook.look() == (0, 0, 0)


def test_a_descriptor_that_is_no_memory_is_refused(hook: Hook, activity: Any) -> None:
    with open("/dev/null", "rb+") as other:
        os.dup2(other.fileno(), activity.descriptor)
        os.dup2(other.fileno(), activity.reader)
    assert hook.install(activity) != 0
    assert hook.meet(activity) != 0


def test_without_peers_nobody_is_active(hook: Hook) -> None:
    assert hook.look() == (0, 0, 0)
    hook.lose(3)
    hook.forget()
    assert hook.look(-1) == hook.look(16) == (0, 0, 0)


def test_the_pause_begins_with_the_last_of_the_peers(hook: Hook, activity_files: Any) -> None:
    with activity_files.ActivityFile(has_magic=True) as one, activity_files.ActivityFile(has_magic=True) as other:
        one.show(0, 1000, device=2)
        other.show(0, 5000)
        assert hook.meet(one, number=0, device=1, page_device=2) == 0
        assert hook.look(1) == (1, 0, 1000)
        assert hook.meet(other, number=31, device=1) == 0
        assert hook.look(1) == (1, 0, 5000)
        one.show(1, 7000, device=2)
        assert hook.look(1) == (1, 1, 5000)
        one.show(0, 9000, device=2)
        assert hook.look(1) == (1, 0, 9000)
        assert hook.look(0) == hook.look(2) == (0, 0, 0)


def test_a_peer_that_is_gone_counts_no_longer_and_its_number_is_free(hook: Hook, activity_files: Any) -> None:
    with activity_files.ActivityFile(has_magic=True) as one, activity_files.ActivityFile(has_magic=True) as other:
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


def test_a_refused_activity_page_leaves_its_number_empty(hook: Hook, activity_files: Any) -> None:
    with activity_files.ActivityFile(has_magic=True) as one, activity_files.ActivityFile(seals=0) as flawed:
        one.show(1, 1000)
        assert hook.meet(one, number=2) == 0
        assert hook.meet(flawed, number=2) == EINVAL
        assert hook.look() == (0, 0, 0)
        for number, device, page_device in ((32, 0, 0), (0, 16, 0), (0, 0, 16)):
            assert hook.meet(one, number, device, page_device) == EINVAL


@pytest.mark.parametrize(("magic", "version", "want"), [(0, 0, 0), (0x31425141, 9, EPROTO), (0x66666666, 4, EPROTO)])
def test_only_activity_pages_are_read(hook: Hook, activity: Any, magic: int, version: int, want: int) -> None:
    """An activity page without a magic belongs to a process that has not received it yet, and is idle."""
    activity.map[:8] = magic.to_bytes(4, "little") + version.to_bytes(4, "little")
    assert hook.meet(activity) == want
    assert hook.look() == (int(want == 0), 0, 0)


def test_garbage_on_an_activity_page_stops_work_and_nothing_else(hook: Hook, activity_files: Any) -> None:
    chance = random.Random(8)
    with activity_files.ActivityFile(has_magic=True) as one:
        assert hook.meet(one, page_device=15) == 0
        for _ in range(200):
            one.map[64:] = chance.randbytes(protocol.ACTIVITY_PAGE_BYTES - 64)
            has, active, since = hook.look()
            assert (has, active) == (1, int(one.is_active(15) != 0))
            assert since == (0 if active else one.word(ActivityPage.SINCE, 15))
        one.show(7, 2**64 - 1, device=15)
        assert hook.look() == (1, 1, 0)
        hook.lose(0)  # it ends with what the agent says
        assert hook.look() == (0, 0, 0)
