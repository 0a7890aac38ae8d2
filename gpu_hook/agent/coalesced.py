"""A call that is made once for all that want it in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Coalesced:
    """Calls ``call`` at the end of the turn in which ``soon`` was called."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._handle: asyncio.Handle | None = None
        self._is_closed = False

    def soon(self) -> None:
        """Call it at the end of this turn, once."""
        if self._handle is None and not self._is_closed:
            self._handle = asyncio.get_running_loop().call_soon(self._run)

    def close(self) -> None:
        """Call it no more. Idempotent."""
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        self._handle = None
        self._call()
