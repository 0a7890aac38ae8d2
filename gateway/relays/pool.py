"""The links to the relays of this server's kernels, from a kernel's start or recovery to its end.

Each kernel with a relay has one link, which all users' pages share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from jupyter_aliquot.gateway.replay.store import CellOutputs
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.errors import RelayUnavailableError
from jupyter_aliquot.provisioner.relay.client.control import ensure_relay_host, read_relay_record
from jupyter_aliquot.provisioner.relay.client.link import LinkListener, RelayLink
from jupyter_aliquot.provisioner.relay.wire.files import UnreadableRecordError

from .activity import Activity
from .link import KernelLink

Changed = Callable[[str, KernelLink], None]


class RelayLinks:
    """The links of all kernels. Made by the extension, for the kernel manager."""

    def __init__(
        self,
        log: logging.Logger,
        outputs: CellOutputs | None = None,
        refused: Callable[[str, int], None] = lambda kernel_id, count: None,
    ) -> None:
        """Make an empty pool.

        ``outputs``: where the outputs of cells are kept; None: nowhere.

        ``refused`` is called with a kernel's id and the number of messages that the relay refused,
        because the kernel does not read.
        """
        self._refused = refused
        self._log = log
        self._outputs = outputs
        self._links: dict[str, KernelLink] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, kernel_id: str) -> KernelLink | None:
        """Return a kernel's link; None without a relay."""
        return self._links.get(kernel_id)

    def open(self, kernel_id: str, relay: Path, changed: Changed) -> KernelLink:
        """Return the link to the relay in this folder, made once.

        ``changed`` is called after a change of activity or state.
        """
        link = self._links.get(kernel_id)
        if link is None:
            cells = None if self._outputs is None else self._outputs.open(kernel_id)
            link = self._links[kernel_id] = KernelLink(
                lambda listener: connect(relay, listener),
                lambda link: changed(kernel_id, link),
                self._log,
                kernel_id,
                cells,
                refused=lambda count: self._refused(kernel_id, count),
            )
            link.start()
        return link

    def close(self, kernel_id: str) -> None:
        """Close a kernel's link and outputs at its end. Idempotent."""
        link = self._links.pop(kernel_id, None)
        if self._outputs is not None:
            self._outputs.close(kernel_id)
        if link is not None:
            closing = asyncio.ensure_future(link.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def stop(self) -> None:
        """Close all links at the server's end; the relays go on."""
        for kernel_id in list(self._links):
            self.close(kernel_id)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def activity(self, kernel_id: str) -> Activity | None:
        """Return the kernel's activity; None without a relay."""
        link = self._links.get(kernel_id)
        return None if link is None else link.activity


async def connect(folder: Path, listener: LinkListener) -> RelayLink:
    """Return a link to the relay that is in this folder now. Raises RelayError."""
    try:
        record = read_relay_record(folder)
    except (FileNotFoundError, UnreadableRecordError) as error:
        raise RelayUnavailableError(f"there is no relay in {folder}: {error}") from error
    if not record.is_alive and record.has_living_kernel:
        # It was killed, perhaps with its host: a host puts another relay before the kernel.
        await ensure_relay_host(RuntimeDir(folder.parent.parent))
    return await RelayLink.connect(record, listener)
