"""Measure how long a new gateway takes to adopt 200 running kernels after a kill of the old one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway import DEADLINE_SECONDS, TOKEN, Kernel, Server, wait_until_ready
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.client.control import read_relay_records

KERNEL = "light"
STARTERS = 4  # at once: more would only queue for two cores
PORT = 18_950


@dataclass(frozen=True)
class Adoption:
    """The times of an adoption, in seconds.

    Until a new gateway listed all kernels; an empty gateway needs ``start_seconds`` to answer at
    all.
    """

    listed_seconds: float
    start_seconds: float
    first_cell_seconds: float

    @property
    def seconds(self) -> float:
        return self.listed_seconds - self.start_seconds


class Gateway:
    """`aliquot serve` in a folder of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(f"http://127.0.0.1:{PORT + os.getpid() % 40}", KERNEL)
        spec = folder / "jupyter" / "kernels" / KERNEL
        spec.mkdir(parents=True)
        program = str(Path(__file__).with_name("light_kernel.py"))
        argv = [sys.executable, program, "{connection_file}"]
        (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Light", "language": "text"}))
        self.process = self._start()

    @property
    def runtime(self) -> RuntimeDir:
        return RuntimeDir(self.folder / "run")

    def _start(self) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "ALIQUOT_RUNTIME_DIR": str(self.runtime.path),
            "JUPYTER_DATA_DIR": str(self.folder / "data"),
            "JUPYTER_PATH": str(self.folder / "jupyter"),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "jupyter-run"),
        }
        port = self.server.url.rpartition(":")[2]
        options = [f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gateway.cli.app",
            "serve",
            "--allow-root",
            "--ip=127.0.0.1",
            *options,
        ]
        with (self.folder / "gateway.log").open("a") as log:
            return subprocess.Popen([*command, f"--ServerApp.root_dir={self.folder}"], stdout=log, stderr=log, env=env)

    def start_again(self) -> float:
        """Kill it with SIGKILL and start another; return the moment of that start."""
        self.process.kill()
        self.process.wait()
        begin = time.perf_counter()
        self.process = self._start()
        return begin

    def wait(self) -> None:
        wait_until_ready(self.server, self.process, self.folder / "gateway.log")

    def kernels(self) -> list[str]:
        models = self.server.call("GET", "/api/kernels")
        assert isinstance(models, list)
        return [model["id"] for model in models]

    def close(self) -> None:
        with suppress(OSError), ThreadPoolExecutor(STARTERS) as pool:
            list(pool.map(lambda kernel_id: self.server.call("DELETE", f"/api/kernels/{kernel_id}"), self.kernels()))
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=DEADLINE_SECONDS)
        for record in read_relay_records(self.runtime):
            if record.is_alive:
                os.kill(record.pid, signal.SIGTERM)


def measure_adoption(folder: Path, count: int) -> Adoption:
    """Start ``count`` kernels, kill the gateway, time the next one.

    Raises SystemExit if the new gateway loses one.
    """
    gateway = Gateway(folder)
    try:
        gateway.wait()
        begin = gateway.start_again()
        gateway.wait()
        empty = time.perf_counter() - begin
        started = _start_kernels(gateway, count)
        begin = gateway.start_again()
        gateway.wait()
        while set(gateway.kernels()) != started:
            if time.perf_counter() - begin > DEADLINE_SECONDS:
                raise SystemExit(f"{count} kernels were started, {len(gateway.kernels())} came back")
            time.sleep(0.01)
        listed = time.perf_counter() - begin
        begin = time.perf_counter()
        Kernel(gateway.server, next(iter(started))).execute("pass")
        return Adoption(listed, empty, time.perf_counter() - begin)
    finally:
        gateway.close()


def _start_kernels(gateway: Gateway, count: int) -> set[str]:
    def start(number: int) -> str:
        kernel = gateway.server.start_kernel()
        kernel.execute("pass")
        kernel.socket.close()
        if number % 20 == 0:
            print(f"kernels for adoption: {number} of {count}", flush=True)
        return kernel.kernel_id

    with ThreadPoolExecutor(STARTERS) as pool:
        return set(pool.map(start, range(1, count + 1)))
