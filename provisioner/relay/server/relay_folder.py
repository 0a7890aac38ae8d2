"""Keep the names in a relay's folder by which clients find it: record, connection file, sockets.

A look costs one stat: the folder's time changes when a name comes or goes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_aliquot.provisioner.relay.wire.files import (
    UnreadableRecordError,
    has_links,
    keep_links,
    read_relay_record,
    take_in_advance,
    write_whole,
)
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.rmtree import empty_folder, remove_folder

from .client_sockets import ClientSockets
from .link_server import LinkServer
from .own_record import OwnRecord
from .sidecar_link import KernelSide

_CLOCK_STEP_NS = 100_000_000


class UnreachableError(Exception):
    """Clients cannot find the relay, and it cannot change that. The message says why."""


class RelayFolder:
    """The folder of one relay, made after the fork. ``links`` is set before the first `look`."""

    def __init__(self, own: OwnRecord, clients: ClientSockets, sockets: KernelSide) -> None:
        self.path: Path = own.folder
        self._own = own
        self._clients = clients
        self._kernel_sockets = sockets
        self._inode = os.stat(own.folder).st_ino
        self._seen_at = -1  # the folder's time, when all was well
        self._is_written = True
        self._has_links = False
        self.links: LinkServer | None = None

    def prepare(self) -> None:
        """Write what the first kernel needs, and take room for later. Raises OSError."""
        self.write_connection_file()
        if self._own.request.account:  # the gateway, which is another account, makes none here
            keep_links(self.path)
        take_in_advance(self.path / "ended.json")

    def write_record(self) -> None:
        """Write relay.json; if the disk does not take it, `look` tries again."""
        try:
            self._own.write()
            self._is_written = True
        except OSError as error:
            self._is_written = False
            log("record_not_written", kernel=self._own.kernel_id, reason=error)

    def note_join(self) -> None:
        """Note that the kernel has bound its sockets, so that a later relay does not wait for them."""
        if self._own.kernel is not None and not self._own.has_joined:
            self._own.has_joined = True
            self.write_record()

    def note_end(self, reason: str) -> None:
        """Write why the kernel is to end, before it does.

        The relay host, by then its parent, reports how.
        """
        log(reason, kernel=self._own.kernel_id, reason="the names of its sockets were removed")
        self._own.reason = reason
        self.write_record()

    def write_connection_file(self) -> None:
        """Write the connection file out of the kernel's reach, and put it in place.

        Raises OSError.
        """
        made, place = self.path / "connection.json", self.path / "k" / "connection.json"
        write_whole(made, self._own.kernel_connection(), 0o644)
        remove_folder(place)  # if the name is a folder
        os.replace(made, place)

    def expect_another(self) -> None:
        """Prepare the folder for the next kernel, whatever the last one did to it."""
        empty_folder(self.path / "k")
        try:
            self.write_connection_file()
        except OSError as error:
            log("folder_not_ready", kernel=self._own.kernel_id, reason=error)

    def look(self) -> None:
        """Make missing names again. Raises UnreachableError if that cannot help."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise UnreachableError(f"{self.path}: {error.strerror}") from error
        if found.st_ino != self._inode:
            raise UnreachableError(f"{self.path} is another folder now")
        changed_at = found.st_mtime_ns
        if self._is_written and not self._kernel_sockets.lacks_spares and changed_at == self._seen_at:
            return
        self._check_record()
        steps = (self._make_link_socket, self._clients.bind_missing, self._make_links, self._kernel_sockets.make_spares)
        is_well = all([self._try(step) for step in steps])
        # Changes within one step of the file system's clock have the same time.
        if self._is_written and is_well and time.time_ns() - changed_at > _CLOCK_STEP_NS:
            self._seen_at = changed_at

    def _check_record(self) -> None:
        """Check relay.json. Raises UnreachableError if the folder is another relay's."""
        try:
            found = read_relay_record(self.path)
            if found.pid != os.getpid() and found.is_alive:
                raise UnreachableError(f"the relay with process {found.pid} has its folder")
            is_ours = found.pid == os.getpid()
        except (OSError, UnreadableRecordError):
            is_ours = False
        if not is_ours or not self._is_written:
            log("record_written_again", kernel=self._own.kernel_id)
            self.write_record()

    def _make_link_socket(self) -> None:
        if self.links is not None:
            self.links.listen_where_missing(self.path / "link.sock")

    def _make_links(self) -> None:
        """Make links to the sockets again for clients of a kernel manager, if there were some."""
        self._has_links = self._has_links or has_links(self.path)
        if self._has_links:
            keep_links(self.path)

    def _try(self, step: Callable[[], object]) -> bool:
        with contextlib.suppress(OSError):
            step()
            return True
        return False
