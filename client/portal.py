"""An event loop in a thread, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from .errors import ClientError

_Result = TypeVar("_Result")


class Portal:
    """Runs coroutines in a thread of its own, and hands their results to the caller's thread."""

    def __init__(self) -> None:
        """Start the thread. It ends with `close`, or with the program."""
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="aliquot-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Return the coroutine's result. An interrupt of the caller cancels it.

        Raises ClientError on a closed portal, and what the coroutine raises.
        """
        if self._is_closed or not self._thread.is_alive():
            coroutine.close()
            raise ClientError("This client is closed, or its process was forked. Make another Client")
        future: Future[_Result] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise ClientError("This client was closed during a request. Make another Client") from error
        finally:
            future.cancel()

    def iterate(self, items: AsyncGenerator[_Result, None]) -> Iterator[_Result]:
        """Yield the items; leaving the iterator closes their generator."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if not self._is_closed:
                self.run(items.aclose())

    def close(self) -> None:
        """Cancel all that runs, and end the thread. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


async def _next(items: AsyncGenerator[_Result, None]) -> _Result:
    return await items.__anext__()
