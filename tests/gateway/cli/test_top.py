"""`aliquot top`: what is shown of whom, in a terminal of its own, and what happens to it when nobody answers."""

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
from ports import free_port
from rich.console import Console

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.status.report import Scene, status_report
from jupyter_aliquot.gateway.terminal.rest_client import Gateways
from jupyter_aliquot.gateway.terminal.tables import kernels_table, warnings
from jupyter_aliquot.gateway.terminal.top_source import Look, TopSource
from jupyter_aliquot.gateway.terminal.top_view import Screen, rows_of, share_bar, top_view
from jupyter_aliquot.gpu_hook.client.client import read_status
from jupyter_aliquot.gpu_hook.paths import RuntimeDir

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


def a_look(at: float, *kernels: dict[str, Any], count: int = 1, problem: str = "") -> Look:
    scene = Scene("", node=NodeView(read_status(node(*kernels, count=count))))
    return Look(at, status_report(scene, User("", "admin")), "node agent", problem)


def drawn(look: Look, screen: Screen, before: Look | None = None) -> list[str]:
    out = StringIO()
    Console(file=out, width=screen.width, no_color=True, highlight=False, markup=False).print(
        top_view(look, before, screen)
    )
    return out.getvalue().splitlines()


BUSY = (
    kernel("work/low.ipynb", "opportunistic", part(0, COMPUTE)),
    kernel("small.ipynb", "production", part(0, {**FREE, "share_used": 0.1})),
    kernel("serve.ipynb", "production", part(0, FREE), part(1, {**COMPUTE, "unholdable": True, "is_capped": True})),
)


def test_rows_go_by_device_then_class_then_use() -> None:
    rows = rows_of(a_look(0, *BUSY, count=2).report or {}, None, 0)
    want = [("gpu0", "serve.ipynb"), ("gpu0", "small.ipynb"), ("gpu0", "low.ipynb"), ("gpu1", "serve.ipynb")]
    assert [(row.device, row.kernel) for row in rows] == want
    assert [row.state for row in rows] == ["resident", "resident", "paced", "held out"]
    assert [row.is_capped for row in rows] == [False, False, False, True]


def test_a_row_tells_what_is_entitled_used_stretched_and_throttled() -> None:
    lines = drawn(a_look(0, *BUSY), Screen(140))
    [low] = [line for line in lines if line.startswith("low.ipynb")]
    [serve] = [line for line in lines if line.startswith("serve.ipynb") and "gpu0" in line]
    want = "low.ipynb ada 0.25 GPU low paced gpu0 25 % 12 % ██·│········ – 3.0 s 1.0 GiB of 4.0 GiB"
    assert " ".join(low.split()) == want
    assert "gpu0 75 % 80 % █████████│·· 1.03x 3.0 s" in " ".join(serve.split())
    assert any("weighted, time slices, production within 2 %" in line for line in lines)


def test_throttled_time_is_told_as_a_part_of_the_time_between_two_looks() -> None:
    later = kernel("low", "opportunistic", part(0, {**COMPUTE, "throttled_seconds": 3.5}))
    rows = rows_of(a_look(12, later).report or {}, a_look(10, kernel("low", "", part(0, COMPUTE))).report, 2.0)
    assert rows[0].throttled == "25 %"
    restarted = kernel("low", "opportunistic", part(0, {**COMPUTE, "throttled_seconds": 0.0}))
    rows = rows_of(a_look(12, restarted).report or {}, a_look(10, later).report, 2.0)
    assert rows[0].throttled == "0 %", "an agent that counts anew makes nothing negative"


@pytest.mark.parametrize(
    ("used", "entitled", "want"),
    [(None, None, "............"), (0.0, 0.5, "......|....."), (2.0, None, "############"), (1.0, 1.0, "###########|")],
)
def test_a_bar_never_leaves_its_cells(used: float | None, entitled: float | None, want: str) -> None:
    assert share_bar(used, entitled, is_ascii=True) == want


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 140])
@pytest.mark.parametrize("height", [6, 12, 40])
def test_it_fits_the_terminal(width: int, height: int) -> None:
    many = [kernel(f"a-long-name-of-a-notebook-{number}.ipynb", "production", part(0, FREE)) for number in range(30)]
    lines = drawn(a_look(0, *many), Screen(width, height))
    assert len(lines) <= max(height, 7)
    assert all(len(line) <= width for line in lines)
    assert any("more" in line for line in lines) == (height < 36)


def test_who_does_not_answer_is_named_above_what_was_known() -> None:
    lines = drawn(a_look(0, *BUSY, problem="the gateway at u does not answer; trying again"), Screen(120))
    assert lines[1] == "the gateway at u does not answer; trying again"
    assert any(line.startswith("serve.ipynb") for line in lines)


def test_status_has_the_same_figures_shortly() -> None:
    status = read_status(node(*BUSY, count=2))
    out = StringIO()
    Console(file=out, width=200, no_color=True).print(kernels_table(status.kernels))
    text = re.sub(" +", " ", out.getvalue())
    assert "80 of 75 % / 12 of 25 % max 1.03x / – 6.00 s" in text
    assert "kernel serve.ipynb: held back: production is active" in warnings(status)


def test_an_agent_from_before_says_nothing_of_it() -> None:
    old = kernel("old.ipynb", "production", part(0, None))
    [row] = rows_of(a_look(0, old).report or {}, None, 0)
    assert (row.used, row.stretch, row.throttled) == (None, None, "–")


# ---- the program


def test_without_anybody_it_says_what_to_start(run_aliquot) -> None:
    done = run_aliquot("top")
    assert (done.returncode, done.stdout) == (1, "")
    assert "start one with: aliquot agent" in done.stderr


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("--interval", "0"), "write a number from 0.1 to 3600"),
        (("--interval", "nan"), "write a number from 0.1 to 3600"),
        (("--interval",), "needs a value"),
        (("--often",), "no option --often"),
        (("now",), "takes options only"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(run_aliquot, words: tuple[str, ...], want: str) -> None:
    done = run_aliquot("top", *words)
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
        """What is not read does not count: the text before it is dropped."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while word not in self.text:
            assert time.monotonic() < deadline, f"no {word!r} in {self.text[-2000:]!r}"
            self._read()
        self.text = self.text.rpartition(word)[2]

    def _read(self) -> None:
        """A terminal whose program has ended, and one that has nothing to read, are both errors to the system."""
        with contextlib.suppress(OSError):
            self.text += os.read(self._master, 1 << 16).decode(errors="replace")
            return
        assert self.program.poll() is None, self.text
        time.sleep(0.02)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        """How it ended. The terminal may pass its last words on after its end."""
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
def a_top(an_environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*words: str) -> Terminal:
        command = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "top", "--interval", "0.2", *words]
        opened.append(Terminal(command, an_environment))
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


def test_elsewhere_than_in_a_terminal_it_is_one_plain_table(run_aliquot, a_held_kernel: None) -> None:
    for words in ((), ("--once",)):
        done = run_aliquot("top", *words)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        assert re.search(r"train\.ipynb +ada +0\.25 GPU +starting +gpu0", done.stdout), done.stdout


@pytest.mark.parametrize("how", ["q", "Ctrl-C", "SIGTERM"])
def test_it_ends_as_it_found_the_terminal(a_top: Callable[..., Terminal], a_held_kernel: None, how: str) -> None:
    top = a_top()
    top.read_until("train.ipynb")
    top.press(b"\x1b[A ")
    top.read_until("train.ipynb")
    if how == "SIGTERM":
        top.program.send_signal(signal.SIGTERM)
    elif how == "Ctrl-C":
        top.program.send_signal(signal.SIGINT)
    else:
        top.press(b"q")
    assert top.end() == 0
    assert [word for word in LAST_WORDS if word not in top.text] == [], "the screen before is back, and its cursor"
    assert "Traceback" not in top.text
    assert termios.tcgetattr(top.slave) == top.before


def test_it_tries_again_when_nobody_answers_any_more(
    a_top: Callable[..., Terminal], an_agent: subprocess.Popen[bytes], a_held_kernel: None
) -> None:
    top = a_top()
    top.read_until("train.ipynb")
    an_agent.send_signal(signal.SIGSTOP)
    try:
        top.read_until("trying again")
        top.read_until("train.ipynb")
    finally:
        an_agent.send_signal(signal.SIGCONT)
    top.read_until("every 0.2 s")
    top.press(b"q")
    assert top.end() == 0


@pytest.fixture
def a_gateway(
    an_environment: dict[str, str], an_agent: Any, a_runtime_folder: Path, request: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """A parameter of the test is one option more."""
    jupyter = str(a_runtime_folder / "jupyter")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", jupyter)
    options = ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={free_port()}", "--ServerApp.port_retries=0"]
    options += ["--allow-root", "--Aliquot.keep_kernels=never"]
    options += [getattr(request, "param", "--log-level=WARN")]
    with (a_runtime_folder / "serve.out").open("wb") as log:
        gateway = subprocess.Popen(
            [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "serve", *options],
            env={**an_environment, "JUPYTER_RUNTIME_DIR": jupyter},
            cwd=a_runtime_folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    yield gateway
    if gateway.poll() is None:
        gateway.kill()
        gateway.wait()


def test_a_gateway_that_goes_is_named_and_the_agent_asked(
    a_gateway: subprocess.Popen[bytes], a_runtime_folder: Path
) -> None:
    source = TopSource(Gateways(RuntimeDir(a_runtime_folder)))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (first := source.look()).origin.startswith("gateway http://"):
        assert a_gateway.poll() is None, (a_runtime_folder / "serve.out").read_text()
        assert time.monotonic() < deadline, first
        time.sleep(0.05)
    assert (first.problem, bool((first.report or {})["version"])) == ("", True)
    a_gateway.kill()
    a_gateway.wait()
    second = source.look()
    assert (second.origin, "trying again" in second.problem) == ("node agent", True)
    assert (second.report or {})["node"]["agent"] == "ok"


@pytest.mark.parametrize(
    "a_gateway", ["--AliquotIdentityProvider.users={'ada': {'token': 'a-token-of-ada'}}"], indirect=True
)
def test_a_gateway_that_tells_this_account_nothing_is_named_and_the_agent_asked(
    a_gateway: subprocess.Popen[bytes], a_runtime_folder: Path
) -> None:
    source = TopSource(Gateways(RuntimeDir(a_runtime_folder)))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (look := source.look()).problem:
        assert a_gateway.poll() is None, (a_runtime_folder / "serve.out").read_text()
        assert time.monotonic() < deadline, look
        time.sleep(0.05)
    assert (look.origin, look.problem.startswith("the gateway refuses to say: ")) == ("node agent", True), look
