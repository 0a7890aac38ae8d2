"""`aliquot status --watch`: its views in a terminal of its own, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jupyter_aliquot.gateway.terminal.tables import kernels_table, warnings
from jupyter_aliquot.gpu_hook.client.client import read_status

WATCH = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "status", "--watch", "--interval", "0.2"]
PATIENCE_SECONDS = 60.0
LAST_WORDS_SECONDS = 30.0
LAST_WORDS = ("\x1b[?1049l", "\x1b[?25h")
COMPUTE = {
    **{"share_entitled": 0.25, "share_used": 0.125, "own_seconds": 4.0, "stretch": None, "throttled_seconds": 3.0},
    **{"bound_milliseconds": 2.0, "pace": "paced", "reason": "production is active", "unholdable": False},
}
FREE = {**COMPUTE, "share_entitled": 0.75, "share_used": 0.8, "stretch": 1.031, "pace": "measured", "reason": ""}


def part(index: int, compute: dict[str, Any] | None) -> dict[str, Any]:
    share = {"uuid": f"GPU-{index}", "index": index, "hundredths": 25, "quota_bytes": 4 << 30, "charged_bytes": 1 << 30}
    counts = {"lent_bytes": 0, "peak_bytes": 0, "busy_seconds": 1.0, "refusals": 0}
    return {**share, **counts, "compute": compute}


def kernel(label: str, workload_class: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    names = {"kernel_id": f"id-{label}", "owner": "ada", "label": label, "workload_class": workload_class}
    size = {"hundredths": 25, "memory_limit": None, "generation": 1, "attributes": {}, "created": 0.0}
    return {**names, **size, "interception": "holds", "pids": [1], "ending": False, "devices": list(parts), **more}


def node(*kernels: dict[str, Any], count: int = 1) -> dict[str, Any]:
    control = {"controller": "weighted", "sharing": "time slices", "target_percent": 2.0, "contended": True}
    names = [{"index": index, "uuid": f"GPU-{index}", "name": "a card"} for index in range(count)]
    memory = {"memory_bytes": 16 << 30, "reserved_bytes": 0, "reserved_hundredths": 0, "used_bytes": 2 << 30}
    more = {"charged_bytes": 0, "utilization_percent": 40, "temperature_celsius": None, "power_watts": None}
    devices = [{**one, **memory, **more, "lost": False, "compute_control": control} for one in names]
    said = {"node": "n1", "driver": "nvidia", "enforcer": "hook", "connections": 1}
    return {**said, "devices": devices, "kernels": list(kernels)}


BUSY = (
    kernel("work/low.ipynb", "opportunistic", part(0, COMPUTE)),
    kernel("small.ipynb", "production", part(0, {**FREE, "share_used": 0.1})),
    kernel("serve.ipynb", "production", part(0, FREE), part(1, {**COMPUTE, "unholdable": True, "is_capped": True})),
)


def test_the_table_of_kernels_has_their_share_of_gpu_time_and_their_slowdown() -> None:
    status = read_status(node(*BUSY, count=2))
    out = StringIO()
    Console(file=out, width=200, no_color=True).print(kernels_table(status.kernels))
    text = re.sub(" +", " ", out.getvalue())
    assert "80 of 75 % / 12 of 25 % max 1.03x / – 6.00 s" in text
    assert "kernel serve.ipynb: throttled: production is active" in warnings(status)


def test_an_agent_that_reports_no_shares_leaves_their_cells_empty() -> None:
    status = read_status(node(kernel("old.ipynb", "production", part(0, None))))
    out = StringIO()
    Console(file=out, width=200, no_color=True).print(kernels_table(status.kernels))
    assert "– – – –" in re.sub(" +", " ", out.getvalue()), "share, slowdown, throttled, residency"


# ---- the program


def test_without_an_agent_it_says_what_to_start(run_aliquot) -> None:
    done = run_aliquot("status", "--watch")
    assert (done.returncode, done.stdout) == (1, "")
    assert "start one with: aliquot agent" in done.stderr


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("--interval", "0"), "Use a number from 0.1 to 3600"),
        (("--interval", "nan"), "Use a number from 0.1 to 3600"),
        (("--json",), "Requested --watch and --json"),
        (("--interval",), "needs a value"),
        (("--often",), "no option --often"),
        (("now",), "takes options only"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(run_aliquot, words: tuple[str, ...], want: str) -> None:
    done = run_aliquot("status", "--watch", *words)
    assert (done.returncode, want in done.stderr) == (2, True), done.stderr


class Terminal:
    """A program in a terminal of its own, read as it is written."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._master, self.slave = pty.openpty()
        ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", 30, 120, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        os.set_blocking(self._master, False)
        self.program = subprocess.Popen(
            command,
            env={**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
        )

    def read_until(self, word: str) -> None:
        """Read until ``word`` comes, and drop the text before it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while word not in self.text:
            assert time.monotonic() < deadline, f"no {word!r} in {self.text[-2000:]!r}"
            self._read()
        self.text = self.text.rpartition(word)[2]

    def _read(self) -> None:
        """Read what there is.

        The system reports an error both for an ended program and for a terminal with nothing to
        read.
        """
        with contextlib.suppress(OSError):
            self.text += os.read(self._master, 1 << 16).decode(errors="replace")
            return
        assert self.program.poll() is None, self.text
        time.sleep(0.02)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        """Wait for the program's end, and return its exit code.

        The terminal may pass on the last words after that.
        """
        code = self.program.wait(PATIENCE_SECONDS)
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while True:
            try:
                self.text += os.read(self._master, 1 << 16).decode(errors="replace")
            except OSError:
                if all(word in self.text for word in LAST_WORDS) or time.monotonic() > deadline:
                    return code
                time.sleep(0.02)

    def close(self) -> None:
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()
        os.close(self._master)
        os.close(self.slave)


@pytest.fixture
def a_watch(an_environment: dict[str, str]) -> Iterator[Callable[[], Terminal]]:
    opened: list[Terminal] = []

    def start() -> Terminal:
        opened.append(Terminal(WATCH, an_environment))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


@pytest.fixture
def a_held_kernel(an_agent: Any, a_runtime_folder: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(a_runtime_folder / "agent.sock"))
        asked = {"kernel_id": "k1", "owner": "ada", "hundredths": 25, "label": "work/train.ipynb"}
        more = {"memory_limit": None, "workload_class": "production"}
        connection.sendall(json.dumps({"id": 1, "op": "reserve", **asked, **more}).encode() + b"\n")
        assert json.loads(connection.makefile("rb").readline())["ok"]
        yield


def test_elsewhere_than_in_a_terminal_it_prints_view_after_view(
    an_environment: dict[str, str], a_held_kernel: None
) -> None:
    """The reader leaves after two views."""
    with subprocess.Popen(
        WATCH, env=an_environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        seen: list[str] = []
        while sum(line.startswith("train.ipynb") for line in seen) < 2:
            seen.append(watch.stdout.readline().replace("work/", ""))
            assert seen[-1], seen
        watch.send_signal(signal.SIGINT)
        said = watch.communicate(timeout=PATIENCE_SECONDS)[1]
    assert (watch.returncode, said) == (0, "")
    assert "\x1b" not in "".join(seen)
    assert [bool(re.search(r"train\.ipynb +k1 +ada +0\.25 GPU ", line)) for line in seen if "train" in line] == [
        True
    ] * 2


@pytest.mark.parametrize("how", ["q", "Ctrl-C", "SIGTERM"])
def test_it_ends_as_it_found_the_terminal(a_watch: Callable[[], Terminal], a_held_kernel: None, how: str) -> None:
    watch = a_watch()
    watch.read_until("train.ipynb")
    watch.press(b"\x1b[A ")
    watch.read_until("train.ipynb")
    if how == "SIGTERM":
        watch.program.send_signal(signal.SIGTERM)
    elif how == "Ctrl-C":
        watch.program.send_signal(signal.SIGINT)
    else:
        watch.press(b"q")
    assert watch.end() == 0
    assert [word for word in LAST_WORDS if word not in watch.text] == [], "the screen before is back, and its cursor"
    assert "Traceback" not in watch.text
    assert termios.tcgetattr(watch.slave) == watch.before


def test_it_keeps_the_last_view_and_tries_again_while_the_agent_is_silent(
    a_watch: Callable[[], Terminal], an_agent: subprocess.Popen[bytes], a_held_kernel: None
) -> None:
    watch = a_watch()
    watch.read_until("train.ipynb")
    an_agent.send_signal(signal.SIGSTOP)
    try:
        watch.read_until("trying again")
        watch.read_until("train.ipynb")
    finally:
        an_agent.send_signal(signal.SIGCONT)
    watch.read_until("every 0.2 s")
    watch.press(b"q")
    assert watch.end() == 0
