"""Messages of pages to a pending kernel, without a server: websockets note what they receive."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.channels.connection import MOST_ANSWER_BYTES, KernelWebsocketConnection
from jupyter_aliquot.gateway.channels.own_messages import OwnMessages
from jupyter_aliquot.gateway.channels.pending_kernels import Kernels, PendingKernels
from jupyter_aliquot.gateway.channels.pending_messages import MOST_MESSAGES, PendingMessages
from jupyter_aliquot.gateway.sharing.shares import Share, Shares
from jupyter_aliquot.provisioner.relay.wire.error_replies import Answer

LOG = logging.getLogger(__name__)
KERNEL = "a-kernel"
MOST_BYTES = 64 << 20


def a_message(msg_id: str, msg_type: str = "execute_request", code: str = "1") -> list[bytes]:
    header = {"msg_id": msg_id, "msg_type": msg_type, "session": "s", "username": "u", "version": "5.3"}
    content = {"code": code, "silent": False}
    return [b"<IDS|MSG>", b"", json.dumps(header).encode(), b"{}", b"{}", json.dumps(content).encode()]


class Page:
    """A page's websocket.

    ``connect`` runs in `begin`.
    """

    def __init__(self, session: str, user: str = "alice", connect: Callable[[], Awaitable[bool]] | None = None) -> None:
        self.session_name = session
        self.protocol = ""
        self.encoded = 0
        self.user = User(user, "user", frozenset())
        self.is_collaborator = user != "alice"
        self._connect = connect
        self.told: list[tuple[str, str, Any]] = []
        self.refused: list[tuple[str, str]] = []
        self.sent: list[str] = []
        self.ended = ""
        self.has_gone_on = False

    def encode(self, answer: Answer, parent: dict[str, Any]) -> str:
        self.encoded += 1
        return json.dumps([parent["msg_id"], answer.msg_type, answer.content])

    def tell_encoded(self, message: str | bytes) -> None:
        self.told.append(json.loads(message))

    def refuse(self, channel: str, frames: Sequence[Any], words: str) -> None:
        self.refused.append((msg_id(frames), words))

    async def begin(self) -> bool:
        return True if self._connect is None else await self._connect()

    def go_on(self) -> None:
        self.has_gone_on = True

    def send_now(self, channel: str, frames: Sequence[Any]) -> None:
        self.sent.append(msg_id(frames))

    def end(self, reason: str) -> None:
        self.ended = reason

    def errors(self) -> dict[str, str]:
        """Return the error that each cell ended with."""
        replies = {of: content for of, kind, content in self.told if kind == "execute_reply"}
        return {of: str(content.get("ename", content["status"])) for of, content in replies.items()}


def msg_id(frames: Sequence[Any]) -> str:
    return str(json.loads(frames[2])["msg_id"])


class Manager:
    """A manager with one kernel of Alice's, without a relay; it comes when `start` is set."""

    links = None

    def __init__(self) -> None:
        self.kernels = {KERNEL: SimpleNamespace(session=SimpleNamespace(sign=lambda _: b"signed"))}
        self.shares = Shares((Share("user", "bob", Access.WRITE),))
        self.start = asyncio.Event()
        self.pending = PendingKernels(cast(Kernels, self), LOG)

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self.kernels

    def get_kernel(self, kernel_id: str) -> Any:
        return self.kernels[kernel_id]

    def owner_of(self, kernel_id: str) -> str | None:
        return "alice" if kernel_id in self.kernels else None

    def shares_of(self, kernel_id: str) -> Shares:
        return self.shares

    async def until_there(self, kernel_id: str) -> None:
        await self.start.wait()

    def open(self, *pages: Page) -> PendingMessages:
        messages = self.pending.open(KERNEL, MOST_BYTES)
        for page in pages:
            messages.join(page)
        return messages

    async def begin(self) -> None:
        """Let the kernel come, and wait until the kept messages are sent or given up."""
        task = self.pending._tasks[KERNEL]
        self.start.set()
        await asyncio.wait_for(asyncio.shield(task), 30)


async def test_what_a_collaborator_may_no_longer_send_is_dropped_at_the_change_and_when_it_is_sent() -> None:
    manager, alice, bob = Manager(), Page("a"), Page("b", "bob")
    messages = manager.open(alice, bob)
    messages.keep(bob, "shell", a_message("first"))
    messages.keep(alice, "shell", a_message("hers"))
    manager.shares = Shares()
    manager.pending.look_again(KERNEL)
    assert bob.errors() == {"first": "CellNotRun"}
    assert len(messages._messages) == 1
    messages.keep(bob, "shell", a_message("second"))
    await manager.begin()
    assert (alice.sent, bob.sent) == (["hers"], [])


async def test_what_a_collaborator_queued_goes_with_the_token_and_what_the_owner_queued_stays() -> None:
    manager, alice, bob = Manager(), Page("a"), Page("b", "bob")
    messages = manager.open(alice, bob)
    messages.keep(bob, "shell", a_message("his"))
    messages.keep(alice, "shell", a_message("hers"))
    manager.pending.drop_collaborator(KERNEL, "bob")
    assert bob.errors() == {"his": "CellNotRun"}
    await manager.begin()
    assert (alice.sent, bob.sent) == (["hers"], [])


async def test_what_is_kept_is_counted_and_one_stop_of_it_leaves_the_loop_to_others() -> None:
    manager, alice, bob = Manager(), Page("a"), Page("b", "bob")
    messages = manager.open(alice, bob, *(Page(f"c{number}") for number in range(8)))
    for number in range(MOST_MESSAGES // 2 + 1):
        messages.keep(bob, "shell", a_message(f"his-{number}"))
    for number in range(MOST_MESSAGES // 2 + 1):
        messages.keep(alice, "shell", a_message(f"hers-{number}"))
    assert [of for of, _ in bob.refused] == [f"his-{MOST_MESSAGES // 2}"], "half of the room is the owner's"
    [(of, why)] = alice.refused
    assert (of, f"{MOST_MESSAGES} may" in why) == (f"hers-{MOST_MESSAGES // 2}", True)
    assert "hers-0" in messages.ids("a")
    assert "his-0" not in messages.ids("a")
    messages.stop("stopped")
    assert "hers-0" not in messages.ids("a")
    turns = 0
    while len(alice.errors()) < MOST_MESSAGES // 2:
        turns += 1
        await asyncio.sleep(0)
    assert turns > 50, "in slices"
    assert sorted(set(alice.errors().values())) == ["KeyboardInterrupt", "aborted"]
    encoded = sum(cast(Page, port).encoded for port in messages._subscribers)
    assert encoded < 4 * MOST_MESSAGES + 2, "each answer once, not once for each websocket"
    await manager.pending.stop()


async def test_cells_of_a_kernel_that_goes_while_its_websockets_connect_are_answered() -> None:
    manager = Manager()

    async def goes() -> bool:
        del manager.kernels[KERNEL]
        manager.pending.end(KERNEL)
        return True

    alice = Page("a", connect=goes)
    messages = manager.open(alice)
    for name in ("first", "second"):
        messages.keep(alice, "shell", a_message(name))
    await manager.begin()
    assert alice.errors() == {"first": "CellNotRun", "second": "CellNotRun"}
    assert alice.ended == "the kernel was ended"


async def test_a_message_that_cannot_be_handed_on_is_answered_and_those_behind_it_go_on() -> None:
    manager, alice = Manager(), Page("a")
    sign = iter((b"signed", None, b"signed"))

    def signs(_: Any) -> bytes:
        signed = next(sign)
        if signed is None:
            raise ValueError("no signature")
        return signed

    manager.kernels[KERNEL].session.sign = signs
    messages = manager.open(alice)
    for name in ("first", "second", "third"):
        messages.keep(alice, "shell", a_message(name))
    await manager.begin()
    assert (alice.sent, alice.errors()) == (["first", "third"], {"second": "CellNotRun"})


@pytest.mark.parametrize("how", ["says so", "raises"])
async def test_what_a_websocket_brought_that_cannot_be_connected_goes_over_another(how: str) -> None:
    async def fails() -> bool:
        if how == "raises":
            raise OSError("no descriptor is left")
        return False

    manager, broken, sound = Manager(), Page("a", connect=fails), Page("b")
    messages = manager.open(broken, sound)
    messages.keep(broken, "shell", a_message("first"))
    await manager.begin()
    assert (broken.sent, broken.has_gone_on) == ([], False)
    assert (sound.sent, sound.has_gone_on) == (["first"], True)


async def test_a_websocket_that_hangs_keeps_no_others_cells_from_the_kernel_and_has_its_own_sent_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PendingMessages.connect, "__defaults__", (0.05,))
    manager, is_connected, has_sent = Manager(), asyncio.Event(), asyncio.Event()

    async def hangs() -> bool:
        return await is_connected.wait()

    class Notes(Page):
        def send_now(self, channel: str, frames: Sequence[Any]) -> None:
            super().send_now(channel, frames)
            has_sent.set()

    alice, slow = Notes("a"), Notes("b", connect=hangs)
    messages = manager.open(alice, slow)
    messages.keep(alice, "shell", a_message("hers"))
    manager.start.set()
    await asyncio.wait_for(has_sent.wait(), 30)
    assert (alice.sent, alice.has_gone_on, slow.has_gone_on) == (["hers"], True, False)
    messages.keep(slow, "shell", a_message("late"))
    late = Page("c")
    messages.join(late)
    is_connected.set()
    await manager.begin()
    assert (slow.has_gone_on, late.has_gone_on) == (True, True)
    assert slow.sent + late.sent == ["late"]


async def test_websockets_that_come_without_end_keep_no_cells_from_the_kernel() -> None:
    manager = Manager()

    async def brings_another() -> bool:
        messages.join(Page("guest", "bob", brings_another))
        await asyncio.sleep(0)
        return True

    alice = Page("a")
    messages = manager.open(alice, Page("guest", "bob", brings_another))
    messages.keep(alice, "shell", a_message("hers"))
    manager.start.set()
    for _ in range(200):
        if alice.sent:
            break
        await asyncio.sleep(0)
    assert (alice.sent, alice.has_gone_on) == (["hers"], True)
    await manager.pending.stop()


async def test_two_websockets_of_one_session_both_go_on() -> None:
    manager, older, newer = Manager(), Page("a"), Page("a")
    messages = manager.open(older, newer)
    messages.keep(older, "shell", a_message("first"))
    await manager.begin()
    assert (older.has_gone_on, newer.has_gone_on) == (True, True)
    assert older.sent + newer.sent == ["first"]


async def test_a_page_that_does_not_read_what_it_is_answered_is_closed() -> None:
    ended: list[str] = []
    unread = asyncio.get_running_loop().create_future()
    page: Any = SimpleNamespace(kernel_id=KERNEL, log=LOG, end=ended.append, _own=OwnMessages(None))
    page.write_message = lambda message, binary: unread
    for _ in range(MOST_ANSWER_BYTES >> 20):
        KernelWebsocketConnection.tell_encoded(page, b"#" * (1 << 20))
    assert ended == []
    KernelWebsocketConnection.tell_encoded(page, b"#")
    assert ended == ["does not read what it is answered: open it again"]
    unread.set_result(None)
    await asyncio.sleep(0)
    assert page._own.unread_bytes == 0


async def test_messages_beyond_the_bound_are_refused_with_words_and_one_of_each_channel_is_kept() -> None:
    manager, alice, bob = Manager(), Page("a"), Page("b", "bob")
    messages = manager.open(alice, bob)
    half = "#" * (MOST_BYTES // 2)
    messages.keep(bob, "shell", a_message("his", code=half))
    messages.keep(bob, "control", a_message("on another channel", "debug_request"))
    messages.keep(bob, "shell", a_message("too much for a collaborator"))
    messages.keep(alice, "shell", a_message("hers"))
    messages.keep(alice, "shell", a_message("too much", code=half))
    assert [of for of, _ in bob.refused] == ["too much for a collaborator"]
    [(of, words)] = alice.refused
    assert (of, "(c.Limits.unread_bytes)" in words) == ("too much", True)
    messages.stop("stopped")
    messages.keep(alice, "shell", a_message("later", code=half))
    assert len(alice.refused) == 1
