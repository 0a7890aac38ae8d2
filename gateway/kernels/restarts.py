"""The restarts of one kernel, and its end, which no start of it may overtake.

A restart ends the process and starts another: Jupyter has a future for each of the two, and none for
the whole. A kernel that is ended in between would be ended twice, and started again after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_client.ioloop.restarter import AsyncIOLoopKernelRestarter

from jupyter_aliquot.provisioner.errors import WithdrawnError


class Restarts:
    """The restarts that are under way, and whether the kernel is being ended."""

    def __init__(self) -> None:
        self.is_being_ended = False
        self._under_way: set[asyncio.Future[None]] = set()
        self._is_found_dead = False

    def found_dead(self) -> None:
        """Note that the next restart is the restarter's, which found the kernel dead."""
        self._is_found_dead = True

    @contextmanager
    def one(self, kernel_id: str) -> Iterator[bool]:
        """Count one restart from its first step to its last. Yields whether it may be done.

        Raises WithdrawnError for a kernel that is being ended. The restarter, which asks by itself, leaves such
        a kernel as it is.
        """
        is_restarters, self._is_found_dead = self._is_found_dead, False
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(over)
        try:
            if not is_restarters:
                self.refuse_if_being_ended(kernel_id)
            yield not self.is_being_ended
        except WithdrawnError:
            if not (is_restarters and self.is_being_ended):
                raise
        finally:
            self._under_way.discard(over)
            over.set_result(None)

    @contextmanager
    def none(self, *, is_meant: bool) -> Iterator[None]:
        """Have no start of the kernel begin meanwhile, unless it is ended to be restarted (not ``is_meant``).

        A kernel that could not be ended may start again.
        """
        self.is_being_ended = is_meant
        try:
            yield
        finally:
            self.is_being_ended = False

    def refuse_if_being_ended(self, kernel_id: str) -> None:
        """Raise WithdrawnError if the kernel is being ended."""
        if self.is_being_ended:
            raise WithdrawnError(
                f"Requested a start of kernel {kernel_id}, but it is being ended. Start another kernel"
            )

    def under_way(self) -> set[asyncio.Future[None]]:
        """Return a future for each restart that is under way, which is done at its end."""
        return set(self._under_way)


class CalmRestarter(AsyncIOLoopKernelRestarter):
    """Jupyter's restarter, which polls no kernel of which its relay says that it runs.

    A thousand polls in three seconds take a twentieth of the loop's time, and leave work for the collector.
    """

    _timer: asyncio.TimerHandle | None = None
    _polling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Called by the kernel once it runs."""
        if self._timer is None:
            self._wait()

    def stop(self) -> None:
        """Called by the kernel before its end, and by a poll that gives up, which goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.time_to_dead, self._look)

    def _look(self) -> None:
        # A poll ends the time in which a kernel that dies is restarted at other ports, or once more.
        if self.kernel_manager.runs_by_its_relay() and not self._initial_startup and not self._restarting:
            self._wait()
        else:
            self._polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        timer = self._timer
        try:
            await self.poll()
        except Exception:
            self.log.exception("kernel=%s restarter=failed; it goes on", self.kernel_manager.kernel_id)
        if self._timer is timer and timer is not None:  # it was not stopped meanwhile
            self._wait()


def fail(ready: asyncio.Future[None], error: BaseException) -> None:
    """Fail the future of a start.

    A start that was cancelled has failed, too, for those who wait for it.
    """
    if ready.done():
        return
    if not isinstance(error, Exception):
        error = WithdrawnError("the start of the kernel was cancelled")
    ready.set_exception(error)
    # Read it, so that asyncio logs no error: the kernel's reason has the message.
    ready.exception()
