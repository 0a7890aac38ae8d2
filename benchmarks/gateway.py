"""Kernel start and execute round trip: Aliquot against plain Jupyter Server, in one run.

Two servers run in parallel, one stock (local provisioner), one with Aliquot and a sized kernel on
the software GPU. Starts and executions alternate in ABBA order, so that drift of the machine
affects both. Bounds, on medians: start ≤ 1.10 ×, round trip ≤ +0.5 ms. Processor time for an
execution stands beside it: it says more than the wall's on a machine that others use.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import websocket
from processor_time import each, processor_seconds
from report import ROOT, Row, at_most, publish, read_arguments

sys.path.insert(0, str(ROOT / "tests"))
from ports import free_port

TOKEN = uuid.uuid4().hex
STOCK = {
    "kernel_manager_class": "jupyter_server.services.kernels.kernelmanager.AsyncMappingKernelManager",
    "kernel_spec_manager_class": "jupyter_client.kernelspec.KernelSpecManager",
    "session_manager_class": "jupyter_server.services.sessions.sessionmanager.SessionManager",
    "identity_provider_class": "jupyter_server.auth.PasswordIdentityProvider",
    "authorizer_class": "jupyter_server.auth.AllowAllAuthorizer",
    "jpserver_extensions": "{'jupyter_aliquot.gateway': False}",
}
DEADLINE_SECONDS = 60.0
SMOKE = {"starts": 1, "executions": 5}


@dataclass(frozen=True)
class Server:
    """A running server and the kernel name to measure on it."""

    url: str
    kernel_name: str
    token: str = TOKEN
    pid: int = 0
    folder: Path = Path()  # what works for it has this in its command

    def call(self, method: str, path: str, body: object = None) -> object:
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as response:
            text = response.read()
        return json.loads(text) if text else None

    def start_kernel(self) -> Kernel:
        model = self.call("POST", "/api/kernels", {"name": self.kernel_name})
        assert isinstance(model, dict)
        return Kernel(self, str(model["id"]))


class Kernel:
    """One kernel over one WebSocket, as a browser would talk to it."""

    def __init__(self, server: Server, kernel_id: str) -> None:
        self.server, self.kernel_id = server, kernel_id
        url = f"ws{server.url[4:]}/api/kernels/{kernel_id}/channels?session_id={uuid.uuid4().hex}"
        self.socket = websocket.create_connection(
            url,
            header=[f"Authorization: token {server.token}"],
            timeout=DEADLINE_SECONDS,
            sockopt=((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),),
        )

    def request(self, kind: str, content: dict[str, object], want: set[str]) -> None:
        """Send one shell request; return when every message type in ``want`` came back for it."""
        message_id = uuid.uuid4().hex
        header = {
            "msg_id": message_id,
            "msg_type": kind,
            "session": "bench",
            "username": "",
            "version": "5.3",
        }
        self.socket.send(
            json.dumps(
                {
                    "header": header,
                    "parent_header": {},
                    "metadata": {},
                    "content": content,
                    "channel": "shell",
                    "buffers": [],
                }
            )
        )
        while want:
            # Acknowledge at once: a delayed ACK (40 ms) that meets Nagle hides what we measure.
            self.socket.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            answer = json.loads(self.socket.recv())
            if answer["parent_header"].get("msg_id") != message_id:
                continue
            kind_back = answer["msg_type"]
            idle = kind_back == "status" and answer["content"]["execution_state"] == "idle"
            want = want - {"idle" if idle else kind_back}

    def execute(self, code: str) -> None:
        content = {
            "code": code,
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
        }
        self.request("execute_request", content, {"execute_reply", "idle"})

    def end(self) -> None:
        self.socket.close()
        self.server.call("DELETE", f"/api/kernels/{self.kernel_id}")


@contextmanager
def running_server(home: Path, name: str, kernel_name: str, options: dict[str, str]) -> Iterator[Server]:
    port = free_port()
    flags = [f"--{key if '.' in key else f'ServerApp.{key}'}={value}" for key, value in options.items()]
    command = [
        sys.executable,
        "-m",
        "jupyter",
        "server",
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}",
        f"--ServerApp.root_dir={home}",
        *flags,
    ]
    environment = {
        **os.environ,
        "ALIQUOT_RUNTIME_DIR": str(home / "run"),
        "JUPYTER_RUNTIME_DIR": str(home / f"jupyter-{name}"),
    }
    with (home / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        folder = home / (f"jupyter-{name}" if "kernel_manager_class" in options else "run")
        server = Server(f"http://127.0.0.1:{port}", kernel_name, pid=process.pid, folder=folder)
        try:
            wait_until_ready(server, process, home / f"{name}.log")
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=DEADLINE_SECONDS)


def wait_until_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.call("GET", "/api/status")
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"Started a server at {server.url}, but it did not answer:\n{log.read_text()[-3000:]}")


def measure_start(server: Server) -> float:
    """Return the seconds from the POST to the end of the first, empty cell."""
    begin = time.perf_counter()
    kernel = server.start_kernel()
    kernel.execute("pass")
    elapsed = time.perf_counter() - begin
    kernel.end()
    return elapsed


def measure_execute(kernel: Kernel) -> float:
    begin = time.perf_counter()
    kernel.execute("pass")
    return time.perf_counter() - begin


def interleave(measure: Callable[[int], float], repeats: int, what: str) -> tuple[list[float], list[float]]:
    """Interleave in ABBA order: index 0 is plain, 1 is Aliquot."""
    found: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats):
        for which in (0, 1) if repeat % 2 == 0 else (1, 0):
            found[which].append(measure(which))
        if repeat % max(1, repeats // 5) == 0:
            print(f"{what}: {repeat + 1} of {repeats}", flush=True)
    return found


def measure_trips(servers: list[Server], executions: int) -> tuple[tuple[list[float], list[float]], list[Row]]:
    """Return the seconds of each execution on each server, and rows of the processor time for one."""
    kernels = [server.start_kernel() for server in servers]
    for kernel in kernels:
        for _ in range(20):
            kernel.execute("pass")
    before = [processor_seconds(server.pid, server.folder) for server in servers]
    trips = interleave(lambda which: measure_execute(kernels[which]), executions, "executions")
    rows = []
    for server, begun, name in zip(servers, before, ("plain Jupyter Server", "Aliquot"), strict=True):
        used = each(begun, processor_seconds(server.pid, server.folder), executions)
        rows += [Row(f"processor time of an execution, {name}: {kind}", used[kind], "ms") for kind in sorted(used)]
        rows.append(Row(f"processor time of an execution, {name}: all", sum(used.values()), "ms"))
    for kernel in kernels:
        kernel.end()
    return trips, rows


def rows_of(starts: tuple[list[float], list[float]], trips: tuple[list[float], list[float]]) -> list[Row]:
    plain_start, our_start = map(statistics.median, starts)
    plain_trip, our_trip = (statistics.median(times) * 1e3 for times in trips)
    return [
        Row("kernel start, plain Jupyter Server (median)", plain_start, "s"),
        Row("kernel start, Aliquot (median)", our_start, "s"),
        at_most("kernel start, ratio of medians", our_start / plain_start, "×", 1.10),
        Row(
            "kernel start, median of paired ratios",
            statistics.median(b / a for a, b in zip(*starts, strict=True)),
            "×",
        ),
        Row("execute round trip, plain Jupyter Server (median)", plain_trip, "ms"),
        Row("execute round trip, Aliquot (median)", our_trip, "ms"),
        at_most("execute round trip, added at the median", our_trip - plain_trip, "ms", 0.5),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=60, help="kernel starts of each server")
    parser.add_argument("--executions", type=int, default=400, help="executions on each server")
    arguments = read_arguments(parser, SMOKE)
    home = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    try:
        with ExitStack() as stack:
            servers = [
                stack.enter_context(running_server(home, "plain", "python3", STOCK)),
                stack.enter_context(running_server(home, "aliquot", "python3.gpu-0.25", {})),
            ]
            for server in servers:
                measure_start(server)
            starts = interleave(lambda which: measure_start(servers[which]), arguments.starts, "starts")
            trips, used = measure_trips(servers, arguments.executions)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    raise SystemExit(0 if publish(arguments, "gateway", "software GPU", [*rows_of(starts, trips), *used]) else 1)


if __name__ == "__main__":
    main()
