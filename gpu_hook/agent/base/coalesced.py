"""A call that is made once for all requests in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Coalesced:
    """Makes the call ``call`` at the end of the turn in which ``soon`` was called."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._handle: asyncio.Handle | None = None
        self._is_closed = False

    def soon(self) -> None:
        """Make the call at the end of this turn, once."""
        if self._handle is None and not self._is_closed:
            self._handle = asyncio.get_running_loop().call_soon(self._run)

    @property
    def is_due(self) -> bool:
        return self._handle is not None

    def withdraw(self) -> None:
        """Drop the call that was requested so far."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        """Make no more calls. Idempotent."""
        self._is_closed = True
        self.withdraw()

    def _run(self) -> None:
        self._handle = None
        self._call()
