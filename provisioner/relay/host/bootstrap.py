"""Run one relay in a forked process: make its objects and join them. The host waits for ``ready``."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import zmq

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.agent.cache_trimmer import Trimmer
from jupyter_aliquot.provisioner.relay.agent.notices import Notices
from jupyter_aliquot.provisioner.relay.agent.reserver import Reserver
from jupyter_aliquot.provisioner.relay.server.activity_tracker import ActivityTracker
from jupyter_aliquot.provisioner.relay.server.agent_notifier import AgentNotifier
from jupyter_aliquot.provisioner.relay.server.backlog import Backlog
from jupyter_aliquot.provisioner.relay.server.client_sockets import ClientSockets
from jupyter_aliquot.provisioner.relay.server.forwarder import Forwarder
from jupyter_aliquot.provisioner.relay.server.internal_requests import InternalRequests
from jupyter_aliquot.provisioner.relay.server.kernel_sockets import KernelSockets
from jupyter_aliquot.provisioner.relay.server.link_server import LinkServer
from jupyter_aliquot.provisioner.relay.server.own_record import OwnRecord
from jupyter_aliquot.provisioner.relay.server.poll_loop import Chore, Loop
from jupyter_aliquot.provisioner.relay.server.relay import Relay
from jupyter_aliquot.provisioner.relay.server.relay_folder import RelayFolder
from jupyter_aliquot.provisioner.relay.server.sidecar_link import KernelSide, SidecarLink
from jupyter_aliquot.provisioner.relay.store.delivery import Delivery
from jupyter_aliquot.provisioner.relay.store.notices import notice_maker
from jupyter_aliquot.provisioner.relay.store.output_store import Bounds, Store
from jupyter_aliquot.provisioner.relay.store.segments import Spill
from jupyter_aliquot.provisioner.relay.store.spill_room import RoomBounds, SpillRoom
from jupyter_aliquot.provisioner.relay.wire.files import RelayRequest, is_for_gateway, socket_mode
from jupyter_aliquot.provisioner.relay.wire.messages import Signer, new_id
from jupyter_aliquot.provisioner.relay.wire.peer import listen
from jupyter_aliquot.provisioner.relay.wire.ports import FRONT_PORTS
from jupyter_aliquot.provisioner.relay.wire.protocol import LONGEST_MESSAGE
from jupyter_aliquot.provisioner.relay.wire.spare_names import SpareNames

_NAME = b"aliquot-relay"
_PR_SET_NAME = 15
# glibc: one arena for ZMQ's threads and ours; messages up to this size come from it without a page
# fault each.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_THRESHOLD_BYTES = 4 << 20
_NO_BOUND = 1 << 62


def prepare_folder(folder: Path) -> None:
    """Make a relay's folder, before the host forks. Raises OSError."""
    folder.mkdir(mode=0o700)
    kernel_folder = folder / "k"
    kernel_folder.mkdir()
    kernel_folder.chmod(0o777)


def run(runtime: RuntimeDir, spill_dir: Path, own: OwnRecord, ready: int, admitted: Collection[int] = ()) -> None:
    """Run the relay until it ends. The pipe ``ready`` gets its record, or the error.

    ``admitted``: the numbers of other accounts that may connect to it.
    """
    _become_relay()
    spill = Spill(_room(spill_dir, own.request))
    relay = _made(runtime, own, spill, admitted)
    own.write()
    _tell(ready, b"ready" + json.dumps(own.public()).encode())
    os.close(ready)
    signal.signal(signal.SIGTERM, lambda *_: setattr(relay, "is_terminated", True))
    try:
        relay.run()
    finally:
        relay.close()
        spill.close()


def _tell(ready: int, said: bytes) -> None:
    while said:
        said = said[os.write(ready, said) :]


def _room(spill_dir: Path, request: RelayRequest) -> SpillRoom:
    bounds = RoomBounds(request.store_bytes, request.user_store_bytes, request.all_store_bytes)
    return SpillRoom(spill_dir, request.user, request.kernel_id, bounds)


def _become_relay() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, _NAME, 0, 0, 0)
    for option, value in (
        (_M_ARENA_MAX, 1),
        (_M_MMAP_THRESHOLD, _THRESHOLD_BYTES),
        (_M_TRIM_THRESHOLD, _THRESHOLD_BYTES),
    ):
        libc.mallopt(option, value)
    gc.enable()


def _give_memory_back() -> None:
    """Return the memory of large messages to the system. Called when work ended."""
    ctypes.CDLL(None).malloc_trim(0)


def _made(runtime: RuntimeDir, own: OwnRecord, spill: Spill, admitted: Collection[int]) -> Relay:
    request, folder = own.request, own.folder
    context: zmq.Context[Any] = zmq.Context()
    loop = Loop()
    clients = ClientSockets(context, folder / "f", (request.curve_publickey, request.curve_secretkey))
    sockets = _kernel_side(context, loop, own)
    signer = Signer(request.key, request.signature_scheme, new_id())
    store = Store(Bounds(request.memory_bytes, request.store_bytes or _NO_BOUND), spill, notice_maker(signer))
    delivery = Delivery(store)
    tracker = ActivityTracker(time.time())
    forwarder = Forwarder(
        loop, clients, sockets, store, delivery, signer, tracker, own.prefix.encode(), request.unread_bytes
    )
    forwarder.is_kept = request.gateway is not None
    if is_for_gateway(folder):
        forwarder.longest_message = LONGEST_MESSAGE
    if request.tells_agent:
        forwarder.notifier = AgentNotifier(loop, _agent_socket(runtime, request), request.kernel_id, _told(tracker))
    place = RelayFolder(own, clients, sockets)
    relay = Relay(
        loop, own, place, sockets, forwarder, lambda: _describe(store, spill, forwarder.unread), _give_memory_back
    )
    relay.chores = _chores(forwarder, signer, own)
    listening = listen(folder / "link.sock", socket_mode(folder))
    relay.links = forwarder.links = LinkServer(loop, listening, store, delivery, relay, admitted)
    relay.prepare()
    return relay


def _kernel_side(context: zmq.Context[Any], loop: Loop, own: OwnRecord) -> KernelSide:
    folder = own.folder
    if own.request.has_sidecar:
        return SidecarLink(loop, folder / "k", own.epoch)
    spares = SpareNames(folder / "b", tuple(FRONT_PORTS.values()))
    return KernelSockets(context, folder / "k" / "s", own.identity.encode(), spares)


def _agent_socket(runtime: RuntimeDir, request: RelayRequest) -> Path:
    """Return the socket of the agent that gave the grant: a relay of a client has a folder of its own."""
    try:
        return RuntimeDir(Path(request.facts["grant"]["kernel_dir"]).parent.parent).agent_socket
    except (KeyError, TypeError):  # the starter was another version, with other facts
        return runtime.agent_socket


def _chores(forwarder: Forwarder, signer: Signer, own: OwnRecord) -> Sequence[Chore]:
    """Return the relay's tasks for a kernel with a grant, apart from forwarding."""
    notifier, request = forwarder.notifier, own.request
    if notifier is None:
        return ()
    chores: list[Chore] = [Reserver(forwarder, own, notifier)]
    if request.waiting_notice:
        notices = Notices(forwarder, signer, notifier)
        forwarder.before_iopub = notices.passes
        chores.append(notices)
    if request.trim:
        forwarder.own = InternalRequests(signer)
        chores.append(Trimmer(forwarder, forwarder.own, notifier, request.kernel_id, own.folder / "k"))
    return chores


def _told(tracker: ActivityTracker) -> Any:
    def state() -> dict[str, Any]:
        found = tracker.snapshot()
        since = found["last"] if found["since"] is None else found["since"]  # work, or the quiet after it
        return {"open": found["open"], "work": found["work"], "since": since, "input": found["input"]}

    return state


def _describe(store: Store, spill: Spill, unread: Backlog) -> dict[str, dict[str, int]]:
    kept = {
        "messages": len(store),
        "bytes": store.total_bytes,
        "memory_bytes": store.memory_bytes,
        "segments": spill.segments,
        "dropped_messages": store.dropped_messages,
        "dropped_bytes": store.dropped_bytes,
    }
    return {"store": kept, "unread": unread.snapshot()}
