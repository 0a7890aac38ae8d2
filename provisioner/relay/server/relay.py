"""One relay: when its kernel begins and ends, and when the relay ends itself.

It has one thread, one loop, and no asyncio. `forwarder` has the messages, `links` the links; this
module decides when the kernel is joined, left and ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.files import Ended, RelayRequest, forget_ended, write_ended
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.peer import Peer, Record, Refusal
from jupyter_aliquot.provisioner.relay.wire.proc import is_process
from jupyter_aliquot.provisioner.relay.wire.protocol import VERSIONS
from jupyter_aliquot.provisioner.relay.wire.rmtree import empty_folder, remove_folder

from . import kernel_process, shutdown_policy
from .forwarder import Forwarder, activity_record, cells_record
from .kernel_process import HOST_LOOK_SECONDS, RunningKernel
from .link_server import LinkServer
from .own_record import OwnRecord
from .poll_loop import Chore, Loop
from .relay_folder import RelayFolder, UnreachableError
from .sidecar_link import KernelSide

_TICK_SECONDS = 1.0
_LOOK_SECONDS = 0.01  # between looks for the socket files of a kernel that starts
_SLOW_LOOK_SECONDS = 0.05  # if another process starts the kernel, and has not for a while
_RARE_LOOK_SECONDS = 0.5
_MOST_EAGER_SECONDS, _EAGER_SECONDS = 10.0, 60.0
_LAST_MESSAGES_SECONDS = 0.25  # a child of the kernel may hold its sockets open


class Relay:
    """One relay's life.

    After ``run`` returns, ``leaves_nothing`` tells whether its folder goes.
    """

    def __init__(
        self,
        loop: Loop,
        own: OwnRecord,
        folder: RelayFolder,
        sockets: KernelSide,
        forwarder: Forwarder,
        describe: Callable[[], Any],
        trim: Callable[[], Any],
    ) -> None:
        self._loop = loop
        self._own = own
        self._trim = trim
        self._request: RelayRequest = own.request
        self._place = folder
        self._folder: Path = own.folder
        self._lost_at: float | None = None
        self._sockets = sockets
        self._forwarder = forwarder
        self._describe = describe
        self._kernel: RunningKernel | None = None
        self._incarnation = 0
        self._looking_since = time.monotonic()
        self._leaving_at: float | None = None
        self._left_at = self._quiet_at = time.monotonic()
        self._had_links = False
        self._state: dict[str, Any] = {"state": "starting", "incarnation": 0}
        self._steps: shutdown_policy.EndingSteps | None = None
        self._stoppers: list[Peer] = []
        self._ended: Ended | None = None
        self._next_tick = self._trimmed_at = 0.0
        self._log_start = 0
        self._owner_descriptor: int | None = None
        self.links: LinkServer
        self.chores: Sequence[Chore] = ()
        self.is_terminated = False  # set by SIGTERM
        self.is_done = False
        self.leaves_nothing = False

    # ---- the loop

    def prepare(self) -> None:
        """Prepare the folder before clients know of this relay.

        Also watch the kernel of a killed relay before it.
        """
        self._place.links = self.links
        self._place.prepare()
        self._watch_owner()
        if self._own.kernel is not None:
            self.links.follows_another = True
            self._watch(RunningKernel(self._own.kernel, None))
            self._incarnation = 1
            self._forwarder.started_at = time.time()

    def run(self) -> None:
        """Run until the relay is to end."""
        while not self.is_done:
            self._loop.turn(self._patience(time.monotonic()))
            now = time.monotonic()
            self._look_at_kernel(now)
            for chore in self.chores:
                chore.turn()
            self._forwarder.settle()
            self._tell_news(now)
            self._walk_to_end(now)
            if now >= self._next_tick:
                self._next_tick = now + _TICK_SECONDS
                self._tick(now)

    def _patience(self, now: float) -> float:
        waits = [self._next_tick - now]
        for chore in self.chores:
            if (due := chore.due_in()) is not None:
                waits.append(due)
        if self._forwarder.notifier is not None and (due := self._forwarder.notifier.due_in(now)) is not None:
            waits.append(due)
        if self._sockets.is_away and self._leaving_at is None and self._is_expected():
            waits.append(self._look_seconds(now - self._looking_since))
        if (ready_in := self._sockets.ready_in(now)) is not None:
            waits.append(ready_in)
        if self._leaving_at is not None:
            waits.append(self._leaving_at - now)
        return max(0.0, min(waits))

    def _look_seconds(self, waited: float) -> float:
        """Return the seconds from one look for the kernel's socket files to the next."""
        if waited >= _EAGER_SECONDS:
            return _RARE_LOOK_SECONDS
        is_soon = self._kernel is not None or waited < _MOST_EAGER_SECONDS
        return _LOOK_SECONDS if is_soon else _SLOW_LOOK_SECONDS

    def _tick(self, now: float) -> None:
        if kernel_process.bound_log(self._folder / "kernel.log", self._request.log_bytes):
            self._log_start = 0
        if self._forwarder.notifier is not None:
            self._forwarder.notifier.tick(now)
        kernel = self._kernel
        if kernel is not None and kernel.has_ended():
            self._process_ended(0)
        elif kernel and shutdown_policy.is_unjoinable(
            self._own.has_joined and self._sockets.is_away, self._looking_since, now
        ):
            self._place.note_end(shutdown_policy.UNREACHABLE)
            kernel.signal(signal.SIGKILL)
        if self._trimmed_at < self._quiet_at and not self._forwarder.tracker.open:
            self._trimmed_at = now
            self._trim()
        self._look_at_folder(now)
        if self._steps is None:
            self._ask_whether_to_end(now)

    def _tell_news(self, now: float) -> None:
        has_news, self._forwarder.has_news = self._forwarder.has_news, False
        if has_news:
            self._quiet_at = now
            self.links.tell(activity_record(self._forwarder.tracker))
        self.links.flush()
        count = self.links.count
        if self._had_links and not count:
            self._left_at = now
        self._had_links = bool(count)
        if (notifier := self._forwarder.notifier) is not None:
            if has_news:
                notifier.tell_soon(now)
            notifier.turn(now)

    # ---- the kernel comes

    def _is_expected(self) -> bool:
        """Tell whether a kernel may come.

        A kernel in a container, which its engine starts, may come at any time.
        """
        return self._kernel is not None or self._own.kernel is None

    def _look_at_kernel(self, now: float) -> None:
        if self._sockets.is_away and self._leaving_at is None and self._is_expected() and self._sockets.is_there():
            self._join()
        if not self._sockets.is_away:
            self._looking_since = now
        if self._sockets.is_over and self._leaving_at is None:
            self._leaving_at = now
        if not self._sockets.is_away and (self._sockets.became_ready(now) or self._sockets.is_ready):
            self._is_ready()
        if self._leaving_at is not None and now >= self._leaving_at:
            if self._kernel is not None and self._kernel.awaits_host(self._folder, now):
                self._leaving_at = now + HOST_LOOK_SECONDS
            else:
                self._finish_leaving()

    def _join(self) -> None:
        is_another = not self._sockets.resumes
        self._sockets.join()
        self._place.note_join()
        self._forwarder.join()
        if self._sockets.monitor is not None:
            self._loop.watch(self._sockets.monitor, self._monitored)
        if self._kernel is None and is_another:
            self._begins(time.time())
        self._sockets.begin()

    def _is_ready(self) -> None:
        if self._state["state"] == "starting" and self._leaving_at is None:
            self._say_state({"state": "started", "incarnation": self._incarnation})
        self._forwarder.release()

    def _begins(self, now: float) -> None:
        self._incarnation += 1
        self._forwarder.began(now)
        self._ended = None
        forget_ended(self._folder)
        self._say_state({"state": "starting", "incarnation": self._incarnation})

    def _say_state(self, state: dict[str, Any]) -> None:
        self._state = state
        self.links.tell({"op": "kernel", **state})

    def _monitored(self, _events: int) -> None:
        if self._sockets.monitor is not None and self._sockets.read_monitor(time.monotonic()):
            if self._leaving_at is not None:
                self._leaving_at = 0.0  # all that it had sent is here
            elif self._kernel is None:
                self._leaving_at = time.monotonic()

    # ---- the kernel goes

    def _watch(self, kernel: RunningKernel) -> None:
        self._kernel = kernel
        self._looking_since = time.monotonic()
        if kernel.descriptor is not None:
            self._loop.watch(kernel.descriptor, self._process_ended)

    def _process_ended(self, _events: int) -> None:
        """Note the end of the kernel's process; its last messages may still come."""
        kernel = self._kernel
        if kernel is None or not kernel.has_ended() or self._leaving_at is not None:
            return
        if kernel.descriptor is not None:
            self._loop.forget(kernel.descriptor)
        self._leaving_at = time.monotonic() + (0.0 if self._sockets.is_away else _LAST_MESSAGES_SECONDS)

    def _finish_leaving(self) -> None:
        self._leaving_at = None
        if not self._sockets.is_away:
            self._forwarder.drain()
            if self._sockets.monitor is not None:
                self._loop.forget(self._sockets.monitor)
        self._forwarder.leave()
        self._sockets.leave(removes_files=self._has_place)
        self._forwarder.started_at = 0.0
        self._looking_since = time.monotonic()
        kernel, self._kernel = self._kernel, None
        self._ended = self._how_it_ended(kernel)
        self._write_ended(self._ended)
        if kernel is not None:
            kernel.close()
        else:
            self._place.expect_another()
        self._tell_news(time.monotonic())
        if self._forwarder.notifier is not None:
            self._forwarder.notifier.rest()
        self._say_state({"state": "ended", "incarnation": self._incarnation, "ended": vars(self._ended)})

    @property
    def _has_place(self) -> bool:
        """Tell whether the folder is there, and not another relay's."""
        return self._lost_at is None

    def _write_ended(self, ended: Ended) -> None:
        if self._has_place:
            with contextlib.suppress(OSError):
                write_ended(self._folder, ended)

    def _how_it_ended(self, kernel: RunningKernel | None) -> Ended:
        reason = self._own.reason if self._steps is None else self._steps.written_reason
        words = kernel_process.last_words(self._folder / "kernel.log", self._log_start) if kernel is not None else ""
        if kernel is None:
            return Ended(None, None, None, None, time.time(), words, reason)
        status = kernel.status
        if kernel.host_saw is not None:
            return kernel.host_saw
        return Ended(
            kernel.id.pid,
            kernel.id.start_time_ticks,
            status if status is not None and status >= 0 else None,
            -status if status is not None and status < 0 else None,
            time.time(),
            words,
            reason,
        )

    # ---- requests

    def greeting(self) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        """Return a new link's first records. Called by LinkServer for each hello."""
        hello = {"op": "hello", "version": VERSIONS[-1], "epoch": self._own.epoch, "kernel_id": self._own.kernel_id}
        tracker = self._forwarder.tracker
        told = [{"op": "kernel", **self._state}, cells_record(tracker), activity_record(tracker)]
        return {**hello, "pid": os.getpid()}, told

    def request(self, channel: str, session: str, message: Sequence[Any]) -> None:
        """Take a request from a link. Called by LinkServer.

        Its page may attach its session after the answer: the answer is kept.
        """
        self._forwarder.is_kept = True
        self._forwarder.request(channel, session, message)

    def attached(self) -> None:
        """Keep output from now on, because a gateway listens. Called by LinkServer."""
        self._forwarder.is_kept = True

    def ask(self, peer: Peer, record: Record) -> None:
        """Answer a control question. Called by LinkServer. Raises Refusal."""
        operation = _OPERATIONS.get(record.op)
        if operation is None:
            raise Refusal("bad_request", f"Op {record.op[:40]!r} is not known. Use {', '.join(_OPERATIONS)}.")
        operation(self, peer, record)

    def _spawn(self, peer: Peer, record: Record) -> None:
        given = peer.take_descriptors()
        try:
            if self._kernel is not None and not self._kernel.has_ended():
                raise Refusal(
                    "running", f"the kernel runs (pid {self._kernel.id.pid}); end it before it is started again"
                )
            if self._steps is not None:
                raise Refusal("ending", f"the relay of kernel {self._own.kernel_id} is ending")
            launch = kernel_process.read_launch(record.header.get("launch"))
            if self._request.account:
                launch = kernel_process.for_account(launch, self._request.account)
            targets = record.header.get("descriptors")
            if not isinstance(targets, list) or len(targets) != len(given) or not set(targets) <= {0, 1, 2}:
                raise Refusal("bad_request", f"descriptors {targets!r} were announced, {len(given)} came")
            if self._kernel is not None:
                self._finish_leaving()
            empty_folder(self._folder / "k")
            self._place.write_connection_file()
            began, self._log_start = time.time(), kernel_process.log_size(self._folder / "kernel.log")
            kernel = kernel_process.start(launch, self._folder / "kernel.log", dict(zip(targets, given, strict=True)))
        finally:
            for descriptor in given:
                os.close(descriptor)
        self._watch(kernel)
        self._own.started(kernel.id)
        self._place.write_record()
        self._begins(began)
        self.links.say(peer, {"op": "spawned", "process": vars(kernel.id)})

    def _set_facts(self, peer: Peer, record: Record) -> None:
        facts = record.header.get("facts")
        if not isinstance(facts, dict):
            raise Refusal("bad_request", f"facts are an object, not {type(facts).__name__}")
        self._own.facts = facts
        self._place.write_record()
        self.links.say(peer, {"op": "set", "record": self._own.public()})

    def _status(self, peer: Peer, record: Record) -> None:
        self._forwarder.settle()
        state = {"activity": self._forwarder.tracker.snapshot(), "kernel": self._state, "links": self.links.count}
        self.links.say(peer, {"op": "status", "record": self._own.public(), **self._describe(), **state})

    def _stop(self, peer: Peer, record: Record) -> None:
        self._stoppers.append(peer)
        self._steps = shutdown_policy.EndingSteps(shutdown_policy.STOPPED, time.monotonic())

    # ---- the relay's own end

    def _watch_owner(self) -> None:
        pid = self._request.owner_pid
        if pid is None:
            return
        with contextlib.suppress(OSError):
            self._owner_descriptor = os.pidfd_open(pid)
            self._loop.watch(self._owner_descriptor, lambda _events: self._tick(time.monotonic()))

    def _is_owner_gone(self) -> bool:
        pid, ticks = self._request.owner_pid, self._request.owner_start_time_ticks
        return pid is not None and not is_process(pid, ticks or 0)

    def _ask_whether_to_end(self, now: float) -> None:
        if self.is_terminated:
            self._steps = shutdown_policy.EndingSteps(shutdown_policy.TERMINATED, now)
        elif self._is_owner_gone():
            if self._owner_descriptor is not None:
                self._loop.forget(self._owner_descriptor)
            self._steps = shutdown_policy.EndingSteps(shutdown_policy.OWNER_ENDED, now)
        else:
            # Messages for a kernel that is not coming keep no relay alive.
            busy = self._forwarder.tracker.open + (self._forwarder.held if self._kernel is not None else 0)
            has_gateway = self._request.gateway is not None
            company = shutdown_policy.Company(has_gateway, self.links.count, busy, self._left_at, self._quiet_at)
            for reason, at in (
                (shutdown_policy.ORPHANED, shutdown_policy.orphaned_at(company, self._request.orphan_seconds)),
                (shutdown_policy.UNREACHABLE, shutdown_policy.unreachable_at(company, self._lost_at)),
            ):
                if self._steps is None and at is not None and now >= at:
                    self._steps = shutdown_policy.EndingSteps(reason, now)

    def _look_at_folder(self, now: float) -> None:
        try:
            self._place.look()
            self._lost_at = None
        except UnreachableError as error:
            if self._lost_at is None:
                self._lost_at = now
                log(shutdown_policy.UNREACHABLE, kernel=self._own.kernel_id, reason=error)

    def _walk_to_end(self, now: float) -> None:
        steps = self._steps
        if steps is None:
            return
        for step in steps.due(now):
            if step == shutdown_policy.ASK:
                self._forwarder.ask_to_end()
            elif self._kernel is not None:
                self._kernel.signal(step)
        is_there = self._kernel is not None or (
            steps.reason in shutdown_policy.ASKED_FIRST and not self._sockets.is_away
        )
        if is_there and not steps.is_hopeless(now):
            self._next_tick = min(self._next_tick, now + _SLOW_LOOK_SECONDS)
            return
        self.is_done = True
        self.leaves_nothing = steps.reason in shutdown_policy.LEAVES_NOTHING

    def close(self) -> None:
        """Leave the folder as others expect it, then answer the clients that wait for the end."""
        if self._steps is not None and self._ended is None:
            self._write_ended(self._how_it_ended(None))
        self._sockets.leave(removes_files=self._has_place)
        if self.leaves_nothing and self._has_place:
            remove_folder(self._folder)
        for peer in self._stoppers:
            self.links.say(peer, {"op": "stopped", "ended": None if self._ended is None else vars(self._ended)})
        self.links.close()


_OPERATIONS = {"spawn": Relay._spawn, "set_facts": Relay._set_facts, "status": Relay._status, "stop": Relay._stop}
