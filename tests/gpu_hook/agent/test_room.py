"""What devices have for kernels, as looks and moves tell: one that lies or dawdles spoils it for nobody else."""

from __future__ import annotations

from aliquot.gpu_hook.agent.devices import DeviceReading
from aliquot.gpu_hook.agent.ledger import DeviceFacts
from aliquot.gpu_hook.agent.room import Room

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
