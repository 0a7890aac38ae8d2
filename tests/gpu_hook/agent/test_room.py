"""The room that devices have for kernels, by looks and moves."""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.agent.base.processes import Process
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.scheduling.room import Room

GIB = 1 << 30
CARD = DeviceFacts("GPU-a", 0, "a", 16 * GIB)


def test_one_that_answers_late_makes_no_turn_last_for_hours() -> None:
    room = Room()
    room.look([DeviceReading(CARD, used_bytes=0)], {})
    for is_out in (True, False):
        room.book_move(["GPU-a"], is_out, moved_bytes=64 << 20, seconds=1e6)
    [view] = room.views()
    assert 4 * (16 * GIB / view.out_rate + 16 * GIB / view.in_rate) < 20 * 60
    room.book_move(["GPU-a"], False, moved_bytes=16 * GIB, seconds=1.6)
    [view] = room.views()
    assert view.in_rate > 3e9


def test_memory_that_a_kernel_gave_back_since_the_last_look_counts_for_nobody() -> None:
    room = Room()
    reading = DeviceReading(CARD, used_bytes=5 * GIB)  # 4 of a kernel, 1 of another process
    room.look([reading], {"GPU-a": 4 * GIB})
    assert room.used_bytes(reading, {"GPU-a": 4 * GIB}) == 5 * GIB
    assert room.used_bytes(reading, {"GPU-a": 1 * GIB}) == 2 * GIB  # 3 were swapped out
    # its new memory is in the next look
    assert room.used_bytes(reading, {"GPU-a": 6 * GIB}) == 5 * GIB


def test_memory_of_a_process_that_left_is_taken_until_the_driver_has_it_back() -> None:
    room = Room()
    reading = DeviceReading(CARD, used_bytes=4 * GIB)
    room.look([reading], {"GPU-a": 4 * GIB})
    room.departures.left("k", Process(7, 100), {"GPU-a": 4 * GIB}, now=10.0)
    assert room.used_bytes(reading, {}) == 4 * GIB


def test_room_for_a_context_is_kept_until_the_looks_show_the_context() -> None:
    room = Room()
    empty, entered = DeviceReading(CARD, used_bytes=0), DeviceReading(CARD, used_bytes=1 * GIB)
    for _ in range(3):
        room.look([empty], {})
    room.expect("GPU-a", ("k", 1), 1 * GIB)
    assert room.capacity_bytes("GPU-a") == 15 * GIB
    room.look([empty], {})  # from before the context was made
    assert room.capacity_bytes("GPU-a") == 15 * GIB
    for _ in range(2):
        room.look([entered], {})
    assert room.capacity_bytes("GPU-a") == 15 * GIB
    room.expect("GPU-a", ("k", 1), 1 * GIB)  # of a context that was not made
    for _ in range(3):
        room.look([entered], {})
    assert room.capacity_bytes("GPU-a") == 15 * GIB
