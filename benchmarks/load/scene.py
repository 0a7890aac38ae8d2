"""The processes of the load test: a gateway as users run it, the stand-ins, the load generator."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.client.control import read_relay_records

BASE, SIZE = "standin", "0.01"
KERNEL = f"{BASE}.gpu-{SIZE}"
DEVICES, OVERSUBSCRIPTION = 8, 2  # the software GPU has at most 8 devices, and a share has at least a hundredth
# Little, for the host's memory must hold what is overcommitted.
DEVICE_MEMORY = "512MiB"
PORT = 19_100
_DEADLINE_SECONDS = 120.0
_BENCHMARKS = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Person:
    """A user with a token of its own."""

    name: str
    token: str
    is_admin: bool


def people(users: int, admins: int) -> list[Person]:
    """Return names and tokens; no token can be guessed from another."""
    names = [(f"user{number:03d}", False) for number in range(users)]
    names += [(f"admin{number}", True) for number in range(admins)]
    return [Person(name, os.urandom(16).hex(), is_admin) for name, is_admin in names]


class Scene:
    """The load test in one folder.

    ``close`` ends all of it. ``kept_minutes``: how long the gateway keeps outputs of cells.
    """

    def __init__(self, folder: Path, persons: list[Person], kept_minutes: float = 30) -> None:
        self.folder = folder
        self._kept_minutes = kept_minutes
        self.runtime = RuntimeDir(folder / "run")
        self.port = PORT + os.getpid() % 400
        self._persons = persons
        self._write_kernelspec()
        self._write_config()
        self._standins = self._start_standins()
        self.gateway = self._start_gateway()
        self._generator: subprocess.Popen[bytes] | None = None

    # ---- processes

    def _start_standins(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "load.standin_host", str(self.runtime.path)]
        with (self.folder / "standins.log").open("w") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, cwd=_BENCHMARKS, env=self._environment()
            )
        assert process.stdout is not None  # Popen got PIPE
        if not process.stdout.readline():
            raise SystemExit(f"the stand-ins did not start:\n{(self.folder / 'standins.log').read_text()[-3000:]}")
        return process

    def _start_gateway(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "serve", "--allow-root", "--ip=127.0.0.1"]
        command += [f"--port={self.port}", "--ServerApp.port_retries=0", f"--config={self.folder / 'config.py'}"]
        with (self.folder / "gateway.log").open("a") as log:
            return subprocess.Popen(
                [*command, f"--ServerApp.root_dir={self.folder}"], stdout=log, stderr=log, env=self._environment()
            )

    def start_again(self) -> None:
        """Kill the gateway, and start another one."""
        self.gateway.kill()
        self.gateway.wait()
        self.gateway = self._start_gateway()

    def wait(self) -> None:
        """Wait until the gateway answers. Raises SystemExit."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/status", headers={"Authorization": f"token {self._persons[-1].token}"}
        )
        while time.monotonic() < deadline and self.gateway.poll() is None:
            with suppress(OSError, urllib.error.URLError):
                urllib.request.urlopen(request, timeout=10).close()
                return
            time.sleep(0.05)
        raise SystemExit(f"the gateway does not answer:\n{(self.folder / 'gateway.log').read_text()[-3000:]}")

    def generate(self, **command: Any) -> dict[str, Any]:
        """Send one order to the load generator; return its answer. Raises SystemExit when it ended."""
        generator = self._generator or self._start_generator()
        assert generator.stdin is not None  # Popen got PIPE
        assert generator.stdout is not None
        generator.stdin.write(json.dumps(command).encode() + b"\n")
        generator.stdin.flush()
        answer = generator.stdout.readline()
        if not answer:
            raise SystemExit(f"the load generator ended:\n{(self.folder / 'generator.log').read_text()[-3000:]}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _start_generator(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "load.generator", str(self.port), KERNEL]
        with (self.folder / "generator.log").open("w") as log:
            process = self._generator = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=_BENCHMARKS,
                env=self._environment(),
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps([vars(person) for person in self._persons]).encode() + b"\n")
        return process

    def close(self) -> None:
        """End all processes that the scene started, the node agent included."""
        for process in (self._generator, self.gateway, self._standins):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=_DEADLINE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for lock in (self.runtime.agent_lock, self.runtime.relay_lock):
            # A gateway that missed the stand-ins for a moment has started a relay host, and it
            # relays.
            with suppress(OSError, ValueError):
                os.kill(int(lock.read_text()), signal.SIGTERM)
        for record in read_relay_records(self.runtime):
            if record.is_alive:
                os.kill(record.pid, signal.SIGTERM)

    # ---- files

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ALIQUOT_RUNTIME_DIR": str(self.runtime.path),
            "ALIQUOT_SOFTGPU_STATE": str(self.folder / "softgpu"),
            # Kernels that sleep make no context, and a context takes more than their 0.01 GPU has.
            "ALIQUOT_SOFTGPU_CONTEXT": "0",
            "JUPYTER_DATA_DIR": str(self.folder / "data"),
            "JUPYTER_PATH": str(self.folder / "jupyter"),
            "JUPYTER_CONFIG_DIR": str(self.folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "jupyter-run"),
            "PYTHONPATH": str(_BENCHMARKS),
        }

    def _write_kernelspec(self) -> None:
        spec = self.folder / "jupyter" / "kernels" / BASE
        spec.mkdir(parents=True)
        kernel = {"argv": ["sleep", "infinity"], "display_name": "Stand-in", "language": "text"}
        (spec / "kernel.json").write_text(json.dumps(kernel))

    def _write_config(self) -> None:
        users = {
            person.name: {
                "token_hash": hashlib.sha256(person.token.encode()).hexdigest(),
                "role": "admin" if person.is_admin else "user",
            }
            for person in self._persons
        }
        options = ["--driver", "softgpu", "--softgpu-devices", str(DEVICES), "--softgpu-memory", DEVICE_MEMORY]
        # The host's memory backs the overcommitted part of the devices.
        options += ["--overcommit", str(OVERSUBSCRIPTION)]
        lines = [
            f"c.AliquotIdentityProvider.users = {users!r}",
            f"c.Aliquot.agent_options = {options!r}",
            "c.Aliquot.driver = 'softgpu'",
            f"c.Aliquot.kept_output_minutes = {self._kept_minutes!r}",
            "from load.in_use import note",
            f"note({str(self.folder)!r})",
            "from load.served import note as note_requests",
            f"note_requests({str(self.folder)!r})",
        ]
        (self.folder / "config.py").write_text("\n".join(lines) + "\n")
