"""ActivityPages: which process gets which activity page, in which order, and who may write it."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator

import pytest

from jupyter_aliquot.gpu_hook.agent.compute.measurement.subscriptions import (
    Subscription,
    Subscriptions,
    first_subscriptions,
)
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import ActivitySide
from jupyter_aliquot.gpu_hook.protocol.codec import (
    ACTIVITY_PAGE_BYTES,
    ACTIVITY_PAGE_MAGIC,
    MAX_PEERS,
    ActivityPageKind,
    ActivityPageNotice,
)


@pytest.fixture
def an_activity_page() -> Iterator[ActivitySide]:
    activity = ActivitySide()
    yield activity
    activity.close()


def test_others_can_only_read_an_activity_page(an_activity_page: ActivitySide) -> None:
    with pytest.raises(PermissionError):
        mmap.mmap(an_activity_page.reader, ACTIVITY_PAGE_BYTES)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(an_activity_page.descriptor, 0)
    assert os.fstat(an_activity_page.reader).st_mode & 0o077 == 0


def test_once_mapped_an_activity_page_is_sealed_and_its_owner_writes_on(an_activity_page: ActivitySide) -> None:
    owners = mmap.mmap(an_activity_page.descriptor, ACTIVITY_PAGE_BYTES)
    assert not an_activity_page.seal()
    owners[0:4] = ACTIVITY_PAGE_MAGIC.to_bytes(4, "little")
    assert an_activity_page.seal()
    if fcntl.fcntl(an_activity_page.reader, fcntl.F_GET_SEALS) & 0x10:  # Linux 5.1 on
        with pytest.raises(PermissionError):
            mmap.mmap(an_activity_page.descriptor, ACTIVITY_PAGE_BYTES)
    owners[64:68] = (7).to_bytes(4, "little")
    assert an_activity_page.read(0).is_active == 7


class AReader:
    """A process that receives notices; ``room`` is the space in its socket."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.notices: list[tuple[ActivityPageKind, int]] = []

    def notify(self, notice: ActivityPageNotice, descriptor: int | None) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.notices.append((notice.kind, notice.number))
        return True


def places(*owners: int) -> dict[Subscription, int]:
    return {Subscription(owner, 0, 0): 100 + owner for owner in owners}


def test_a_number_is_used_again_only_after_its_peer_was_told_gone() -> None:
    book, reader = Subscriptions(), AReader()
    assert book.bring_up_to_date(places(1, 2), reader.notify)
    assert book.bring_up_to_date(places(2, 3), reader.notify)
    new, gone = ActivityPageKind.PEER, ActivityPageKind.GONE
    assert reader.notices == [(new, 0), (new, 1), (gone, 0), (new, 0)]


def test_a_full_socket_loses_no_notice() -> None:
    book, reader = Subscriptions(), AReader(room=2)
    assert not book.bring_up_to_date(places(1, 2, 3), reader.notify)
    reader.room = 1
    # its socket has room for the goodbye alone
    assert not book.bring_up_to_date(places(2, 3, 4), reader.notify)
    reader.room = 10
    assert book.bring_up_to_date(places(2, 3, 4), reader.notify)
    assert {place.owner for place in book.told} == {2, 3, 4}
    assert len(set(book.told.values())) == 3


def test_what_one_process_reads_is_bounded_and_stable() -> None:
    many = places(*range(1, 60))
    chosen = first_subscriptions(many, MAX_PEERS - 1)
    assert [place.owner for place in chosen] == list(range(1, MAX_PEERS))
