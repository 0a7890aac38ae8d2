"""The gateway's link to a relay, at moments that a real relay and real sockets meet too seldom.

The relay and the sockets are scripted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tornado.websocket import WebSocketClosedError

from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.provisioner.errors import RelayUnavailableError
from jupyter_aliquot.provisioner.relay.client.link import Activity, Attached, LinkListener, LinkMessage, SentRequest


class PlayedRelay:
    """A scripted relay that notes the calls of its KernelLink."""

    def __init__(self, listener: LinkListener, epoch: str = "e1") -> None:
        self.listener = listener
        self.epoch = epoch
        self.asked: list[tuple[Any, ...]] = []
        self.untaken: tuple[SentRequest, ...] = ()
        self.untaken_bytes = 0
        self.fault = ""
        self.taken: Callable[[], object] = lambda: None

    def attach(self, session: str, *, is_collaborator: bool = False) -> None:
        self.asked.append(("attach", session))

    def detach(self, session: str) -> None:
        self.asked.append(("detach", session))

    def send(self, channel: str, session: str, frames: Sequence[Any]) -> None:
        self.asked.append(("send", channel, session, *frames))
        self.untaken_bytes += sum(map(len, frames))

    def takes_all(self) -> None:
        self.untaken_bytes = 0
        self.fault = ""
        self.taken()

    def ack(self, seq: int, *, keep: bool = False) -> None:
        self.asked.append(("keep" if keep else "ack", seq))

    def close(self) -> None:
        self.asked.append(("close",))

    async def says(self, *events: Any) -> list[tuple[Any, ...]]:
        """Pass these events to the link; return the calls that it makes upon them."""
        before = len(self.asked)
        for event in events:
            self.listener.take(event)
        await turn()
        return self.asked[before:]


class PlayedSocket:
    """A websocket that takes messages at once, or when the test says so, or is closed."""

    def __init__(self, session: str, *, is_slow: bool = False, is_collaborator: bool = False) -> None:
        self.session_name = session
        self.is_collaborator = is_collaborator
        self.is_slow = is_slow
        self.is_closed = False
        self.given: list[int] = []
        self.writes: list[asyncio.Future[None]] = []

    def give(self, channel: str, frames: list[Any]) -> asyncio.Future[None] | None:
        if self.is_closed:
            raise WebSocketClosedError
        self.given.append(frames[0][0])
        if not self.is_slow:
            return None
        self.writes.append(asyncio.get_running_loop().create_future())
        return self.writes[-1]

    def takes(self, count: int) -> None:
        for write in self.writes[:count]:
            write.set_result(None)
        del self.writes[:count]

    def breaks(self) -> None:
        self.is_closed = True
        for write in self.writes:
            write.set_exception(WebSocketClosedError())
            write.exception()


def output(*numbers: int) -> list[LinkMessage]:
    return [LinkMessage(number, "iopub", None, [bytes([number])]) for number in numbers]


def reply(number: int, session: str) -> LinkMessage:
    return LinkMessage(number, "shell", session, [bytes([number])])


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Stage:
    """A link, and the relays that it connected to."""

    def __init__(self) -> None:
        self.relays: list[PlayedRelay] = []
        self.epoch = "e1"
        self.is_away = False
        self.changes = 0
        self.link = KernelLink(self._connect, self._changed, logging.getLogger(__name__), "k1")

    async def _connect(self, listener: LinkListener) -> Any:
        if self.is_away:
            raise RelayUnavailableError("it is away")
        self.relays.append(PlayedRelay(listener, self.epoch))
        return self.relays[-1]

    def _changed(self, link: KernelLink) -> None:
        self.changes += 1

    @property
    def relay(self) -> PlayedRelay:
        return self.relays[-1]

    async def open(self, *sockets: PlayedSocket) -> None:
        for socket in sockets:
            await self.link.open(socket, 10)
            await self.relay.says(Attached(socket.session_name))

    async def next_relay(self, epoch: str = "e1") -> PlayedRelay:
        """Break the connection, and return the relay of the next one."""
        self.epoch = epoch
        self.relay.listener.lost("cut")
        await turn()
        await self.link.wait_until_up(10)
        return self.relay


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    stage = Stage()
    stage.link.start()
    await stage.link.wait_until_up(10)
    yield stage
    await stage.link.close()


async def test_what_sockets_took_is_acknowledged_once_for_all_that_came_together() -> None:
    async with a_stage() as stage:
        socket = PlayedSocket("a")
        await stage.open(socket)
        assert await stage.relay.says(*output(1, 2, 3)) == [("ack", 3)]
        assert socket.given == [1, 2, 3]


async def test_an_acknowledgement_waits_for_more_but_not_beyond_the_end_of_a_websocket_or_the_link() -> None:
    async with a_stage() as stage:
        one, other = PlayedSocket("one"), PlayedSocket("other")
        await stage.open(one, other)
        for event in output(1, 2):
            stage.relay.listener.take(event)
        assert ("ack", 1) not in stage.relay.asked
        stage.link.shut(one)
        assert stage.relay.asked[-2:] == [("ack", 2), ("detach", "one")]
        for event in output(3):
            stage.relay.listener.take(event)
        assert stage.relay.asked[-1] == ("detach", "one")
    assert stage.relay.asked[-2:] == [("ack", 3), ("close",)]


async def test_without_a_websocket_nothing_is_attached_and_nothing_acknowledged() -> None:
    async with a_stage() as stage:
        assert await stage.relay.says(*output(1)) == []
        assert stage.relay.asked == []


async def test_what_was_on_its_way_before_the_attachment_is_left_for_later() -> None:
    """Attach while messages are under way.

    The relay had sent 3 and 4 before it learned that the first socket had closed; 2 must come
    before them.
    """
    async with a_stage() as stage:
        first, second = PlayedSocket("a", is_slow=True), PlayedSocket("a")
        await stage.open(first)
        await stage.relay.says(*output(1, 2))
        first.takes(1)
        await turn()
        first.breaks()
        stage.link.shut(first)
        await stage.link.open(second, 10)
        assert await stage.relay.says(*output(3, 4)) == []
        assert await stage.relay.says(Attached("a"), *output(2, 3, 4)) == [("ack", 4)]
        assert second.given == [2, 3, 4]


async def test_a_reply_is_for_its_session_alone() -> None:
    async with a_stage() as stage:
        one, other = PlayedSocket("one"), PlayedSocket("other")
        await stage.open(one, other)
        assert await stage.relay.says(reply(1, "one"), reply(2, "gone"), *output(3)) == [("ack", 3)]
        assert (one.given, other.given) == ([1, 3], [3])


async def test_a_slow_socket_holds_the_acknowledgement_back_and_its_end_lets_it_go() -> None:
    async with a_stage() as stage:
        slow, quick = PlayedSocket("slow", is_slow=True), PlayedSocket("quick")
        await stage.open(slow, quick)
        assert await stage.relay.says(*output(1, 2, 3)) == []
        slow.takes(1)
        await turn()
        assert stage.relay.asked[-1] == ("ack", 1)
        slow.breaks()
        stage.link.shut(slow)
        await turn()
        assert stage.relay.asked[-2:] == [("detach", "slow"), ("ack", 3)]
        assert stage.link.dropped["closed_socket"] == 2


async def test_what_only_a_closed_tab_was_given_comes_to_the_open_one() -> None:
    async with a_stage() as stage:
        slow, late = PlayedSocket("slow", is_slow=True), PlayedSocket("late")
        await stage.open(slow)
        await stage.relay.says(*output(1))
        await stage.open(late)
        await stage.relay.says(*output(2))
        slow.breaks()
        before = len(stage.relay.asked)
        stage.link.shut(slow)
        await turn()
        assert stage.relay.asked[before:] == [("detach", "slow"), ("detach", "late"), ("attach", "late")]
        assert await stage.relay.says(Attached("late"), *output(1, 2)) == [("ack", 2)]
        assert late.given == [2, 1], "each once"


async def test_nothing_is_acknowledged_between_an_attachment_that_begins_anew_and_its_own_answer() -> None:
    """The relay answers an earlier attachment of the same session first."""
    async with a_stage() as stage:
        slow, late = PlayedSocket("slow", is_slow=True), PlayedSocket("late")
        await stage.open(slow)
        await stage.relay.says(*output(1))
        await stage.link.open(late, 10)  # its answer is on its way
        slow.breaks()
        stage.link.shut(slow)  # attaches "late" anew, for what only "slow" was given
        await turn()
        early = await stage.relay.says(Attached("late"), *output(2))
        assert early == [], "the relay sends 1 and 2 again: an acknowledgement of 2 would count for 1, too"
        assert await stage.relay.says(Attached("late"), *output(1, 2)) == [("ack", 2)]
        assert late.given == [2, 1]


async def test_a_write_of_another_relays_message_takes_none_of_this_ones() -> None:
    async with a_stage() as stage:
        socket = PlayedSocket("a", is_slow=True)
        await stage.open(socket)
        await stage.relay.says(*output(1))
        relay = await stage.next_relay("e2")
        await relay.says(Attached("a"), *output(1))
        socket.takes(1)
        await turn()
        assert [asked for asked in relay.asked if asked[0] == "ack"] == []
        socket.takes(1)
        await turn()
        assert relay.asked[-1] == ("ack", 1)


async def test_what_only_collaborators_were_shown_comes_to_the_owner_and_not_to_them_again() -> None:
    async with a_stage() as stage:
        collaborator, owner = PlayedSocket("guest", is_collaborator=True), PlayedSocket("owner")
        await stage.open(collaborator)
        assert await stage.relay.says(*output(1, 2)) == [("keep", 2)]
        await stage.link.open(owner, 10)
        assert await stage.relay.says(*output(3)) == [], "the relay sends it again: nothing is acknowledged until then"
        assert await stage.relay.says(Attached("owner"), *output(1, 2, 3, 4)) == [("ack", 4)]
        assert (collaborator.given, owner.given) == ([1, 2, 3, 4], [1, 2, 3, 4])


async def test_while_the_owner_reads_no_collaborator_is_waited_for_and_one_far_behind_misses_outputs() -> None:
    async with a_stage() as stage:
        collaborator, owner = PlayedSocket("guest", is_slow=True, is_collaborator=True), PlayedSocket("owner")
        await stage.open(collaborator, owner)
        for message in (large := output(1, 2, 3, 4)):
            message.frames.append(b"x" * 5_000_000)
        assert await stage.relay.says(*large) == [("ack", 4)]
        assert collaborator.given == [1, 2]
        assert await stage.relay.says(reply(5, "guest"), *output(6)) == [("detach", "guest"), ("ack", 6)]
        collaborator.takes(1)
        await turn()
        assert stage.relay.asked[-1] == ("attach", "guest")
        assert await stage.relay.says(Attached("guest"), reply(5, "guest"), reply(7, "guest")) == [("ack", 7)]
        await stage.relay.says(*output(8))
        assert (collaborator.given, owner.given) == ([1, 2, 5, 7, 8], [1, 2, 3, 4, 6, 8]), "its own replies it gets"
        stage.link.shut(collaborator)
        assert stage.link.dropped["closed_socket"] == 0


async def test_a_reply_that_waited_for_a_collaborator_holds_nothing_up_once_the_owner_comes() -> None:
    async with a_stage() as stage:
        collaborator, owner = PlayedSocket("guest", is_slow=True, is_collaborator=True), PlayedSocket("owner")
        await stage.open(collaborator)
        assert await stage.relay.says(reply(1, "guest"), *output(2)) == []
        await stage.link.open(owner, 10)
        assert await stage.relay.says(Attached("owner"), reply(1, "guest"), *output(2, 3)) == [("ack", 3)]
        assert (collaborator.given, owner.given) == ([1, 2, 3], [2, 3])
        stage.link.shut(collaborator)
        assert stage.link.dropped["closed_socket"] == 0


async def test_what_the_owner_had_not_taken_at_the_end_of_the_page_is_kept_while_collaborators_go_on() -> None:
    async with a_stage() as stage:
        collaborator, owner = PlayedSocket("guest", is_collaborator=True), PlayedSocket("owner", is_slow=True)
        await stage.open(collaborator, owner)
        assert await stage.relay.says(*output(1, 2, 3)) == []
        owner.takes(1)
        await turn()
        owner.breaks()
        stage.link.shut(owner)
        await turn()
        assert stage.relay.asked[-3:] == [("ack", 1), ("detach", "owner"), ("keep", 3)]
        assert await stage.relay.says(*output(4)) == [("keep", 4)]
        again = PlayedSocket("again")
        await stage.link.open(again, 10)
        assert await stage.relay.says(Attached("again"), *output(2, 3, 4)) == [("ack", 4)]
        assert (collaborator.given, again.given) == ([1, 2, 3, 4], [2, 3, 4])


async def test_collaborators_alone_are_waited_for_and_a_loss_shows_them_nothing_twice() -> None:
    async with a_stage() as stage:
        collaborator = PlayedSocket("guest", is_slow=True, is_collaborator=True)
        await stage.open(collaborator)
        assert await stage.relay.says(*output(1, 2)) == []
        collaborator.takes(1)
        await turn()
        assert stage.relay.asked[-1] == ("keep", 1)
        relay = await stage.next_relay()
        assert await relay.says(Attached("guest"), *output(1, 2, 3)) == [("keep", 2)]
        assert collaborator.given == [1, 2, 3]


async def test_after_a_loss_what_comes_again_is_given_once() -> None:
    async with a_stage() as stage:
        socket = PlayedSocket("a", is_slow=True)
        await stage.open(socket)
        await stage.relay.says(*output(1, 2))
        socket.takes(1)
        relay = await stage.next_relay()
        assert relay.asked == [("attach", "a")]
        assert await relay.says(Attached("a"), *output(1, 2, 3)) == [("ack", 1)]
        assert socket.given == [1, 2, 3]
        socket.takes(2)
        await turn()
        assert relay.asked[-1] == ("ack", 3)


async def test_another_relay_numbers_anew() -> None:
    async with a_stage() as stage:
        socket = PlayedSocket("a")
        await stage.open(socket)
        await stage.relay.says(*output(1, 2))
        relay = await stage.next_relay("e2")
        assert await relay.says(Attached("a"), *output(1)) == [("ack", 1)]
        assert socket.given == [1, 2, 1]


async def test_requests_wait_for_a_relay_that_is_away_in_their_order() -> None:
    async with a_stage() as stage:
        stage.link.send("shell", "a", [b"first"])
        stage.relay.untaken = (SentRequest(1, "shell", "a", (b"first",)),)
        stage.is_away = True
        stage.relay.listener.lost("cut")
        await turn()
        for number in range(1005):
            stage.link.send("shell", "a", [b"%d" % number])
        stage.is_away = False
        await stage.link.wait_until_up(10)
        assert stage.relay.asked == [
            ("send", "shell", "a", text) for text in (b"first", *(b"%d" % n for n in range(1005)))
        ]
        assert stage.link.dropped["unsent"] == 0


async def test_a_relay_that_comes_back_gets_nothing_of_a_collaborator_who_left_or_may_not_send_it() -> None:
    """A share may end while the relay is away, with cells of the collaborator waiting for it."""
    owner, left, reader = "owner", f"collaborator-{'a' * 40}", f"collaborator-{'b' * 40}"
    async with a_stage() as stage:
        sockets = [
            PlayedSocket(owner),
            PlayedSocket(left, is_collaborator=True),
            PlayedSocket(reader, is_collaborator=True),
        ]
        await stage.open(*sockets)
        stage.link.shut(sockets[0])
        stage.link.shut(sockets[1])
        # The relay had not confirmed these when it was lost, and their pages are closed.
        stage.relay.untaken = (SentRequest(1, "shell", owner, (b"1",)), SentRequest(2, "shell", left, (b"2",)))
        stage.is_away = True
        stage.relay.listener.lost("cut")
        await turn()
        again = PlayedSocket(left, is_collaborator=True)
        opening = asyncio.ensure_future(stage.link.open(again, 10))
        await turn()
        stage.link.send("shell", left, [b"3"])
        stage.link.send("shell", reader, [b"cell"])
        stage.link.send("shell", reader, [b"question"])
        stage.link.shut(again)
        stage.link.drop_requests(sockets[2], lambda frames: frames[0] == b"question")
        stage.is_away = False
        await stage.link.wait_until_up(10)
        await opening
        sent = [call for call in stage.relay.asked if call[0] == "send"]
        assert sent == [("send", "shell", owner, b"1"), ("send", "shell", reader, b"question")]


async def test_a_socket_whose_relay_has_much_to_take_is_not_read_until_it_took_it_or_the_socket_ends() -> None:
    async with a_stage() as stage:
        one, other = PlayedSocket("one"), PlayedSocket("other")
        await stage.open(one, other)
        assert not stage.link.is_full
        stage.link.send("shell", "one", [b"x" * (8 << 20)])
        assert stage.link.is_full
        waiting = [asyncio.ensure_future(stage.link.until_room(socket)) for socket in (one, other)]
        await turn()
        assert not any(one.done() for one in waiting)
        stage.link.shut(other)
        await turn()
        assert [one.done() for one in waiting] == [False, True]
        stage.relay.takes_all()
        await turn()
        assert waiting[0].done()


async def test_what_a_lost_relay_had_not_taken_counts_until_the_next_one_takes_it() -> None:
    async with a_stage() as stage:
        socket = PlayedSocket("a")
        await stage.open(socket)
        stage.relay.untaken = (SentRequest(1, "shell", "a", (b"x" * (8 << 20),), 8 << 20),)
        stage.is_away = True
        stage.relay.listener.lost("cut")
        await turn()
        assert stage.link.is_full
        waiting = asyncio.ensure_future(stage.link.until_room(socket))
        stage.is_away = False
        await stage.link.wait_until_up(10)
        await turn()
        assert stage.link.is_full, "it was sent again"
        assert not waiting.done()
        stage.relay.takes_all()
        await turn()
        assert waiting.done()
        assert not stage.link.is_full


async def test_with_its_kernel_a_link_ends_and_no_socket_waits_for_it() -> None:
    async with a_stage() as stage:
        socket = PlayedSocket("a")
        await stage.open(socket)
        stage.link.send("shell", "a", [b"x" * (8 << 20)])
        waiting = asyncio.ensure_future(stage.link.until_room(socket))
        await turn()
        await stage.link.close()
        await turn()
        assert waiting.done()
        for _ in range(3):
            stage.link.send("shell", "a", [b"late"])
        assert (stage.link.dropped["unsent"], stage.link.is_full) == (3, False)


async def test_a_socket_that_fails_is_waited_for_until_its_end_is_told() -> None:
    async with a_stage() as stage:
        closing, other = PlayedSocket("closing"), PlayedSocket("other")
        await stage.open(closing, other)
        closing.is_closed = True
        assert await stage.relay.says(*output(1)) == []
        stage.link.shut(closing)
        stage.link.shut(closing)
        await turn()
        assert stage.relay.asked[-2:] == [("detach", "closing"), ("ack", 1)]


async def test_activity_is_told_and_kept_over_a_loss() -> None:
    async with a_stage() as stage:
        await stage.relay.says(Activity(1, 1, 5.0, 5.0))
        assert (stage.changes, stage.link.is_at_work) == (1, True)
        await stage.next_relay()
        assert stage.link.activity is not None
        assert stage.link.activity.busy_since == 5.0


async def test_a_relay_that_begins_anew_sends_nothing_more_before_the_sockets_took_what_it_had_sent() -> None:
    """A user's own program in the place of a relay hangs up before the bound of one connection."""
    large = bytes(1 << 20)
    messages = [LinkMessage(number, "iopub", None, [bytes([number]), large]) for number in range(1, 66)]
    async with a_stage() as stage:
        slow = PlayedSocket("slow", is_slow=True)
        await stage.open(slow)
        await stage.relay.says(*messages)
        stage.epoch = "e2"
        stage.relay.listener.lost("it hung up")
        assert not await stage.link.wait_until_up(0.3), "the first wait for a relay is 0.05 s"
        assert len(stage.relays) == 1
        slow.takes(2)
        assert await stage.link.wait_until_up(10)
        await stage.relay.says(Attached("slow"), *messages)
        stage.epoch = "e3"
        stage.relay.listener.lost("it hung up")
        await turn()
        stage.link.shut(slow)
        assert await stage.link.wait_until_up(10), "a closed socket holds nothing"
        assert len(stage.relays) == 3
