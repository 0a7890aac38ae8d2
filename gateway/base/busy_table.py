"""The wait for a table of sessions that another process has locked, as a backup does.

The wait is bounded and asynchronous: the event loop serves others meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tornado.web import HTTPError

# SQLite itself waits on the event loop, so that it may wait only for a short statement of another
# process.
BLOCKING_MILLISECONDS = 20
_LOOK_SECONDS = 0.05
_MOST_SECONDS = 5.0

Asked = ParamSpec("Asked")
Result = TypeVar("Result")


class TableBusyError(HTTPError):
    """The table stays locked. The session of ``kernel_id`` could not be written."""

    def __init__(self, reason: object, kernel_id: str | None = None) -> None:
        super().__init__(
            503,
            "Requested this server's table of sessions, but another program has its file locked (%s), for example a "
            "backup. Try again when that program is done",
            reason,
        )
        self.kernel_id = kernel_id


def patiently(method: Callable[Asked, Coroutine[Any, Any, Result]]) -> Callable[Asked, Coroutine[Any, Any, Result]]:
    """Wrap a coroutine method to run again while the table is busy, for 5 seconds at most.

    The method must be one that does no harm when it runs twice. Raises TableBusyError.
    """

    @wraps(method)
    async def until_free(*args: Asked.args, **named: Asked.kwargs) -> Result:
        deadline = time.monotonic() + _MOST_SECONDS
        while True:
            try:
                return await method(*args, **named)
            except TableBusyError:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    return until_free
