"""The relay host: forks a relay for each kernel, reaps processes, and replaces killed relays.

It has one thread and no ZMQ context, because forks must begin clean. Its end ends no relay; a new
host finds them by folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.paths import KERNEL_ID, RuntimeDir
from jupyter_aliquot.provisioner.relay.server.own_record import PRIVATE_FIELDS, OwnRecord, read_request
from jupyter_aliquot.provisioner.relay.store.spill_room import sweep
from jupyter_aliquot.provisioner.relay.wire.files import (
    Ended,
    RelayRecord,
    UnreadableRecordError,
    read_relay_fields,
    read_relay_record,
    read_relay_records,
    write_ended,
)
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.messages import Signer
from jupyter_aliquot.provisioner.relay.wire.peer import Peer, Record, Refusal, accept
from jupyter_aliquot.provisioner.relay.wire.proc import is_process
from jupyter_aliquot.provisioner.relay.wire.protocol import VERSIONS, ProtocolError
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder
from jupyter_aliquot.provisioner.relay.wire.spare_names import is_listened_at

from .bootstrap import prepare_folder, run
from .by_force import remove_by_force, signal_kernel
from .left_kernels import folders_without_relay, kernels_of
from .tenants import Tenants, acting_as

_SCAN_SECONDS = 5.0
_KEEP_SECONDS = 7 * 24 * 3600.0  # a folder whose relay ended, for readers of how the kernel ended
_MOST_FORKS = 3  # for one kernel, within
_FORKS_SECONDS = 60.0


@dataclass
class Child:
    """A relay that this host forked.

    ``asker``, the peer that requested it, waits until it is ready.
    """

    kernel_id: str
    ready: int | None
    asker: Peer | None
    is_new: bool
    said: bytes = b""


class Host:
    """The relay host. ``serve`` returns when the host is to end."""

    def __init__(
        self,
        runtime: RuntimeDir,
        spill_dir: Path,
        listening: socket.socket,
        idle_seconds: float | None,
        tenants: Tenants | None = None,
        parent: int | None = None,
    ) -> None:
        """``tenants``: the accounts that a host of root serves; None: all relays are the host's own.

        ``parent``: the process with which the host ends; None: it outlives its parent.
        """
        self._parent = parent
        self._runtime = runtime
        self._spill_dir = spill_dir
        self._listening = listening
        self._idle_seconds = idle_seconds
        self._tenants = tenants
        self._admitted = () if tenants is None else (tenants.gateway.uid,)
        self._selector = selectors.DefaultSelector()
        self._peers: set[Peer] = set()
        self._children: dict[int, Child] = {}
        self._forks: dict[str, list[float]] = {}
        self._idle_since = time.monotonic()
        self._inode = os.stat(runtime.relay_socket).st_ino
        self._is_ending = False
        self._wake, wake = socket.socketpair()
        for end in (self._wake, wake):
            end.setblocking(False)
        self._wake_writer = wake
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)

    def serve(self) -> None:
        """Serve until a signal, or until the idle time is over."""
        next_scan = 0.0
        while not self._is_ending:
            now = time.monotonic()
            if now >= next_scan:
                next_scan = now + _SCAN_SECONDS
                self._guarded(self._scan)
                self._is_ending = self._is_ending or self.is_cut_off() or self._has_lost_parent()
            self._is_ending = self._is_ending or self._is_idle_too_long(now)
            patience = min(next_scan - now, self._idle_seconds or _SCAN_SECONDS)
            for key, _ in self._selector.select(max(0.05, patience) if not self._is_ending else 0):
                self._guarded(key.data, key.fileobj)

    def close(self) -> None:
        """Close the host's sockets; relays go on."""
        signal.set_wakeup_fd(-1)
        for peer in tuple(self._peers):
            self._drop(peer)
        self._selector.close()
        for end in (self._wake, self._wake_writer, self._listening):
            end.close()

    def _end(self, number: int, _frame: Any) -> None:
        self._is_ending = True

    def _woken(self, _wake: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass
        self._reap()

    def is_cut_off(self) -> bool:
        """Tell whether clients cannot find this host any more.

        Its socket's name is gone or another's.
        """
        try:
            return os.stat(self._runtime.relay_socket).st_ino != self._inode
        except OSError:
            return True

    def _has_lost_parent(self) -> bool:
        return self._parent is not None and os.getppid() != self._parent

    def _is_idle_too_long(self, now: float) -> bool:
        if self._idle_seconds is None:
            return False
        if self._children or self._peers or any(record.is_alive for record in read_relay_records(self._runtime)):
            self._idle_since = now
        return now - self._idle_since >= self._idle_seconds

    # ---- peers

    def _accept(self, _listening: Any) -> None:
        while (peer := accept(self._listening, self._admitted)) is not None:
            self._peers.add(peer)
            self._selector.register(peer.descriptor, selectors.EVENT_READ, lambda _, peer=peer: self._ready(peer))

    def _ready(self, peer: Peer) -> None:
        try:
            for record in peer.read():
                if peer.role:
                    self._answer(peer, record)
                else:
                    peer.greeted(record)
                    peer.say({"op": "hello", "version": VERSIONS[-1], "pid": os.getpid()})
        except ProtocolError as error:
            peer.refuse("bad_request", str(error))
        except Refusal as refusal:
            peer.refuse(refusal.code, str(refusal))
        except Exception as error:  # no request of a peer may end the host
            traceback.print_exc()
            peer.refuse("internal", f"the relay host failed at this: {error!r}")
        self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        """Send a peer's answer.

        Answers are small: the host drops a peer that does not take one at once.
        """
        peer.flush()
        if peer.is_ended or peer.has_unsent:
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self._selector.unregister(peer.descriptor)
        peer.close()
        for pid, child in self._children.items():
            if child.asker is peer:
                child.asker = None
                if child.is_new and child.ready is not None:
                    os.kill(pid, signal.SIGKILL)  # no peer waits for it: its folder goes when it is reaped

    def _answer(self, peer: Peer, record: Record) -> None:
        if record.op == "start":
            self._start(peer, record.header.get("request"))
        elif record.op == "status":
            alive = [found.kernel_id for found in read_relay_records(self._runtime) if found.is_alive]
            peer.say({"op": "status", "pid": os.getpid(), "relays": alive})
            peer.end_after_sending()
        elif record.op == "signal":
            signal_kernel(self._folder_of(record), record.header.get("number"))
            peer.say({"op": "signalled"})
            peer.end_after_sending()
        elif record.op == "remove":
            ended = remove_by_force(self._folder_of(record))
            peer.say({"op": "removed", "ended": None if ended is None else vars(ended)})
            peer.end_after_sending()
        else:
            raise Refusal("bad_request", f"Op {record.op[:40]!r} is not known. Use start, status, signal or remove.")

    def _folder_of(self, record: Record) -> Path:
        kernel_id = record.header.get("kernel_id")
        if not isinstance(kernel_id, str) or not KERNEL_ID.fullmatch(kernel_id):
            raise Refusal("bad_request", f"{kernel_id!r:.60} is no id of a kernel")
        return self._runtime.relay(kernel_id)

    # ---- relays begin

    def _start(self, peer: Peer, asked: Any) -> None:
        request = read_request(asked)
        if not KERNEL_ID.fullmatch(request.kernel_id):
            raise Refusal("bad_request", f"{request.kernel_id[:60]!r} is no id of a kernel")
        try:
            Signer(request.key, request.signature_scheme, "")
        except ValueError as error:
            raise Refusal("bad_request", str(error)) from error
        account = None if self._tenants is None else self._tenants.requested(request.account)
        if account is None and request.account:
            raise Refusal("account", f"this host runs as {os.geteuid()} and starts no relay as {request.account!r}")
        folder = self._runtime.relay(request.kernel_id)
        if self._is_starting(request.kernel_id) or self._lives(folder):
            raise Refusal("exists", f"kernel {request.kernel_id} has a relay already; stop that one first")
        self._runtime.relays.mkdir(mode=0o700, exist_ok=True)
        remove_folder(folder)
        if self._tenants is None or account is None:
            prepare_folder(folder)
        else:
            self._tenants.prepare_folder(folder, account)
        self._fork(OwnRecord(folder, request), peer, is_new=True)

    def _is_starting(self, kernel_id: str) -> bool:
        """Tell whether a relay is about to begin.

        A stopped one has no record, though it may not be reaped.
        """
        return any(child.kernel_id == kernel_id and child.ready is not None for child in self._children.values())

    def _lives(self, folder: Any) -> bool:
        try:
            record = read_relay_record(folder)
        except (OSError, UnreadableRecordError):
            return False
        return record.is_alive or record.has_living_kernel

    def _fork(self, own: OwnRecord, asker: Peer | None, *, is_new: bool) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become_relay(own, writer)
        os.close(writer)
        os.set_blocking(reader, False)
        self._children[pid] = Child(own.kernel_id, reader, asker, is_new)
        self._selector.register(reader, selectors.EVENT_READ, lambda _: self._heard(pid))
        log("forked", kernel=own.kernel_id, pid=pid, new=is_new)

    def _become_relay(self, own: OwnRecord, ready: int) -> None:
        """Become a relay, in the child. Never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            for descriptor in _descriptors() - {0, 1, 2, ready}:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            spill_dir = self._spill_dir
            if self._tenants is not None:
                account = self._tenants.owner_of(own.folder)
                spill_dir = self._tenants.spill_dir(spill_dir, account)
                self._tenants.become(account)
            run(self._runtime, spill_dir, own, ready, self._admitted)
            code = 0
        except BaseException as error:
            traceback.print_exc()
            with contextlib.suppress(OSError):
                os.write(ready, _why_not(error, self._runtime).encode()[:1000])
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _heard(self, pid: int) -> None:
        child = self._children[pid]
        assert child.ready is not None
        try:
            said = os.read(child.ready, 4096)
        except BlockingIOError:
            return
        child.said += said
        if said and child.said != b"ready":
            return
        self._forget_pipe(child)
        asker, child.asker = child.asker, None
        if asker is None:
            return
        if child.said == b"ready":
            asker.say({"op": "started", "record": self._public(child.kernel_id)})
            asker.end_after_sending()
        else:
            asker.refuse("internal", f"the relay did not start: {child.said.decode(errors='replace') or 'it ended'}")
        self._flush(asker)

    def _public(self, kernel_id: str) -> Mapping[str, Any]:
        fields = read_relay_fields(self._runtime.relay(kernel_id))
        return {name: value for name, value in fields.items() if name not in PRIVATE_FIELDS}

    def _forget_pipe(self, child: Child) -> None:
        if child.ready is not None:
            self._selector.unregister(child.ready)
            os.close(child.ready)
            child.ready = None

    # ---- relays end

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            child = self._children.get(pid)
            if child is None:
                self._inherited(pid, code)
                continue
            if child.ready is not None:
                self._heard(pid)
                self._forget_pipe(child)
            del self._children[pid]
            log("ended", kernel=child.kernel_id, pid=pid, code=code)
            folder = self._runtime.relay(child.kernel_id)
            if child.said != b"ready" and child.is_new:
                remove_folder(folder)
            elif code != 0:
                self._take_over(child.kernel_id)
            elif self._tenants is not None:
                self._remove_emptied(folder)

    @staticmethod
    def _remove_emptied(folder: Path) -> None:
        """Remove the folder of a relay that ended and emptied it: the folder around it is root's."""
        with contextlib.suppress(OSError):
            (folder / "k").rmdir()
        with contextlib.suppress(OSError):
            folder.rmdir()

    def _inherited(self, pid: int, code: int) -> None:
        """Handle the end of an inherited process: a killed relay's kernel, or what a kernel left."""
        for record in read_relay_records(self._runtime):
            if record.kernel is not None and record.kernel.pid == pid:
                failed = code if code >= 0 else None
                signalled = -code if code < 0 else None
                ticks = record.kernel.start_time_ticks
                ended = Ended(pid, ticks, failed, signalled, time.time(), reason=record.reason)
                with contextlib.suppress(OSError), acting_as(record.folder.stat().st_uid):
                    write_ended(record.folder, ended)
                log("kernel_ended", kernel=record.kernel_id, pid=pid, code=code)

    def _scan(self) -> None:
        """Look for killed relays of other hosts, and remove old folders."""
        self._sweep()
        ours = {child.kernel_id for child in self._children.values()}
        for record in read_relay_records(self._runtime):
            if not record.is_alive and record.kernel_id not in ours:
                self._guarded(self._look_at_dead, record)
        for folder in folders_without_relay(self._runtime):
            self._guarded(self._look_at_empty, folder)

    def _look_at_dead(self, record: RelayRecord) -> None:
        if record.has_living_kernel or _has_answering_kernel(record):
            self._take_over(record.kernel_id)
        elif _is_long_over(record) or _has_lost_owner(record):
            log("removed", kernel=record.kernel_id, folder=record.folder)
            remove_folder(record.folder)

    def _look_at_empty(self, folder: Path) -> None:
        self._end_unreachable(folder)
        if self._tenants is not None and not self._is_starting(folder.name):
            self._remove_emptied(folder)

    @staticmethod
    def _guarded(look: Callable[..., object], *arguments: Any) -> None:
        """Call *look*: what one kernel's account left in its folder must not end the host of all."""
        try:
            look(*arguments)
        except Exception:
            traceback.print_exc()

    def _sweep(self) -> None:
        if self._tenants is None:
            sweep(self._spill_dir)
            return
        with contextlib.suppress(OSError):
            for part in self._spill_dir.iterdir():
                with acting_as(part.lstat().st_uid):
                    sweep(part)

    def _take_over(self, kernel_id: str) -> None:
        """Start another relay at the sockets of one that was killed, if its kernel may live."""
        folder = self._runtime.relay(kernel_id)
        try:
            if self._is_starting(kernel_id) or read_relay_record(folder).is_alive:
                return
            own = OwnRecord.found(folder)
        except (OSError, UnreadableRecordError, Refusal) as error:
            log("not_taken_over", kernel=kernel_id, reason=error)
            self._end_unreachable(folder)
            return
        if own.kernel is not None and not is_process(own.kernel.pid, own.kernel.start_time_ticks):
            log("not_taken_over", kernel=kernel_id, reason="its kernel ended")
            return
        now = time.monotonic()
        recent = [at for at in self._forks.get(kernel_id, []) if now - at < _FORKS_SECONDS]
        if len(recent) >= _MOST_FORKS:
            log("not_taken_over", kernel=kernel_id, reason=f"{len(recent)} relays ended within {_FORKS_SECONDS:g} s")
            return
        self._forks[kernel_id] = [*recent, now]
        remove_folder(folder / "spill")  # earlier versions of relays had it there
        self._fork(own, None, is_new=False)

    def _end_unreachable(self, folder: Path) -> None:
        """End the kernel of a relay that left no record: no gateway could find it, or end it."""
        if self._is_starting(folder.name):
            return
        for pid in kernels_of(folder) - set(self._children):
            log("unreachable", kernel=folder.name, pid=pid, reason="its relay was killed and left no record")
            with contextlib.suppress(OSError), acting_as(folder.stat().st_uid):
                os.killpg(pid, signal.SIGKILL)


def _why_not(error: BaseException, runtime: RuntimeDir) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the runtime folder {runtime.path} is full; make room in it, or give it a larger file system"
    return f"{type(error).__name__}: {error}"


def _has_answering_kernel(record: RelayRecord) -> bool:
    """Tell whether a kernel answers. One in a container is no child of the host: its socket tells."""
    if record.kernel is not None:
        return False
    return any(map(is_listened_at, (record.kernel_folder / "s-1", record.folder / "b-1")))


def _is_long_over(record: RelayRecord) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - (record.folder / "relay.json").stat().st_mtime > _KEEP_SECONDS
    return False


def _has_lost_owner(record: RelayRecord) -> bool:
    """Tell whether the process that owned the kernel has ended: no gateway asks for this kernel."""
    with contextlib.suppress(OSError, UnreadableRecordError, Refusal):
        request = read_request(read_relay_fields(record.folder).get("request"))
        return request.owner_pid is not None and not is_process(request.owner_pid, request.owner_start_time_ticks or 0)
    return False


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}
