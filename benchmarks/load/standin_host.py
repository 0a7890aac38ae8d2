"""The relay host of the load test: one process for all relays of a node.

The real one forks a process for each relay.

usage: python -m load.standin_host RUNTIME_DIR

It speaks the relay host's and the relays' own protocol; standin_relay.py says which parts of them
are stand-ins.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import zmq

from jupyter_aliquot.gpu_hook.paths import RuntimeDir, prepare_runtime_dir
from jupyter_aliquot.provisioner.relay.host.bootstrap import prepare_folder
from jupyter_aliquot.provisioner.relay.server.own_record import OwnRecord, read_request
from jupyter_aliquot.provisioner.relay.wire.peer import Peer, ProtocolError, Record, Refusal, accept, listen
from jupyter_aliquot.provisioner.relay.wire.protocol import VERSIONS
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder
from load.standin_loop import TimedLoop
from load.standin_relay import StandInRelay

_MOST_SOCKETS = 16_384


class StandInHost:
    """A relay host. It listens at relay.sock."""

    def __init__(self, runtime: RuntimeDir) -> None:
        self._runtime = runtime
        self._loop = TimedLoop()
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, _MOST_SOCKETS)
        self._listening = listen(runtime.relay_socket)
        self._relays: dict[str, StandInRelay] = {}
        self._loop.watch(self._listening.fileno(), self._accept)

    def run(self) -> None:
        """Run until a signal."""
        self._loop.run()

    def close(self) -> None:
        """End all processes below it."""
        for relay in self._relays.values():
            relay.end()

    def _accept(self, _events: int) -> None:
        while (peer := accept(self._listening)) is not None:
            self._loop.watch(peer.descriptor, lambda _events, peer=peer: self._ready(peer))

    def _ready(self, peer: Peer) -> None:
        try:
            for record in peer.read():
                self._take(peer, record)
        except ProtocolError as error:
            peer.refuse("bad_request", str(error))
        except Refusal as refusal:
            peer.refuse(refusal.code, str(refusal))
        except Exception as error:
            traceback.print_exc()
            peer.refuse("internal", repr(error))
        peer.flush()
        if peer.is_ended or peer.has_unsent:
            self._loop.forget(peer.descriptor)
            peer.close()

    def _take(self, peer: Peer, record: Record) -> None:
        if not peer.role:
            peer.greeted(record)
            peer.say({"op": "hello", "version": VERSIONS[-1], "pid": os.getpid()})
            return
        if record.op != "start":
            raise Refusal("bad_request", f"Requested op {record.op[:40]!r}, but the stand-in has only start")
        peer.say({"op": "started", "record": self._start(record.header.get("request"))})
        peer.end_after_sending()

    def _start(self, asked: Any) -> dict[str, Any]:
        request = read_request(asked)
        known = self._relays.get(request.kernel_id)
        if known is not None and not known.is_gone:
            raise Refusal("exists", f"kernel {request.kernel_id} has a relay already")
        folder = self._runtime.relay(request.kernel_id)
        self._runtime.relays.mkdir(mode=0o700, exist_ok=True)
        remove_folder(folder)
        prepare_folder(folder)
        self._relays = {kernel_id: relay for kernel_id, relay in self._relays.items() if not relay.is_gone}
        relay = self._relays[request.kernel_id] = StandInRelay(self._loop, self._context, OwnRecord(folder, request))
        return relay.own.public()


def main() -> None:
    """Run until SIGTERM."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    runtime = RuntimeDir(Path(sys.argv[1]))
    prepare_runtime_dir(runtime)
    host = StandInHost(runtime)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"ready, descriptors {soft} of {hard}", flush=True)
    try:
        host.run()
    finally:
        host.close()


if __name__ == "__main__":
    main()
