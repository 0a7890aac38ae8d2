"""`aliquot top`: who uses the GPUs now, live in the terminal. Reads, changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from traitlets import Bool, Float, Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.terminal.rest_client import Gateways
from jupyter_aliquot.gateway.terminal.tables import console
from jupyter_aliquot.gateway.terminal.top_source import Look, TopSource
from jupyter_aliquot.gateway.terminal.top_view import Screen, top_view

from .base import WHICH_GATEWAY, Command

_LEAST_SECONDS, _MOST_SECONDS = 0.1, 3600.0
_END_KEYS = (b"", b"q", b"Q", b"\x1b", b"\x04")  # nothing: the terminal is gone


class TopCommand(Command):
    """Asks the gateway, or the node agent where no gateway can be asked."""

    name = "aliquot top"
    description = (
        """The devices, and who has how much of their time, live: what a kernel is entitled to and what it
    used in the last second, how much longer its launches take than alone (stretch), and for how much of the time they
    waited for their turn (throttled). q or Ctrl-C ends it.

    Your own kernels; all of them for administrators, and where the node agent is asked. Where standard output is no
    terminal it prints one table, as with --once.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot top
    aliquot top --interval 0.5
    aliquot top --once
    """
    flags = {**Command.flags, "once": ({"TopCommand": {"once": True}}, "Print one table and end.")}
    aliases = {"interval": "TopCommand.interval", "runtime-dir": "TopCommand.runtime_dir"}

    once = Bool(False, help="Print one table and end.").tag(config=True)
    interval = Float(2.0, help="Seconds between two looks.").tag(config=True)
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        show_live(Gateways.of(self.runtime_dir), self.interval, once=self.once)


def show_live(gateways: Gateways, interval: float, *, once: bool = False) -> None:
    """Show who uses the GPUs until a key or a signal ends it; one table where standard output is no terminal.

    Args:
        gateways: the gateways to ask.
        interval: seconds between two looks.
        once: print one table and return.

    Raises:
        UsageError: the interval is out of range.
        CommandError: neither a gateway nor an agent answers.
    """
    if not _LEAST_SECONDS <= interval <= _MOST_SECONDS:
        raise UsageError(
            f"--interval {interval:g} is out of range; write a number from {_LEAST_SECONDS:g} to {_MOST_SECONDS:g}"
        )
    source, screen = TopSource(gateways), console()
    first = source.look()
    if first.report is None:
        raise CommandError(first.problem)
    if once or not screen.is_terminal or screen.is_dumb_terminal:
        screen.print(top_view(first, None, Screen(screen.width, is_ascii=screen.options.ascii_only)))
        return
    asyncio.run(LiveTop(source, screen, interval).run(first))


class LiveTop:
    """One run of the live view: looks from a thread, keys and signals from the loop, drawn by the loop alone."""

    def __init__(self, source: TopSource, screen: Console, interval: float) -> None:
        self._source = source
        self._screen = screen
        self._interval = interval
        self._last: Look | None = None
        self._before: Look | None = None
        self._end = asyncio.Event()
        self._changed = asyncio.Event()
        self._wanted = threading.Event()

    async def run(self, first: Look) -> None:
        """Until a key or a signal ends it; the terminal is then as it was."""
        self._take(first)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        # A daemon: a look that hangs must not keep the program.
        looking = threading.Thread(target=self._keep_looking, args=(loop,), daemon=True, name="aliquot-top")
        with _keys(loop, self._pressed), Live(console=self._screen, screen=True, auto_refresh=False) as live:
            looking.start()
            while not self._end.is_set():
                self._changed.clear()
                self._draw(live)
                await self._changed.wait()

    def _keep_looking(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            self._wanted.wait(self._interval)
            self._wanted.clear()
            look = self._source.look()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._take, look)

    def _take(self, look: Look) -> None:
        """A look that found nobody leaves what was shown, and says why it is old."""
        if look.report is not None:
            self._before, self._last = self._last, look
        elif self._last is not None:
            age = f"{look.at - self._last.at:.0f} s"
            self._last = replace(self._last, problem=f"trying again; this is {age} old: {look.problem}")
        self._changed.set()

    def _draw(self, live: Live) -> None:
        assert self._last is not None  # the first look had a report
        size = self._screen.size
        room = Screen(size.width, size.height, self._screen.options.ascii_only)
        footer = f"{time.strftime('%H:%M:%S')} · every {self._interval:g} s · q ends, any other key looks now"
        live.update(top_view(self._last, self._before, room, footer), refresh=True)

    def _pressed(self, keys: bytes) -> None:
        if keys in _END_KEYS:
            self._stop()
        self._wanted.set()

    def _stop(self) -> None:
        self._end.set()
        self._changed.set()


@contextlib.contextmanager
def _keys(loop: asyncio.AbstractEventLoop, pressed: Callable[[bytes], None]) -> Iterator[None]:
    """Keys as they are pressed, those of one escape sequence together; none where standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, lambda: pressed(_read(descriptor)))
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 64)
    except OSError:
        return b""
