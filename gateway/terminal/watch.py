"""Draw a view again and again: in place on a terminal, one below the other elsewhere.

Reads the keys that end it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from types import FrameType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from jupyter_aliquot.provisioner.errors import AliquotError

from .tables import printable

# An empty read: the terminal is gone.
_END_KEYS = (b"", b"q", b"Q", b"\x1b", b"\x04")
_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def watch_view(view: Callable[[], RenderableType], screen: Console, interval_seconds: float) -> None:
    """Draw what *view* returns until q, Ctrl-C or a signal ends it. The terminal is then as it was.

    An error of a later view leaves the last one on the screen, and says why it is old.

    Raises:
        AliquotError: the first view failed.
    """
    drawn, since, problem = view(), time.monotonic(), ""
    is_live = screen.is_terminal and not screen.is_dumb_terminal
    live = Live(console=screen, screen=True, auto_refresh=False) if is_live else None
    with (
        _signals_as_interrupts(),
        contextlib.suppress(KeyboardInterrupt),
        _keys() as is_ended_by_key,
        live or contextlib.nullcontext(),
    ):
        while True:
            page = Group(_heading(interval_seconds, problem), drawn)
            screen.print(page) if live is None else live.update(page, refresh=True)
            sys.stdout.flush()
            if is_ended_by_key(interval_seconds):
                return
            try:
                drawn, since, problem = view(), time.monotonic(), ""
            except AliquotError as error:
                problem = f"; this is {time.monotonic() - since:.0f} s old, trying again: {error}"


def _heading(interval_seconds: float, problem: str) -> Text:
    text = f"{time.strftime('%H:%M:%S')}, every {interval_seconds:g} s; q ends it{printable(problem)}"
    return Text(text, style="red" if problem else "dim", no_wrap=not problem, overflow="ellipsis")


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Read keys without Enter.

    Yields a function that waits so many seconds for a key, and returns whether it ends.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        yield _sleep
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def is_end(seconds: float) -> bool:
        """Read all keys of one escape sequence together.

        So an arrow key is not taken for Escape.
        """
        if not select.select([descriptor], [], [], seconds)[0]:
            return False
        pressed = os.read(descriptor, 64)
        return pressed in _END_KEYS or bool({*pressed} & {*b"qQ"})  # pressed twice during one request

    try:
        tty.setcbreak(descriptor)
        yield is_end
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
