"""A relay that a host forked, and its word to the host: "ready" and its record, or why it did not start.

A relay of a host of root runs as its user, who can kill it in the middle of its word, and can say
anything in its place.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.peer import Peer

READY = b"ready"
_LONGEST_WORD = 16 << 20
_PIECE = 1 << 16


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

    @property
    def has_begun(self) -> bool:
        """Tell whether the relay is ready."""
        return self.said.startswith(READY)

    def hear(self, *, has_ended: bool) -> bool:
        """Read a piece of its word; return whether that was the last one."""
        assert self.ready is not None
        try:
            said = os.read(self.ready, _PIECE)
        except BlockingIOError:
            said = b""
            if not has_ended:
                return False
        self.said += said
        return not said or len(self.said) > _LONGEST_WORD

    def answer(self, asker: Peer) -> None:
        """Answer the peer that requested it. A word that is none counts as that of no relay."""
        if self.has_begun:
            try:
                asker.say({"op": "started", "record": _record(self.said[len(READY) :])})
                asker.end_after_sending()
                return
            except (ValueError, RecursionError):
                self.said = b"the record that it sent cannot be read"
        asker.refuse("internal", f"the relay did not start: {self.said.decode(errors='replace') or 'it ended'}")


def _record(said: bytes) -> dict[str, Any]:
    """Return a relay's record. Raises ValueError and RecursionError."""
    found = json.loads(said)
    if not isinstance(found, dict):
        raise ValueError(f"a record is an object, not {type(found).__name__}")
    return found


def why_not(error: BaseException, runtime: Path) -> str:
    """Return why a relay did not start, for the host."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the runtime folder {runtime} is full; make room in it, or give it a larger file system"
    return f"{type(error).__name__}: {error}"
