"""Measure a grant at the gateway's local socket, for programs of 200 accounts.

A grant is measured from the connection to the answer. Each account holds one; then one account at a
time asks for a second. Bound: p95 ≤ 10 ms. As another user than root, all connections are of one account.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from report import Row, at_most, publish, read_arguments

from jupyter_aliquot.gpu_hook.paths import RuntimeDir, prepare_runtime_dir, prepare_shared_runtime_dir

FIRST_UID = 61_000
DEVICES = 8
_SECONDS = 60.0
_BENCHMARKS = Path(__file__).resolve().parent


class Connection:
    """One connection of an account."""

    def __init__(self, path: Path, uid: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_SECONDS)
        if os.getuid() == 0:
            os.seteuid(uid)
        try:
            self._socket.connect(os.fspath(path))
        finally:
            if os.getuid() == 0:
                os.seteuid(0)
        self._lines = self._socket.makefile("rb")

    def send(self, **message: Any) -> None:
        self._socket.sendall(json.dumps({"version": 1, **message}).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._lines.readline())
        return found

    def ask(self, kernel_id: str) -> None:
        self.send(op="ask", kernel_id=kernel_id, hundredths=1, label="nb.ipynb", kernelspec="python3", wait_seconds=60)

    def granted(self) -> None:
        """Read until the grant. Raises SystemExit for a refusal."""
        while "event" in (answer := self.read()):
            pass
        if not answer["ok"]:
            raise SystemExit(f"the gateway refused: {answer['message']}")

    def release(self) -> None:
        self.send(op="release")
        self.read()
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


@contextmanager
def a_gateway(folder: Path, accounts: int) -> Iterator[tuple[Path, dict[str, int]]]:
    """Run a node agent and a gateway; yield the gateway's socket, and the processes by name."""
    pids = {}
    runtime = RuntimeDir(folder / "run")
    folder.chmod(0o711)
    if os.geteuid() == 0:
        prepare_shared_runtime_dir(runtime, FIRST_UID)
    prepare_runtime_dir(runtime)
    environment = {
        **os.environ,
        "ALIQUOT_RUNTIME_DIR": str(runtime.path),
        "ALIQUOT_SOFTGPU_STATE": str(folder / "softgpu"),
        "ALIQUOT_SOFTGPU_CONTEXT": "0",  # as a process's context does not fit into 1% of a device
        "PYTHONPATH": str(_BENCHMARKS),
    }
    agent = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "agent", "--driver", "softgpu"]
    agent += ["--softgpu-devices", str(DEVICES)]
    gateway = [sys.executable, "-m", "load.door_gateway", str(folder), str(FIRST_UID), str(accounts)]
    with (folder / "log").open("ab") as log, ExitStack() as stack:
        for command in (agent, gateway):
            process = stack.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log if command is agent else subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    cwd=_BENCHMARKS,
                )
            )
            stack.callback(process.terminate)
            pids["node agent" if command is agent else "gateway"] = process.pid
            if command is agent:
                _wait_for(process, runtime.agent_socket, folder / "log")
            elif process.stdout is None or process.stdout.readline() != b"ready\n":
                raise SystemExit(f"the gateway did not start:\n{(folder / 'log').read_text()[-3000:]}")
        yield runtime.gateway_socket, pids


def _wait_for(process: subprocess.Popen[bytes], path: Path, log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
            trial.connect(os.fspath(path))
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing answers at {path}:\n{log.read_text()[-3000:]}")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(path: Path, pids: dict[str, int], accounts: int, grants: int) -> list[Row]:
    """Have each account hold a grant, then measure further ones: one at a time, and all at once."""
    uids = [FIRST_UID + number for number in range(accounts)]
    began = time.perf_counter()
    holders = [Connection(path, uid) for uid in uids]
    for number, holder in enumerate(holders):
        holder.ask(f"held-{number}")
    for holder in holders:
        holder.granted()
    all_at_once = time.perf_counter() - began
    took, before = [], {name: cpu_seconds(pid) for name, pid in pids.items()}
    for number in range(grants):
        uid = random.choice(uids)
        began = time.perf_counter()
        one = Connection(path, uid)
        one.ask(f"more-{number}")
        one.granted()
        took.append((time.perf_counter() - began) * 1e3)
        one.release()
    used = {name: (cpu_seconds(pid) - before[name]) * 1e3 / grants for name, pid in pids.items()}
    for holder in holders:
        holder.release()
    return [
        Row("accounts that hold a grant meanwhile", accounts, ""),
        Row("all of them ask at once, until the last has its grant", all_at_once * 1e3, "ms"),
        Row("a grant, median", statistics.median(took), "ms"),
        at_most("a grant, p95", statistics.quantiles(took, n=20)[-1], "ms", 10),
        Row("a grant, the slowest", max(took), "ms"),
        *(Row(f"CPU time of the {name}, a grant and its release", spent, "ms") for name, spent in used.items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accounts", type=int, default=200, help="accounts that hold a grant")
    parser.add_argument("--grants", type=int, default=2000, help="further grants, one after another")
    asked = read_arguments(parser, {"accounts": 10, "grants": 20})
    random.seed(1)
    folder = Path(tempfile.mkdtemp(prefix="aqb-", dir="/tmp"))
    try:
        with a_gateway(folder, asked.accounts) as (path, pids):
            rows = measure(path, pids, asked.accounts, asked.grants)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(0 if publish(asked, "door", "software GPU", rows) else 1)


if __name__ == "__main__":
    main()
