"""Messages kept for gateways: none is lost or doubled within the bounds; others are counted."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jupyter_aliquot.provisioner.relay.store import spill_room
from jupyter_aliquot.provisioner.relay.store.delivery import Delivery
from jupyter_aliquot.provisioner.relay.store.output_store import Bounds, Store
from jupyter_aliquot.provisioner.relay.store.segments import Spill
from jupyter_aliquot.provisioner.relay.store.spill_room import RoomBounds, SpillRoom

WINDOW = 1000
SESSIONS = ("s", "t", "u")
GUEST = "u"
LINKS = (1, 2, 3)


def message(parent: str, text: bytes) -> list[bytes]:
    return [b"<IDS|MSG>", b"", b"{}", json.dumps({"msg_id": parent}).encode(), b"{}", text]


def make_notice(parent: bytes, msg_id: str, messages: int, lost_bytes: int, why: str) -> list[bytes]:
    return [b"notice", parent, msg_id.encode(), str(messages).encode(), str(lost_bytes).encode(), why.encode()]


def a_spill(folder: Path, segment_bytes: int = 2000, most: int = 0) -> Spill:
    return Spill(SpillRoom(folder / "spill", "ada", "kernel", RoomBounds(most)), segment_bytes)


def a_store(folder: Path, memory: int = 1000, total: int = 10_000, most: int = 1000) -> Store:
    return Store(Bounds(memory, total, most), a_spill(folder), make_notice)


def add(store: Store, number: int, size: int = 500, parent: str = "p", *, is_output: bool = True) -> int:
    entry = store.add("iopub", None, message(parent, b"%d" % number), size, is_output)
    store.settle(entry)
    return entry.seq


def test_what_is_too_much_for_memory_goes_to_disk_and_comes_back(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    for number in range(10):
        add(store, number)
    assert store.memory_bytes <= 1000
    assert [store.load(entry)[-1] for entry in store] == [b"%d" % number for number in range(10)]
    for entry in list(store):
        store.remove(entry.seq)
    assert (len(store), store.total_bytes, store.memory_bytes) == (0, 0, 0)
    assert not list((tmp_path / "spill").glob("*/*/*"))


def test_beyond_the_bound_the_oldest_outputs_go_and_a_notice_stands_for_them(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    add(store, 0, is_output=False)
    for number in range(1, 30):
        add(store, number, parent="first" if number < 8 else "second")
    assert store.total_bytes <= 10_000
    loaded = [list(store.load(entry)) for entry in store]
    assert loaded[0][-1] == b"0", "what is no output stays"
    notices = [frames for frames in loaded if frames[0] == b"notice"]
    assert [json.loads(frames[1])["msg_id"] for frames in notices] == ["first", "second"]
    assert sum(int(frames[3]) for frames in notices) == store.dropped_messages == 10
    assert sum(int(frames[4]) for frames in notices) == store.dropped_bytes == 5000
    assert [frames[-1] for frames in loaded if frames[0] != b"notice"][1:] == [b"%d" % n for n in range(11, 30)]


def test_a_notice_that_was_sent_is_followed_by_another(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    for number in range(21):
        add(store, number)
    (sent,) = [list(store.load(entry)) for entry in store if entry.notice]
    add(store, 21)
    counts = [int(store.load(entry)[3]) for entry in store if entry.notice]
    assert (sent[3], counts) == (b"1", [1, 1])


def test_the_number_of_messages_is_bounded_too(tmp_path: Path) -> None:
    store = a_store(tmp_path, most=50)
    for number in range(200):
        add(store, number, size=1, is_output=number % 2 == 0)
    assert len(store) <= 50


def test_a_disk_that_is_full_is_a_bound_that_was_passed(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("no folder can be made here")
    store = a_store(tmp_path)
    for number in range(5):
        add(store, number)
    assert store.dropped_messages == 3
    assert [store.load(entry)[-1] for entry in store if not entry.notice] == [b"3", b"4"], "the oldest went"
    (notice,) = [store.load(entry) for entry in store if entry.notice]
    assert notice[-1].startswith(b"The disk did not take it")


def test_beyond_the_room_on_disk_the_oldest_outputs_go_and_the_newest_stay(tmp_path: Path) -> None:
    store = Store(Bounds(1000, 1 << 30), a_spill(tmp_path, most=6000), make_notice)
    for number in range(60):
        text = b"%d" % number + bytes(400)
        store.settle(store.add("iopub", None, message("p", text), 500, is_output=True))
    kept = [store.load(entry)[-1] for entry in store if not entry.notice]
    assert kept == [b"%d" % number + bytes(400) for number in range(60 - len(kept), 60)]
    assert 10 <= len(kept) < 20
    assert sum(int(store.load(entry)[3]) for entry in store if entry.notice) == 60 - len(kept)
    assert b"c.Limits.unsent_output_bytes" in next(store.load(entry)[-1] for entry in store if entry.notice)


def fail_to_write(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "posix_fallocate", refuse)


def fill_by_another_program(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_room, "_free_bytes", lambda _: -1_000_000)


def take_what_is_given_back(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_room, "_free_bytes", lambda _: 0)


def hold_the_account(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl.flock(os.open(top / "lock", os.O_RDWR), fcntl.LOCK_EX)


@pytest.mark.parametrize(
    ("trouble", "most_lost"),
    [
        (fail_to_write, 0),
        (fill_by_another_program, 0),
        (take_what_is_given_back, 7),  # the oldest, in memory and of one file: giving that back might have helped
        (hold_the_account, 0),
    ],
)
def test_what_is_safe_on_disk_does_not_go_for_a_reason_that_its_room_does_not_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[..., None], most_lost: int
) -> None:
    store = Store(Bounds(1000, 1 << 30), a_spill(tmp_path), make_notice)
    for number in range(60):
        store.settle(store.add("iopub", None, message("p", b"%d" % number + bytes(400)), 500, is_output=True))
    assert store.dropped_messages == 0
    trouble(tmp_path / "spill", monkeypatch)
    began = time.monotonic()
    for number in range(60, 70):
        store.settle(store.add("iopub", None, message("q", b"%d" % number + bytes(2400)), 2500, is_output=True))
    assert time.monotonic() - began < 1.0, "the relay waited for each message anew"
    assert 10 <= store.dropped_messages <= 10 + most_lost
    kept = {bytes(store.load(entry)[-1]).split(b"\0")[0] for entry in store if not entry.notice}
    assert len(kept & {b"%d" % number for number in range(60)}) >= 60 - most_lost


def test_an_answer_that_the_disk_does_not_take_outlives_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(Bounds(1000, 1 << 30), a_spill(tmp_path), make_notice)
    for number in range(10):
        add(store, number)
    fail_to_write(tmp_path, monkeypatch)
    answer = store.add("shell", "s", message("p", b"the answer" + bytes(3000)), 800, is_output=False)
    store.settle(answer)
    assert bytes(store.load(answer)[-1]).startswith(b"the answer")
    assert store.dropped_messages == 2
    assert store.memory_bytes <= 1000


def test_a_spill_that_was_cut_is_an_error_and_no_other_message(tmp_path: Path) -> None:
    spill = a_spill(tmp_path)
    place = spill.write([b"whole"])
    next((tmp_path / "spill").glob("*/*/*")).write_bytes(b"")
    with pytest.raises(OSError, match="cut short"):
        spill.read(place)


def test_what_cannot_be_read_takes_no_part_of_a_links_window(tmp_path: Path) -> None:
    store = a_store(tmp_path, memory=0)
    delivery = Delivery(store, WINDOW)
    delivery.link_came(1)
    delivery.attach(1, "s")
    for number in range(9):
        delivery.added(store.get(add(store, number)))
    while (entry := delivery.next_for(1)) is not None:
        delivery.lost(1, entry)
    assert (len(store), store.dropped_messages, store.in_flight_bytes) == (0, 9, 0)


def given(delivery: Delivery, link: int) -> list[int]:
    """Return the numbers of the messages that are sent on a link now."""
    found = []
    while (entry := delivery.next_for(link)) is not None:
        found.append(entry.seq)
    return found


def taken(delivery: Delivery, link: int, *, keep: bool = False) -> list[int]:
    """Return the numbers of the messages that are sent on a link now, and acknowledge them."""
    found = given(delivery, link)
    if found:
        assert delivery.acknowledged(link, found[-1], keep=keep)
    return found


def test_what_collaborators_were_shown_is_kept_and_comes_to_their_link_once(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    delivery = Delivery(store, WINDOW)
    for link in (1, 2):
        delivery.link_came(link)
    seqs = [add(store, 0)]
    delivery.added(store.get(seqs[0]))
    delivery.attach(2, "guest", is_collaborator=True)
    seqs.append(add(store, 1))
    delivery.added(store.get(seqs[1]))
    assert taken(delivery, 2, keep=True) == seqs, "what waited for others, too"
    assert len(store) == 2
    delivery.detach(2, "guest")
    delivery.attach(2, "guest", is_collaborator=True)
    assert given(delivery, 2) == []
    delivery.attach(1, "owner")
    assert taken(delivery, 1) == seqs
    assert len(store) == 0
    last = add(store, 2)
    delivery.added(store.get(last))
    assert taken(delivery, 1) == [last], "a link whose collaborators do not read holds nothing up"
    assert (len(store), given(delivery, 2)) == (0, [])


def test_an_owner_who_comes_to_a_link_of_collaborators_gets_all_that_is_kept_in_order(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    delivery = Delivery(store, 2000)
    delivery.link_came(1)
    delivery.attach(1, "guest", is_collaborator=True)
    seqs = []
    for number in range(3):
        seqs.append(add(store, number))
        delivery.added(store.get(seqs[-1]))
    assert given(delivery, 1) == seqs
    assert delivery.acknowledged(1, seqs[1], keep=True)
    reply = store.add("shell", "guest", message("p", b"reply"), 1, False).seq
    delivery.added(store.get(reply))
    assert given(delivery, 1) == [reply]
    delivery.attach(1, "owner")
    assert given(delivery, 1) == [*seqs, reply], "the third one is not behind those that were acknowledged"
    delivery.attach(1, "another tab")
    assert given(delivery, 1) == [], "a second page of the owner begins nothing anew"
    delivery.detach(1, "another tab")
    delivery.detach(1, "owner")
    assert delivery.acknowledged(1, seqs[0])
    assert delivery.acknowledged(1, seqs[2], keep=True)
    assert delivery.acknowledged(1, reply, keep=True)
    assert [entry.seq for entry in store] == seqs[1:], "replies are not kept, outputs are"
    delivery.attach(1, "owner")
    assert taken(delivery, 1) == seqs[1:]
    assert (len(store), store.in_flight_bytes) == (0, 0)


def test_what_is_kept_while_collaborators_take_it_stays_within_the_memory(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    delivery = Delivery(store, WINDOW)
    delivery.link_came(1)
    delivery.attach(1, "guest", is_collaborator=True)
    for number in range(12):
        entry = store.add("iopub", None, message("p", b"%d" % number), 500, True)
        delivery.added(entry)
        given(delivery, 1)
        store.settle(entry)
        assert delivery.acknowledged(1, entry.seq, keep=True)
    assert (len(store), store.in_flight_bytes) == (12, 0)
    assert store.memory_bytes <= 1000


def test_one_message_that_nobody_takes_keeps_nothing_of_those_after_it(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    store.add("shell", "gone", message("p", b"reply"), 1, False)
    for number in range(100):
        store.remove(add(store, number))
    assert len(store) == 1
    assert not store._outputs


class DeliveryMachine(RuleBasedStateMachine):
    """Links come, go, attach, detach and acknowledge; a model knows what each has acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = a_store(Path(self.folder.name), total=1 << 30)
        self.delivery = Delivery(self.store, WINDOW)
        self.links: dict[int, set[str]] = {}
        self.sent: dict[int, list[int]] = {}
        self.waiting: dict[int, str | None] = {}  # by seq: the session, for unacknowledged messages
        self.kept: dict[int, set[int]] = {}  # by link: what it keeps for the owner's session that it has
        self.added = 0

    @rule(link=st.sampled_from(LINKS))
    def come(self, link: int) -> None:
        if link not in self.links:
            self.delivery.link_came(link)
            self.links[link], self.sent[link] = set(), []

    @rule(link=st.sampled_from(LINKS))
    def go(self, link: int) -> None:
        if link in self.links:
            self.delivery.link_went(link)
            del self.links[link], self.sent[link]
            self.kept.pop(link, None)

    @rule(link=st.sampled_from(LINKS), session=st.sampled_from(SESSIONS))
    def attach(self, link: int, session: str) -> None:
        if link in self.links:
            for other in self.links:
                if session in self.links[other] and other != link:
                    self.detach(other, session)
            if session != GUEST and not self.links[link] - {GUEST}:
                self.sent[link] = []
            self.delivery.attach(link, session, is_collaborator=session == GUEST)
            self.links[link].add(session)

    @rule(link=st.sampled_from(LINKS), session=st.sampled_from(SESSIONS))
    def detach(self, link: int, session: str) -> None:
        if link in self.links and session in self.links[link]:
            self.delivery.detach(link, session)
            self.links[link].discard(session)
            left = self.links[link]
            self.sent[link] = [s for s in self.sent[link] if left and self.waiting.get(s) != session]
            if not left - {GUEST}:
                self.kept.pop(link, None)

    @rule(session=st.none() | st.sampled_from(SESSIONS), size=st.integers(0, 1500))
    def add(self, session: str | None, size: int) -> None:
        self.added += 1
        entry = self.store.add("iopub", session, message("p", b"%d" % self.added), size, session is None)
        self.delivery.added(entry)
        self.waiting[entry.seq] = session
        self.store.settle(entry)

    @rule(link=st.sampled_from(LINKS))
    def push(self, link: int) -> None:
        while link in self.links and (entry := self.delivery.next_for(link)) is not None:
            assert self.links[link], "a link without sessions gets nothing"
            assert entry.session is None or entry.session in self.links[link]
            assert entry.seq not in self.sent[link], "sent twice"
            assert bytes(self.store.load(entry)[-1]) == b"%d" % entry.seq
            self.sent[link].append(entry.seq)

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from([link for link, sent in self.sent.items() if sent]))
        at = data.draw(st.integers(0, len(self.sent[link]) - 1))
        keep = data.draw(st.booleans())
        assert self.delivery.acknowledged(link, self.sent[link][at], keep=keep)
        done, self.sent[link] = self.sent[link][: at + 1], self.sent[link][at + 1 :]
        for seq in done:
            if not keep or self.waiting.get(seq) is not None:
                self.waiting.pop(seq, None)
            elif self.links[link] - {GUEST}:
                self.kept.setdefault(link, set()).add(seq)

    @invariant()
    def nothing_is_lost_before_it_was_acknowledged(self) -> None:
        assert set(self.waiting) <= {entry.seq for entry in self.store}

    @invariant()
    def nothing_is_kept_for_nobody(self) -> None:
        listening = [link for link, sessions in self.links.items() if sessions - {GUEST}]
        if not any(self.sent.values()) and len(listening) <= 1:
            # Messages that one link acknowledged are still to come for the other one that listened
            # then.
            to_come = {seq for link in listening for seq in self.delivery._links[link].todo}
            # A link that keeps a message has an owner's session that did not get it yet.
            to_come.update(*(self.kept.get(link, ()) for link in listening))
            assert {entry.seq for entry in self.store} - set(self.waiting) <= to_come

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestDelivery = DeliveryMachine.TestCase
TestDelivery.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_notice_names_few_ranges_and_is_extended_in_place(tmp_path: Path) -> None:
    store = a_store(tmp_path, total=1000)
    told: list[tuple[int, int]] = []
    store.forgotten = told.extend
    for number in range(1, 2001):
        entry = store.add("iopub", None, message("ab"[number % 2], b"x"), 500, True)
        entry.origins = [(number, number)]
        store.settle(entry)
    noticed = [entry.origins for entry in store if entry.notice is not None]
    assert sum(map(len, noticed)) == 2000 - 2, "two requests in turns: no range goes on"
    for entry in list(store):
        store.remove(entry.seq)
    assert sorted(told) == [(number, number) for number in range(1, 2001)]


def test_the_drops_of_one_request_are_one_range(tmp_path: Path) -> None:
    store = a_store(tmp_path, total=1000)
    for number in range(1, 2001):
        entry = store.add("iopub", None, message("a", b"x"), 500, True)
        entry.origins = [(number, number)]
        store.settle(entry)
    (noticed,) = [entry for entry in store if entry.notice is not None]
    assert noticed.origins == [(1, 1998)]
