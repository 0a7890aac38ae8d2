"""A relay of the load test with the kernel behind it.

Real: its record, and its link with all that it delivers. Stand-ins: the kernel answers within this
process, at once or when its cell's time is over; its process only waits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import zmq

from jupyter_aliquot.provisioner.relay.server import kernel_process
from jupyter_aliquot.provisioner.relay.server.activity_tracker import ActivityTracker
from jupyter_aliquot.provisioner.relay.server.forwarder import activity_record, cells_record
from jupyter_aliquot.provisioner.relay.server.kernel_process import RunningKernel
from jupyter_aliquot.provisioner.relay.server.link_server import LinkServer
from jupyter_aliquot.provisioner.relay.server.own_record import OwnRecord
from jupyter_aliquot.provisioner.relay.store.delivery import Delivery
from jupyter_aliquot.provisioner.relay.store.output_store import Bounds, Store
from jupyter_aliquot.provisioner.relay.store.segments import Spill
from jupyter_aliquot.provisioner.relay.store.spill_room import RoomBounds, SpillRoom
from jupyter_aliquot.provisioner.relay.wire.files import Ended, forget_ended, write_ended
from jupyter_aliquot.provisioner.relay.wire.messages import (
    CONTENT,
    HEADER,
    Signer,
    find_delimiter,
    named_cell,
    new_id,
    read_object,
    read_request,
)
from jupyter_aliquot.provisioner.relay.wire.peer import Peer, Record, Refusal, listen
from jupyter_aliquot.provisioner.relay.wire.ports import FRONT_PORTS
from jupyter_aliquot.provisioner.relay.wire.protocol import VERSIONS
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder
from load.standin_loop import FlushingLoop, TimedLoop

INFO = {
    "status": "ok",
    "protocol_version": "5.4",
    "implementation": "stand-in",
    "implementation_version": "1",
    "language_info": {"name": "text", "version": "1", "mimetype": "text/plain", "file_extension": ".txt"},
    "banner": "",
    "help_links": [],
}


class StandInRelay:
    """One kernel, from its relay's start to its stop."""

    def __init__(self, loop: TimedLoop, context: zmq.Context[Any], own: OwnRecord) -> None:
        request = own.request
        self.own = own
        self.is_gone = False
        self._loop = FlushingLoop(loop)
        self._signer = Signer(request.key, request.signature_scheme, new_id())
        self._tracker = ActivityTracker(time.time())
        self._store = Store(Bounds(request.memory_bytes, request.store_bytes), Spill(_room(own)), self._lost)
        self._delivery = Delivery(self._store)
        self._links = LinkServer(self._loop, listen(own.folder / "link.sock"), self._store, self._delivery, self)
        self._loop.flush = self._links.flush
        self._front = {channel: _front_socket(context, own, channel) for channel in ("shell", "control")}
        for channel, front in self._front.items():
            self._loop.watch(front.fd, lambda _events, channel=channel: self._from_client(channel))  # type: ignore[misc]
        self._kernel: RunningKernel | None = None
        self._state: dict[str, Any] = {"state": "starting", "incarnation": 0}
        self._count = 0
        own.write()

    # ---- called by LinkServer

    def greeting(self) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        """Return the answer to hello, and the first messages of a new link."""
        hello = {"op": "hello", "version": VERSIONS[-1], "epoch": self.own.epoch, "kernel_id": self.own.kernel_id}
        told = [{"op": "kernel", **self._state}, cells_record(self._tracker), activity_record(self._tracker)]
        return {**hello, "pid": os.getpid()}, told

    def request(self, channel: str, session: str, message: Sequence[Any]) -> None:
        """Answer a browser's request. Called by LinkServer."""
        self._answer(channel, message, lambda reply: self._keep(channel, session, reply))

    def attached(self) -> None:
        """Do nothing: all output is kept from the beginning."""

    def ask(self, peer: Peer, record: Record) -> None:
        """Answer a request of the control channel. Raises Refusal."""
        operation = {"spawn": self._spawn, "set_facts": self._set_facts, "stop": self._stop}.get(record.op)
        if operation is None:
            raise Refusal(
                "bad_request", f"Requested op {record.op[:40]!r}, but a stand-in has only spawn, set_facts and stop"
            )
        operation(peer, record)

    # ---- the kernel's process

    def _spawn(self, peer: Peer, record: Record) -> None:
        given = peer.take_descriptors()
        try:
            self._ended(0)  # its descriptor may become readable after the request to start it again
            if self._kernel is not None:
                raise Refusal("running", "the kernel runs")
            launch = kernel_process.read_launch(record.header.get("launch"))
            forget_ended(self.own.folder)
            log = self.own.folder / "kernel.log"
            targets = record.header.get("descriptors") or []
            self._kernel = kernel_process.start(launch, log, dict(zip(targets, given, strict=True)))
        finally:
            for descriptor in given:
                os.close(descriptor)
        assert self._kernel.descriptor is not None
        self._loop.watch(self._kernel.descriptor, self._ended)
        self.own.kernel = self._kernel.id
        self.own.write()
        self._say_state({"state": "started", "incarnation": int(self._state["incarnation"]) + 1})
        self._links.say(peer, {"op": "spawned", "process": vars(self._kernel.id)})

    def _ended(self, _events: int) -> None:
        kernel = self._kernel
        if kernel is None or not kernel.has_ended():
            return
        if kernel.descriptor is not None:
            self._loop.forget(kernel.descriptor)
        kernel.close()
        self._kernel = None
        status = kernel.status or 0
        code, number = (status, None) if status >= 0 else (None, -status)
        ended = Ended(kernel.id.pid, kernel.id.start_time_ticks, code, number, time.time(), "", "")
        with contextlib.suppress(OSError):
            write_ended(self.own.folder, ended)
        self._tracker.clear(time.time())
        self._links.tell(activity_record(self._tracker))
        self._say_state({"state": "ended", "incarnation": self._state["incarnation"], "ended": vars(ended)})

    def _say_state(self, state: dict[str, Any]) -> None:
        self._state = state
        self._links.tell({"op": "kernel", **state})

    def _set_facts(self, peer: Peer, record: Record) -> None:
        self.own.facts = dict(record.header["facts"])
        self.own.write()
        self._links.say(peer, {"op": "set", "record": self.own.public()})

    def _stop(self, peer: Peer, _record: Record) -> None:
        self.end()
        self._links.say(peer, {"op": "stopped", "ended": None})
        for front in self._front.values():
            self._loop.forget(front.fd)
            front.close(linger=100)
        self._links.close()
        remove_folder(self.own.folder)
        self.is_gone = True

    def end(self) -> None:
        """Kill the process, if it lives."""
        if self._kernel is not None:
            self._kernel.signal(signal.SIGKILL)

    # ---- the kernel's part

    def _from_client(self, channel: str) -> None:
        front = self._front[channel]
        while not self.is_gone and front.get(zmq.EVENTS) & zmq.POLLIN:
            frames = front.recv_multipart()
            at = find_delimiter(frames)
            if at >= 0:
                who = frames[:at]
                self._answer(channel, frames[at:], lambda reply, who=who: front.send_multipart([*who, *reply]))

    def _answer(self, channel: str, message: Sequence[Any], reply: Any) -> None:
        header = read_object(message[HEADER])
        request = read_request(header, channel)
        if request is None or not self._signer.is_signed(message):
            return
        name = named_cell(message) if request.msg_type == "execute_request" else None
        if self._tracker.opened(request, time.time(), b"", name):
            self._links.tell(activity_record(self._tracker))
        parent = bytes(message[HEADER])
        self._publish("status", {"execution_state": "busy"}, parent)
        seconds = _seconds(message) if request.msg_type == "execute_request" else 0.0
        if seconds:
            self._loop.later(seconds, lambda: self._finish(request, parent, reply))
        else:
            self._finish(request, parent, reply)

    def _finish(self, request: Any, parent: bytes, reply: Any) -> None:
        if self.is_gone:
            return
        kind = request.msg_type
        if kind == "execute_request":
            self._count += 1
            self._publish("execute_input", {"code": "", "execution_count": self._count}, parent)
            self._publish("stream", {"name": "stdout", "text": "x" * 200}, parent)
            self._tracker.saw_output(time.time())
        content = INFO if kind == "kernel_info_request" else {"status": "ok", "execution_count": self._count}
        reply(self._signer.message(kind.replace("_request", "_reply"), content, parent))
        self._publish("status", {"execution_state": "idle"}, parent)
        if self._tracker.closed(request.msg_id, time.time()):
            self._links.tell(activity_record(self._tracker))
        self._links.pump()
        if kind == "shutdown_request":
            self.end()

    def _publish(self, kind: str, content: Mapping[str, Any], parent: bytes) -> None:
        self._keep("iopub", None, self._signer.message(kind, content, parent))

    def _keep(self, channel: str, session: str | None, message: Sequence[bytes]) -> None:
        size = sum(map(len, message))
        entry = self._store.add(channel, session, message, size, is_output=session is None)
        self._delivery.added(entry)
        self._links.pump()
        self._store.settle(entry)

    def _lost(self, parent: bytes, msg_id: str, messages: int, lost_bytes: int, why: str) -> list[bytes]:
        text = f"{messages} messages are missing here ({lost_bytes} bytes): {why}"
        return self._signer.message("stream", {"name": "stderr", "text": text}, parent, msg_id)


def _room(own: OwnRecord) -> SpillRoom:
    bounds = RoomBounds(own.request.store_bytes)
    return SpillRoom(own.folder / "spill", own.request.user, own.kernel_id, bounds)


def _front_socket(context: zmq.Context[Any], own: OwnRecord, channel: str) -> zmq.Socket[bytes]:
    """Return the ZMQ socket where a gateway checks the kernel and announces its end.

    All else goes over the link.
    """
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    socket.bind(f"ipc://{own.folder / 'f'}-{FRONT_PORTS[f'{channel}_port']}")
    return socket


def _seconds(message: Sequence[Any]) -> float:
    """Return the seconds that a cell takes: its code is that number."""
    try:
        return min(60.0, float(read_object(message[CONTENT]).get("code") or 0))
    except ValueError:
        return 0.0
