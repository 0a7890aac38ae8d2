"""Processes and containers that tests start.

They are ended also when their start, or their test, fails.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import TypeVar

_Self = TypeVar("_Self", bound="Started")


class Started:
    """A context whose start may fail, and which is then stopped as after its end."""

    @property
    def log(self) -> str:
        """Return the log that is shown if the test fails."""
        return ""

    def _start(self) -> None:
        raise NotImplementedError  # by each kind

    def _stop(self) -> None:
        raise NotImplementedError  # by each kind

    def __enter__(self: _Self) -> _Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.log:
            print(self.log, file=sys.stderr)
        self._stop()


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process that stays alive, as a swapped or hostile one, until the context's end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
