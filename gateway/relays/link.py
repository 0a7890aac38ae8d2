"""The gateway's link to a kernel's relay, shared by the kernel's websockets.

It reconnects by itself. While no websocket is open no session is attached, and the relay keeps its
messages. Nothing is queued here: the relay sends only so much as is not acknowledged, and it is
acknowledged when the sockets took it. While the owner has a socket, those of collaborators are not
waited for, nor their replies; what only they were given, the relay keeps for the owner. Of the messages to the relay a
bounded part is held until the relay took it; beyond that, nothing is read from websockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from tornado.websocket import WebSocketClosedError

from jupyter_aliquot.gateway.replay.cells import NOTHING, CellsReport, KernelCells
from jupyter_aliquot.gateway.sharing.collaborator_sessions import is_collaborator_session
from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.gpu_hook.waiting import end_task, outlasting_task
from jupyter_aliquot.provisioner.errors import RelayError, RelayProtocolError
from jupyter_aliquot.provisioner.relay.client.link import (
    Activity as RelayActivity,
    Attached,
    Dropped,
    KernelState,
    KnownCells,
    LinkEvent,
    LinkListener,
    LinkMessage,
    RelayLink,
    Seen,
    SentRequest,
    Unread,
)
from jupyter_aliquot.provisioner.relay.wire.protocol import charge

from .acks import Deliveries
from .activity import Activity, begin_anew, read_activity

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0
# After a relay broke the protocol. It is not ours any more, and would cost the others' time.
_FAULT_SECONDS = 30.0
# The bytes that a relay may have yet to take before websockets wait: a live relay takes all at
# once.
_MOST_UNTAKEN_BYTES = 8 << 20
# The bytes that a collaborator's socket may have yet to take: beyond that, it misses outputs.
_MOST_SHOWN_BYTES = 8 << 20
# The bytes that all sockets may have yet to take before a lost relay is connected again. A relay waits
# for acknowledgements, so it never comes near; a user's own program in its place could begin anew
# again and again.
_MOST_HELD_BYTES = 64 << 20


class Subscriber(Protocol):
    """A websocket, as the link sees it."""

    def __hash__(self) -> int: ...

    @property
    def session_name(self) -> str: ...

    @property
    def is_collaborator(self) -> bool:
        """True if its user is not the kernel's owner."""
        ...

    def give(self, channel: str, frames: list[Any]) -> asyncio.Future[None] | None:
        """Write one message; return None if the socket has taken it. Raises WebSocketClosedError."""
        ...


# Counts of messages, since the link was made, that were not sent to all browsers, by reason.
# Replaced, never changed in place: a look at a thousand kernels then knows by identity which of
# them are unchanged.
NOTHING_DROPPED: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(("rate_limit", "closed_socket", "too_large", "unreadable", "relay", "unsent"), 0)
)


class KernelLink(LinkListener):
    """A link, made by RelayLinks.

    ``connect`` makes a RelayLink; ``changed`` is called after a change of activity or state.

    ``refused`` is called with the number of messages more that the relay refused.
    """

    def __init__(
        self,
        connect: Callable[[LinkListener], Awaitable[RelayLink]],
        changed: Callable[[KernelLink], None],
        log: logging.Logger,
        name: str,
        cells: KernelCells | None = None,
        *,
        refused: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Make a link, not connected. ``cells`` keeps outputs for pages that reconnect, if any."""
        self._connect, self._changed, self._refused = connect, changed, refused
        self._log, self._name, self._cells, self._told_refused = log, name, cells, 0
        self._link: RelayLink | None = None
        self._epoch = ""
        self._is_up, self._is_told, self._is_lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._subscribers: dict[str, Subscriber] = {}
        # Subscribers whose attachment the relay has confirmed: earlier messages were not for them.
        self._attached: set[str] = set()
        # Attachments to be confirmed, in order: the session, and whether the relay begins anew with it.
        self._attaching: deque[tuple[str, bool]] = deque()
        # The bytes that each socket has yet to take, and the sessions that the relay has back until
        # their sockets took enough.
        self._held_bytes: dict[Subscriber, int] = {}
        self._paused: set[str] = set()
        self._is_attached = asyncio.Event()
        self._deliveries = Deliveries()
        self._unsent: deque[tuple[str, str, Sequence[Any]]] = deque()
        self._unsent_bytes = 0
        self._has_moved = asyncio.Event()  # for websockets that wait for room
        self._is_closed = False
        self._acknowledging: asyncio.Handle | None = None
        # Questions to be answered by the relay, by their numbers.
        self._questions: dict[int, asyncio.Future[frozenset[str] | None]] = {}
        # The number of the latest output that was passed to _cells.
        self._told_cells = -1
        self._keeper: asyncio.Task[None] | None = None
        self.dropped: Mapping[str, int] = NOTHING_DROPPED
        self.activity: Activity | None = None
        self.kernel: KernelState | None = None

    # ---- life cycle

    def start(self) -> None:
        """Connect, and connect again after each loss, until `close`."""
        self._keeper = outlasting_task(self._keep(), name=f"aliquot-link-{self._name}")

    async def close(self) -> None:
        """Close the link at the kernel's or the server's end; the relay goes on."""
        # Its end leads to us: kept, we would wait for the garbage collector.
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await end_task(keeper)
        self._is_closed = True
        self._acknowledge()
        self._drop_link()
        self._subscribers.clear()
        self._held_bytes.clear()
        self._has_moved.set()

    async def wait_until_up(self, seconds: float) -> bool:
        """Return whether the relay answers within this time."""
        try:
            await asyncio.wait_for(self._is_up.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    async def wait_until_told(self, seconds: float) -> None:
        """Wait until the relay has reported the kernel's activity once, or this time is over."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_told.wait(), seconds)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        waits = Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        while True:
            await self._until_sockets_took_enough()
            self._is_lost.clear()
            began = loop.time()
            try:
                self._begin(await self._connect(self))
                await self._is_lost.wait()
                fault = "" if self._link is None else self._link.fault
            except (RelayError, OSError) as error:
                # A relay that is away comes back, or its kernel has ended; one of another version
                # does neither.
                fault = str(error) if isinstance(error, RelayProtocolError) else ""
                self._log.debug("relay_link=%s connect=failed reason=%s", self._name, error)
            except Exception:
                fault = ""
                self._log.exception("relay_link=%s connect=failed", self._name)
            self._drop_link()
            if fault:
                self._log.error(
                    "relay_link=%s closed reason=%s; the gateway asks again in %g s", self._name, fault, _FAULT_SECONDS
                )
                await asyncio.sleep(_FAULT_SECONDS)
            if loop.time() - began > _LONGEST_WAIT_SECONDS:
                waits.reset()
            await asyncio.sleep(waits.next_seconds())

    async def _until_sockets_took_enough(self) -> None:
        """Wait before the next relay, which may send all of its window before any socket takes a byte."""
        while sum(self._held_bytes.values()) >= _MOST_HELD_BYTES:
            self._has_moved.clear()
            await self._has_moved.wait()

    def _begin(self, link: RelayLink) -> None:
        self._link = link
        if link.epoch != self._epoch:
            # Another relay: it numbers anew, and does not know what the earlier one had sent.
            self._epoch, self._deliveries, self._told_cells, self._told_refused = link.epoch, Deliveries(), -1, 0
        self._deliveries.begin()
        self._attach(link, self._of_collaborators())
        self._attach(link, self._of_owner())
        link.taken = self._has_moved.set
        while self._unsent:
            link.send(*self._unsent.popleft())
        self._unsent_bytes = 0
        self._is_up.set()

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        self._is_up.clear()
        self._attached.clear()
        self._paused.clear()
        self._attaching.clear()
        for question in self._questions.values():
            if not question.done():
                question.set_result(None)
        self._questions.clear()
        if link is not None:
            link.close()
            for request in reversed(link.untaken):
                self._keep_unsent(request)

    def _keep_unsent(self, request: SentRequest) -> None:
        """Keep a request for the next relay, but none of a collaborator who left: the share may have ended."""
        if is_collaborator_session(request.session) and request.session not in self._subscribers:
            return
        self._unsent.appendleft((request.channel, request.session, request.frames))
        self._unsent_bytes += request.size

    # ---- called by websockets

    @property
    def is_up(self) -> bool:
        """Return whether the relay is connected, so that its state is current."""
        return self._is_up.is_set()

    @property
    def is_at_work(self) -> bool:
        """Return whether the kernel works on something, and so has shown that it answers."""
        return self.activity is not None and self.activity.is_busy

    def count(self, why: str, messages: int = 1, subscriber: Subscriber | None = None) -> None:
        """Count messages that a websocket left out; ``why`` is a key of NOTHING_DROPPED.

        A collaborator's websocket counts for nothing: the owner misses none of these.
        """
        if subscriber is not None and subscriber.is_collaborator:
            return
        self.dropped = {**self.dropped, why: self.dropped[why] + messages}

    @property
    def waiting(self) -> int:
        """Return how many messages a websocket still has to take."""
        return len(self._deliveries)

    async def cells(self, seconds: float) -> CellsReport:
        """Return what the cells showed up to now. Open websockets get later messages."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._wait_until_attached(), seconds)
        if self._cells is None:
            return NOTHING
        is_idle = self.activity is not None and not self.activity.is_busy
        return self._cells.report(time.time(), self.activity.last_activity if is_idle and self.activity else None)

    async def _wait_until_attached(self) -> None:
        while self._attached | self._paused != set(self._subscribers):
            self._is_attached.clear()
            await self._is_attached.wait()

    async def seen(self, session: str, ids: Sequence[str], seconds: float) -> frozenset[str] | None:
        """Return which of a session's requests the kernel has or gets.

        None if the relay cannot tell in time. What this gateway sent before counts, whether or not
        the relay has read it.
        """
        if not await self.wait_until_up(seconds) or self._link is None:
            return None
        answer: asyncio.Future[frozenset[str] | None] = asyncio.get_running_loop().create_future()
        self._questions[self._link.ask_seen(session, ids)] = answer
        done, _ = await asyncio.wait((answer,), timeout=seconds)
        return answer.result() if done else None

    async def open(self, subscriber: Subscriber, seconds: float) -> None:
        """Give a websocket the kept messages and later ones. Returns when the relay was asked."""
        self._shut_session(subscriber.session_name)
        is_first = not subscriber.is_collaborator and not self._of_owner()
        self._subscribers[subscriber.session_name] = subscriber
        if self._link is not None:
            self._attach(self._link, [subscriber], begins=is_first)
        elif not await self.wait_until_up(seconds):
            self._log.warning("relay_link=%s websocket=waiting the relay does not answer", self._name)

    def shut(self, subscriber: Subscriber) -> None:
        """Give a websocket no more messages. Idempotent."""
        if self._subscribers.get(subscriber.session_name) is subscriber:
            self._shut_session(subscriber.session_name)

    def send(self, channel: str, session: str, frames: Sequence[Any]) -> None:
        """Send a signed message to the kernel; it is kept while the relay is away.

        Ask `is_full` before more is read.
        """
        if self._cells is not None:
            if channel == "shell":
                self._cells.asked(frames, time.time())
            elif channel == "stdin":
                self._cells.answered()
        if self._link is not None:
            self._link.send(channel, session, frames)
        elif not self._is_closed:
            self._unsent.append((channel, session, frames))
            self._unsent_bytes += charge(frames)
        else:
            self.count("unsent")

    def drop_requests(
        self, subscriber: Subscriber, may_stay: Callable[[Sequence[Any]], bool] = lambda _: False
    ) -> None:
        """Drop what a collaborator sent and no relay has, but for the frames that *may_stay*."""
        session = subscriber.session_name
        kept = [one for one in self._unsent if one[1] != session or may_stay(one[2])]
        if len(kept) < len(self._unsent):
            self.count("unsent", len(self._unsent) - len(kept), subscriber)
            self._unsent = deque(kept)
            self._unsent_bytes = sum(charge(frames) for _, _, frames in kept)
            self._has_moved.set()

    @property
    def is_full(self) -> bool:
        """Return whether the relay has yet to take as much as may be held for it."""
        untaken = self._unsent_bytes if self._link is None else self._link.untaken_bytes
        return untaken >= _MOST_UNTAKEN_BYTES

    async def until_room(self, subscriber: Subscriber) -> None:
        """Wait until the relay took enough, or the websocket is shut.

        Called before more is read from the websocket.
        """
        while self.is_full and self._subscribers.get(subscriber.session_name) is subscriber:
            self._has_moved.clear()
            await self._has_moved.wait()

    def _shut_session(self, session: str) -> None:
        subscriber = self._subscribers.pop(session, None)
        if subscriber is None:
            return
        self._attached.discard(session)
        self._paused.discard(session)
        self._held_bytes.pop(subscriber, None)
        if subscriber.is_collaborator:
            self.drop_requests(subscriber, lambda _: False)
        self._is_attached.set()
        self._has_moved.set()
        if self._link is not None:
            self._acknowledge()  # what the websocket took must not come again to the next one
            self._link.detach(session)
        left = self._deliveries.leave(subscriber)
        if left.missed:
            self.count("closed_socket", left.missed, subscriber)
        self._acknowledge_soon()
        if left.returned and self._link is not None and not subscriber.is_collaborator:
            self._ask_again(self._link)

    def _ask_again(self, link: RelayLink) -> None:
        """Attach the owner's sessions anew: the relay then repeats the messages that none took."""
        again = self._of_owner()
        for subscriber in again:
            link.detach(subscriber.session_name)
        self._attach(link, again)

    def _of_owner(self) -> list[Subscriber]:
        return [each for each in self._subscribers.values() if not each.is_collaborator]

    def _of_collaborators(self) -> list[Subscriber]:
        return [each for each in self._subscribers.values() if each.is_collaborator]

    def _attach(self, link: RelayLink, subscribers: Sequence[Subscriber], *, begins: bool = True) -> None:
        """Attach these sessions.

        ``begins``: with the first of them, if it is the owner's, the relay begins anew.
        """
        for subscriber in subscribers:
            link.attach(subscriber.session_name, is_collaborator=subscriber.is_collaborator)
            self._attaching.append((subscriber.session_name, begins and not subscriber.is_collaborator))
            begins = False

    # ---- called by the RelayLink

    def take(self, event: LinkEvent) -> None:
        """Called by the RelayLink with each event, in the order of the relay."""
        if isinstance(event, LinkMessage):
            self._tell_cells(event)
            self._pass_on(event)
        elif isinstance(event, RelayActivity):
            self.activity = read_activity(self.activity, event)
            self._is_told.set()
            self._changed(self)
        elif isinstance(event, KernelState):
            self._take_state(event)
        elif isinstance(event, Attached):
            self._take_attached(event.session)
        elif isinstance(event, Dropped):
            self.dropped = {**self.dropped, "relay": event.messages}
        elif isinstance(event, Unread):
            self._refused(event.refused - self._told_refused)
            self._told_refused = event.refused
        elif isinstance(event, Seen):
            self._take_seen(event)
        elif isinstance(event, KnownCells) and self._cells is not None:
            self._cells.knows(event.cells, time.time())

    def _take_attached(self, session: str) -> None:
        """Note the answer to the oldest attachment: each has one, also one that another replaced."""
        begins = bool(self._attaching) and self._attaching.popleft()[1]
        if begins:
            self._deliveries.begin()
        if session in self._subscribers:
            self._attached.add(session)
            self._is_attached.set()

    def _take_state(self, state: KernelState) -> None:
        if self.kernel is not None and is_another(self.kernel, state):
            self.activity = begin_anew(self.activity, time.time())
            if self._cells is not None:
                self._cells.clear()
        self.kernel = state
        self._changed(self)

    def _take_seen(self, seen: Seen) -> None:
        question = self._questions.pop(seen.number, None)
        if question is not None and not question.done():
            question.set_result(seen.ids if seen.saw_all else None)

    def _tell_cells(self, message: LinkMessage) -> None:
        """Pass a message to the cells once, and before the sockets have it.

        So no page misses it.
        """
        if self._cells is not None and message.session is None and message.seq > self._told_cells:
            self._told_cells = message.seq
            self._cells.told(message.frames, time.time())

    def lost(self, reason: str) -> None:
        """Called by the RelayLink when its connection ended."""
        if self._link is None or not self._link.fault:
            self._log.debug("relay_link=%s lost reason=%s", self._name, reason)
        self._is_lost.set()

    def _pass_on(self, message: LinkMessage) -> None:
        seq, deliveries = message.seq, self._deliveries
        beside_owner = self._beside_owner(message.session)
        if deliveries.is_known(seq):
            deliveries.repeat(seq, is_awaited=beside_owner is None)
        elif message.session is None:
            self._pass_output_on(message)
        elif beside_owner is not None and self._is_behind(beside_owner):
            self._pause(beside_owner.session_name)
        else:
            attached = [self._subscribers[message.session]] if message.session in self._attached else []
            waiting, was_taken = self._give(message, attached)
            deliveries.give(seq, waiting, was_taken=was_taken, is_output=False, is_awaited=beside_owner is None)
        self._acknowledge_soon()

    def _pause(self, session: str) -> None:
        """Leave a collaborator's replies with the relay until its socket has taken what it was given."""
        if self._link is not None and session in self._attached:
            self._attached.discard(session)
            self._paused.add(session)
            self._link.detach(session)

    def _resume(self, subscriber: Subscriber) -> None:
        if subscriber.session_name in self._paused and not self._is_behind(subscriber):
            self._paused.discard(subscriber.session_name)
            if self._link is not None:
                self._attach(self._link, [subscriber])

    def _beside_owner(self, session: str | None) -> Subscriber | None:
        """Return the collaborator of this session while the owner has a socket: it is not waited for then."""
        subscriber = None if session is None else self._subscribers.get(session)
        return subscriber if subscriber is not None and subscriber.is_collaborator and self._of_owner() else None

    def _pass_output_on(self, message: LinkMessage) -> None:
        """Give an output to all; it is done with when the owner's sockets took it."""
        seq, deliveries = message.seq, self._deliveries
        attached = [self._subscribers[session] for session in self._attached]
        collaborators = [subscriber for subscriber in attached if subscriber.is_collaborator]
        owners = [subscriber for subscriber in attached if not subscriber.is_collaborator]
        waiting: list[Subscriber] = []
        if collaborators and not deliveries.was_shown(seq):
            deliveries.show(seq)
            waiting, _ = self._give(message, [each for each in collaborators if not self._is_behind(each)])
        if owners:
            waiting, was_taken = self._give(message, owners)
            deliveries.give(seq, waiting, was_taken=was_taken)
        elif collaborators:
            deliveries.give(seq, waiting, was_taken=True, keep=True)

    def _is_behind(self, collaborator: Subscriber) -> bool:
        """Return whether a collaborator's socket has so much to take that it misses outputs."""
        return self._held_bytes.get(collaborator, 0) >= _MOST_SHOWN_BYTES

    def _give(self, message: LinkMessage, subscribers: Iterable[Subscriber]) -> tuple[list[Subscriber], bool]:
        """Give a message to these; return those that have yet to take it, and whether others did."""
        waiting, was_taken = [], False
        for subscriber in subscribers:
            try:
                written = subscriber.give(message.channel, message.frames)
            except WebSocketClosedError:
                waiting.append(subscriber)  # until `shut` is called for it
                continue
            if written is None:
                was_taken = True
            else:
                waiting.append(subscriber)
                self._await(message, subscriber, written)
        return waiting, was_taken

    def _await(self, message: LinkMessage, subscriber: Subscriber, written: asyncio.Future[None]) -> None:
        seq, size, deliveries = message.seq, charge(message.frames), self._deliveries
        self._held_bytes[subscriber] = self._held_bytes.get(subscriber, 0) + size
        written.add_done_callback(lambda done: self._written(deliveries, seq, size, subscriber, done))

    def _written(
        self, deliveries: Deliveries, seq: int, size: int, subscriber: Subscriber, done: asyncio.Future[None]
    ) -> None:
        """Note that a socket took a message. ``deliveries``: those of its relay, which numbered it."""
        if subscriber in self._held_bytes:
            self._held_bytes[subscriber] -= size
            self._has_moved.set()
            self._resume(subscriber)
        if not done.cancelled() and done.exception() is None:
            deliveries.take(seq, subscriber)
            self._acknowledge_soon()

    def _acknowledge_soon(self) -> None:
        """Acknowledge once for all that one turn of the event loop brought.

        Not later: what a gateway that is killed had not acknowledged comes a second time.
        """
        if self._acknowledging is None:
            self._acknowledging = asyncio.get_running_loop().call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        if self._acknowledging is not None:
            self._acknowledging.cancel()
            self._acknowledging = None
        if any(begins for _, begins in self._attaching):
            return  # the relay sends all of it again
        acks = self._deliveries.acknowledge()
        if self._link is not None:
            for ack in acks:
                self._link.ack(ack.number, keep=ack.keep)


def is_another(before: KernelState, now: KernelState) -> bool:
    """Return whether the kernel is another process, so that the cells of the earlier one are gone."""
    return now.state == "ended" or now.incarnation != before.incarnation
