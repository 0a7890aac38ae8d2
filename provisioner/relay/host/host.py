"""The relay host: forks a relay for each kernel, reaps processes, and replaces killed relays.

It has one thread and no ZMQ context, because forks must begin clean. Its end ends no relay; a new
host finds them by folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.paths import KERNEL_ID, RuntimeDir
from jupyter_aliquot.provisioner.accounts import Account
from jupyter_aliquot.provisioner.relay.server.own_record import OwnRecord, read_request
from jupyter_aliquot.provisioner.relay.store.spill_room import sweep
from jupyter_aliquot.provisioner.relay.wire.files import RelayRequest
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.messages import Signer
from jupyter_aliquot.provisioner.relay.wire.peer import Peer, Record, Refusal, accept
from jupyter_aliquot.provisioner.relay.wire.protocol import VERSIONS, ProtocolError
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder

from .bootstrap import prepare_folder, run
from .by_force import remove_by_force, signal_kernel
from .child import READY, Child, why_not
from .kernel_groups import KernelGroups
from .looks import (
    ALIVE,
    EMPTY,
    ORPHANED,
    OVERFULL,
    REMOVED,
    SET_ASIDE,
    as_json,
    lives,
    look_at,
    look_at_killed,
    note_ends,
    relays_that_live,
)
from .own_kernelspecs import folders_in, list_kernelspecs
from .owner_work import InlineWork, OwnerWork, begin_child, fork_with_pipe
from .room import is_tight
from .tenants import Tenants

_SCAN_SECONDS = 5.0
_SWEEP_SECONDS = 60.0  # of other accounts' output
_MOST_CODES = 1000  # of inherited processes of an account, between two looks
_MOST_FORKS = 3  # for one kernel, within
_FORKS_SECONDS = 60.0


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
        self._beginning: set[str] = set()  # kernels whose folders are looked at before their relay begins
        self._looked_at: set[int] = set()  # accounts whose relays are being looked at
        self._alive: dict[int, list[str]] = {}  # by account: relays that other hosts forked, at the last look
        self._groups = None if tenants is None else KernelGroups()
        self._codes: dict[int, dict[int, int]] = {}  # by account: how inherited processes ended
        self._next_sweep = 0.0
        self._forks: dict[str, list[float]] = {}
        self._idle_since = time.monotonic()
        self._inode = os.stat(runtime.relay_socket).st_ino
        self._is_ending = False
        self._wake, self._wake_writer = socket.socketpair()
        self._take_signals()
        self._work = InlineWork() if tenants is None else OwnerWork(self._selector)
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)

    def _take_signals(self) -> None:
        for end in (self._wake, self._wake_writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def serve(self) -> None:
        """Serve until a signal, or until the idle time is over."""
        next_scan = 0.0
        while not self._is_ending:
            now = time.monotonic()
            if now >= next_scan:
                next_scan = now + _SCAN_SECONDS
                self._guarded(self._scan)
                self._is_ending = self._is_ending or self.is_cut_off() or self._has_lost_parent()
            self._guarded(self._work.kill_late, now)
            self._is_ending = self._is_ending or self._is_idle_too_long(now)
            patience = min(next_scan - now, self._idle_seconds or _SCAN_SECONDS)
            for key, _ in self._selector.select(max(0.05, patience) if not self._is_ending else 0):
                self._guarded(key.data, key.fileobj)

    def close(self) -> None:
        """Close the host's sockets; relays go on."""
        signal.set_wakeup_fd(-1)
        for peer in tuple(self._peers):
            self._drop(peer)
        self._work.close()
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
        if self._children or self._peers or self._living():
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
                    _kill(pid)  # no peer waits for it: its folder goes when it is reaped

    def _answer(self, peer: Peer, record: Record) -> None:
        if record.op == "start":
            self._start(peer, record.header.get("request"))
        elif record.op == "status":
            peer.say({"op": "status", "pid": os.getpid(), "relays": self._living()})
            peer.end_after_sending()
        elif record.op == "signal":
            self._signal(peer, self._folder_of(record), record.header.get("number"))
        elif record.op == "remove":
            self._remove(peer, self._folder_of(record))
        elif record.op == "kernelspecs":
            self._list_kernelspecs(peer, record)
        elif record.op == "limit" and self._groups is not None:
            self._groups.change(self._folder_of(record), record.header)
            self._say_last(peer, {"op": "limited"})
        else:
            ops = "start, status, signal, remove, kernelspecs or limit"
            raise Refusal("bad_request", f"Op {record.op[:40]!r} is not known. Use {ops}.")

    def _list_kernelspecs(self, peer: Peer, record: Record) -> None:
        """Tell the gateway which kernelspecs are in an account's home, as the account tells it."""
        name, known = str(record.header.get("account", "")), str(record.header.get("known", ""))
        if self._tenants is None or not name:
            raise Refusal("account", "Kernelspecs are listed by a host of root alone, for an account with a name")
        account = self._tenants.requested(name)
        home, folders = Path(account.home), folders_in(record.header.get("folders"), account.name)

        def listed(found: Any) -> None:
            if isinstance(found, dict):
                self._say_last(peer, {**found, "op": "kernelspecs"})
            elif peer in self._peers:
                peer.refuse("internal", f"the kernelspecs in {home} could not be listed as {account.name!r}")
                self._flush(peer)

        self._work.do(account.uid, lambda: partial(list_kernelspecs, home, known, folders), listed)

    def _folder_of(self, record: Record) -> Path:
        kernel_id = record.header.get("kernel_id")
        if not isinstance(kernel_id, str) or not KERNEL_ID.fullmatch(kernel_id):
            raise Refusal("bad_request", f"{kernel_id!r:.60} is no id of a kernel")
        return self._runtime.relay(kernel_id)

    def _living(self) -> list[str]:
        """Return the kernels whose relays run, those of other hosts as they were at the last look."""
        if self._tenants is None:
            return relays_that_live(self._runtime, self._names())
        ours = {child.kernel_id for child in self._children.values() if child.has_begun}
        others = {name for names in self._alive.values() for name in names}
        return sorted(ours | (others & set(self._names())))

    def _names(self) -> list[str]:
        """Return the names of all folders of relays."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self._runtime.relays))
        return []

    def _folders(self) -> dict[int, list[Path]]:
        """Return the folders of relays by the accounts that look into them."""
        found: dict[int, list[Path]] = {}
        for name in self._names():
            with contextlib.suppress(OSError):
                folder = self._runtime.relay(name)
                found.setdefault(self._account_of(folder), []).append(folder)
        return found

    def _account_of(self, folder: Path) -> int:
        """Return the account that looks into a folder. Raises OSError."""
        return os.geteuid() if self._tenants is None else folder.lstat().st_uid

    def _do_in(self, folder: Path, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Work in a folder as its account; *then* gets None at once if there is no such folder."""
        try:
            uid = self._account_of(folder)
        except OSError:
            then(None)
            return
        self._work.do(uid, lambda: work, then)

    def _say_last(self, peer: Peer, header: Mapping[str, Any]) -> None:
        """Answer a peer that may have gone meanwhile."""
        if peer in self._peers:
            peer.say(header)
            peer.end_after_sending()
            self._flush(peer)

    def _signal(self, peer: Peer, folder: Path, number: object) -> None:
        if not isinstance(number, int) or number not in set(signal.Signals):
            raise Refusal("bad_request", f"{number!r:.20} is no signal")
        self._do_in(folder, lambda: signal_kernel(folder, number), lambda _: self._say_last(peer, {"op": "signalled"}))

    def _remove(self, peer: Peer, folder: Path) -> None:
        def removed(ended: Any) -> None:
            self._set_aside(folder)
            self._end_relay(folder.name)  # whatever its record says
            self._say_last(peer, {"op": "removed", "ended": ended if isinstance(ended, dict) else None})

        self._do_in(folder, lambda: as_json(remove_by_force(folder)), removed)

    def _end_relay(self, kernel_id: str) -> None:
        for pid, child in self._children.items():
            if child.kernel_id == kernel_id:
                _kill(pid)

    def _set_aside(self, folder: Path) -> None:
        """Have what is left of a folder removed some time: it is no kernel's from now on."""
        if self._tenants is None:
            remove_folder(folder)
            return
        self._remove_emptied(folder)
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder, folder.with_name(f"{SET_ASIDE}{secrets.token_hex(8)}"))

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
        folder, kernel_id = self._runtime.relay(request.kernel_id), request.kernel_id
        if self._is_starting(kernel_id) or kernel_id in self._beginning:
            raise Refusal("exists", _exists(kernel_id))
        self._runtime.relays.mkdir(mode=0o700, exist_ok=True)
        if not os.path.lexists(folder):
            self._begin(request, account, peer)
            return
        self._beginning.add(kernel_id)

        def looked(is_alive: Any) -> None:
            self._beginning.discard(kernel_id)
            if is_alive is not False:  # or it could not be looked at
                raise Refusal("exists", _exists(kernel_id))
            self._set_aside(folder)
            if peer in self._peers:
                self._begin(request, account, peer)

        self._do_in(folder, lambda: lives(folder), lambda found: self._answered(peer, looked, found))

    def _answered(self, peer: Peer, then: Callable[[Any], None], found: Any) -> None:
        """Go on with a question of a peer, and refuse it as `_ready` does."""
        try:
            then(found)
        except Refusal as refusal:
            if peer in self._peers:
                peer.refuse(refusal.code, str(refusal))
                self._flush(peer)

    def _begin(self, request: RelayRequest, account: Account | None, peer: Peer) -> None:
        folder = self._runtime.relay(request.kernel_id)
        if self._tenants is None or account is None:
            prepare_folder(folder)
        else:
            self._tenants.prepare_folder(folder, account)
        self._fork(folder, request, peer)

    def _is_starting(self, kernel_id: str) -> bool:
        """Tell whether a relay is about to begin.

        A stopped one has no record, though it may not be reaped.
        """
        return any(child.kernel_id == kernel_id and child.ready is not None for child in self._children.values())

    def _fork(self, folder: Path, request: RelayRequest | None, asker: Peer | None = None) -> None:
        """Fork a relay: a kernel's first one, or without a *request* one that follows a killed one."""
        try:
            pid, end = fork_with_pipe()
        except OSError as error:
            reason = f"the machine starts no further process for the relay host: {error.strerror}. Try again later"
            raise Refusal("internal", reason) from error
        if pid == 0:
            self._become_relay(folder, request, end)
        self._children[pid] = child = Child(folder.name, end, asker, is_new=request is not None)
        self._selector.register(end, selectors.EVENT_READ, lambda _: self._heard(child))
        log("forked", kernel=folder.name, pid=pid, new=request is not None)

    def _become_relay(self, folder: Path, request: RelayRequest | None, ready: int) -> None:
        """Become a relay, in the child. Never returns."""
        code = 1
        try:
            begin_child({ready})
            os.setsid()
            spill_dir = self._spill_dir
            if self._tenants is not None:
                account = self._tenants.owner_of(folder)
                if self._groups is not None:
                    self._groups.enter(account.uid, folder.name, request)
                spill_dir = self._tenants.spill_dir(spill_dir, account)
                self._tenants.become(account)
            if request is None:
                remove_folder(folder / "spill")  # earlier versions of relays had it there
            own = OwnRecord.found(folder) if request is None else OwnRecord(folder, request)
            run(self._runtime, spill_dir, own, ready, self._admitted)
            code = 0
        except BaseException as error:
            traceback.print_exc()
            with contextlib.suppress(OSError):
                os.write(ready, why_not(error, self._runtime.path).encode()[:1000])
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _heard(self, child: Child, *, has_ended: bool = False) -> None:
        """Hear of a relay, and answer the peer that requested it after its last word."""
        if child.ready is None or not child.hear(has_ended=has_ended):
            return
        self._forget_pipe(child)
        asker, child.asker = child.asker, None
        if asker is not None:
            child.answer(asker)
            self._flush(asker)
            if not child.has_begun:
                self._end_relay(child.kernel_id)  # its requester was told that it did not start
        child.said = child.said[: len(READY)]

    def _forget_pipe(self, child: Child) -> None:
        if child.ready is not None:
            self._selector.unregister(child.ready)
            os.close(child.ready)
            child.ready = None

    # ---- relays end

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            _, status = os.waitpid(found.si_pid, 0)
            self._guarded(self._ended, found.si_pid, os.waitstatus_to_exitcode(status), found.si_uid)

    def _ended(self, pid: int, code: int, uid: int) -> None:
        child = self._children.pop(pid, None)  # first of all: the number can be another process's from now on
        if child is None:
            if not self._work.has_reaped(pid):
                self._inherited(pid, code, uid)
            return
        while child.ready is not None:
            self._heard(child, has_ended=True)
        log("ended", kernel=child.kernel_id, pid=pid, code=code)
        folder = self._runtime.relay(child.kernel_id)
        if not child.has_begun and child.is_new:
            self._set_aside(folder)
        elif code != 0:
            self._do_in(
                folder, self._look_at_killed(folder), lambda found: self._decide({child.kernel_id: found}, [folder])
            )
        elif self._tenants is not None:
            self._remove_emptied(folder)

    def _look_at_killed(self, folder: Path) -> Callable[[], str]:
        host, spared = os.getpid(), frozenset(self._children)
        return lambda: look_at_killed(folder, host, spared)

    @staticmethod
    def _remove_emptied(folder: Path) -> None:
        """Remove the folder of a relay that ended and emptied it: the folder around it is root's."""
        with contextlib.suppress(OSError):
            (folder / "k").rmdir()
        with contextlib.suppress(OSError):
            folder.rmdir()

    def _inherited(self, pid: int, code: int, uid: int) -> None:
        """Handle the end of an inherited process: a killed relay's kernel, or what a kernel left.

        All that end while an account's folders are looked at are handled by one look.
        """
        if uid in self._codes:
            codes = self._codes[uid]
            codes[pid] = code
            if len(codes) > _MOST_CODES:
                del codes[next(iter(codes))]
            return
        self._codes[uid] = {pid: code}

        def make() -> Callable[[], None]:
            codes, folders = self._codes.pop(uid), self._folders()
            theirs = [folder for each in folders.values() for folder in each] if self._tenants is None else []
            theirs += folders.get(uid, []) if self._tenants is not None else []
            return lambda: note_ends(theirs, codes, time.time())

        self._work.do(uid, make, lambda _: None)

    def _scan(self) -> None:
        """Look for killed relays of other hosts, and remove old folders."""
        self._sweep()
        found = self._folders()
        if self._groups is not None:
            self._groups.remove_others({folder.name for folders in found.values() for folder in folders})
        self._alive = {uid: names for uid, names in self._alive.items() if uid in found}
        tight = self._tenants is not None and is_tight(self._runtime.path)
        for uid, folders in found.items():
            is_roots = self._tenants is not None and uid == 0
            if uid not in self._looked_at and not is_roots and (tight or self._others(folders)):
                self._looked_at.add(uid)
                self._work.do(uid, partial(self._look, folders, tight), partial(self._looked, uid, folders))

    def _others(self, folders: Sequence[Path]) -> list[Path]:
        """Return the folders whose relays are not this host's children."""
        ours = {child.kernel_id for child in self._children.values()} | self._beginning
        return [folder for folder in folders if folder.name not in ours]

    def _look(self, folders: Sequence[Path], tight: bool) -> Callable[[], Any]:
        """Return a look at the relays of an account as they are now."""
        ours = {folder.name for folder in folders} - {folder.name for folder in self._others(folders)}
        return partial(look_at, folders, ours, os.getpid(), frozenset(self._children), is_tight=tight)

    def _looked(self, uid: int, folders: Sequence[Path], found: Any) -> None:
        self._looked_at.discard(uid)
        found = found if isinstance(found, dict) else {}
        self._alive[uid] = [name for name, state in found.items() if state == ALIVE]
        self._decide(found, folders)

    def _decide(self, found: Mapping[str, Any], folders: Sequence[Path]) -> None:
        """Act on what was found in folders."""
        others = self._others(folders)
        for folder in folders:
            state = found.get(folder.name)
            if state == OVERFULL:
                self._end_relay(folder.name)  # whatever its record says
            if folder not in others:
                continue  # another relay began meanwhile
            if state == ORPHANED:
                self._guarded(self._take_over, folder)
            elif state in (EMPTY, REMOVED) and self._tenants is not None:
                self._remove_emptied(folder)

    @staticmethod
    def _guarded(look: Callable[..., object], *arguments: Any) -> None:
        """Call *look*: what one kernel's account left in its folder must not end the host of all."""
        try:
            look(*arguments)
        except Exception:
            traceback.print_exc()

    def _sweep(self) -> None:
        """Remove output that killed relays left."""
        if self._tenants is None:
            sweep(self._spill_dir)
            return
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        with contextlib.suppress(OSError):
            for part in self._spill_dir.iterdir():
                if uid := part.lstat().st_uid:
                    self._work.do(uid, partial(partial, sweep, part), lambda _: None)

    def _take_over(self, folder: Path) -> None:
        """Start another relay at the sockets of one that was killed."""
        now = time.monotonic()
        recent = [at for at in self._forks.get(folder.name, []) if now - at < _FORKS_SECONDS]
        if len(recent) >= _MOST_FORKS:
            reason = f"{len(recent)} relays ended within {_FORKS_SECONDS:g} s"
            log("not_taken_over", kernel=folder.name, reason=reason)
            return
        self._forks[folder.name] = [*recent, now]
        self._fork(folder, None)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _exists(kernel_id: str) -> str:
    return f"kernel {kernel_id} has a relay already; stop that one first"
