"""What tests start and end: processes and containers that are ended also when their start, or their test, fails."""

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
    """A context."""

    @property
    def log(self) -> str:
        """What is shown of it when its test fails."""
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
    """A process that lives and does nothing, as one that is swapped or hostile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
