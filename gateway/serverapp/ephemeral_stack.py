"""A private agent, relay host and gateway in a folder of their own, removed without a trace.

Owns its child processes and the folder. Touches no other agent, gateway or kernel of the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.base.daemon import answers
from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentUnreachable
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, private_opener, softgpu_state_path
from jupyter_aliquot.provisioner.errors import AliquotError

START_SECONDS = 60.0
STOP_SECONDS = 15.0
_POLL_SECONDS = 0.05
_LOG_LINES = 12
_METRICS_SECONDS = 10.0
_GRANTED = "aliquot_admission_granted_total"


class StackError(AliquotError):
    """The agent or the gateway did not start."""


@dataclass(frozen=True)
class StackSettings:
    """The driver of the agent, and its other options."""

    driver: str = "auto"
    softgpu_memory: str = ""  # of a software GPU; empty for the agent's own default
    agent_options: tuple[str, ...] = ()


class EphemeralStack:
    """An asynchronous context manager: inside it an agent answers, and a gateway if one is wanted."""

    def __init__(self, settings: StackSettings, has_gateway: bool = True) -> None:
        self._settings = settings
        self._has_gateway = has_gateway
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._folder = Path(tempfile.mkdtemp(prefix="aliquot-own-", dir="/tmp"))
        self._token = secrets.token_hex(24)
        self.runtime = RuntimeDir(self._folder)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which a process finds this stack.

        They keep it from the user's Jupyter settings.
        """
        return {
            "ALIQUOT_RUNTIME_DIR": str(self._folder),
            "JUPYTER_RUNTIME_DIR": str(self.jupyter_runtime),
            "JUPYTER_CONFIG_DIR": str(self._folder / "config"),
            "IPYTHONDIR": str(self._folder / "ipython"),
        }

    @property
    def jupyter_runtime(self) -> Path:
        """Return the folder where Jupyter keeps connection files and the servers' addresses."""
        return self._folder / "jupyter"

    def log_path(self, name: str) -> Path:
        """Return the path of the log of one process of the stack."""
        return self._folder / f"{name}.log"

    async def __aenter__(self) -> EphemeralStack:
        try:
            for folder in (self.jupyter_runtime, self._folder / "config", self._folder / "ipython"):
                folder.mkdir(mode=0o700)
            await self._start_agent()
            await self._start_relay_host()
            if self._has_gateway:
                await self._start_gateway()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end()

    def gateway_address(self) -> str:
        """Return the URL at which the gateway serves HTTP. Raises StackError before it does."""
        gateway = dict(self._processes)["gateway"]
        try:
            return str(json.loads((self.jupyter_runtime / f"jpserver-{gateway.pid}.json").read_text())["url"])
        except (OSError, ValueError, KeyError):
            raise StackError("the gateway has not told its address") from None

    async def granted(self) -> int:
        """Return how many requests the gateway has granted, by its own count. Raises StackError."""
        try:
            text = await asyncio.to_thread(self._read_metrics)
        except OSError as error:
            raise StackError(f"the gateway does not tell its metrics: {error}") from None
        found = re.search(rf"^{_GRANTED} (\S+)$", text, re.MULTILINE)
        return int(float(found.group(1))) if found else 0

    def _read_metrics(self) -> str:
        url = f"{self.gateway_address()}aliquot/api/v1/metrics"
        request = urllib.request.Request(url, headers={"Authorization": f"token {self._token}"})
        with urllib.request.urlopen(request, timeout=_METRICS_SECONDS) as answer:
            return str(answer.read().decode())

    async def _start_agent(self) -> None:
        options = ["--driver", self._settings.driver, "--softgpu-devices", "1"]
        if self._settings.softgpu_memory:
            options += ["--softgpu-memory", self._settings.softgpu_memory]
        self._spawn("agent", ["agent", *options, *self._settings.agent_options])
        await self._until("agent", self._agent_answers)

    async def _start_relay_host(self) -> None:
        """Start the relay host before a kernel would.

        One that a kernel starts outlives the kernels for a while, and its folder would be gone.
        """
        self._spawn("relay", ["relay"])
        await self._until("relay", self._relay_host_answers)

    async def _start_gateway(self) -> None:
        options = ["--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--ServerApp.root_dir={self._folder}"]
        # The stack's kernels end with the stack, however it ends.
        options += ["--Aliquot.keep_kernels=never"]
        # The gateway listens on loopback alone, for this demonstration, so its user may be root, as
        # in a container.
        self._spawn("gateway", ["serve", *options, *(["--allow-root"] if os.geteuid() == 0 else [])])
        await self._until("gateway", self._gateway_answers)

    def _spawn(self, name: str, arguments: list[str]) -> None:
        with open(self.log_path(name), "wb", opener=private_opener) as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", *arguments],
                env={**os.environ, **self.environment, "JUPYTER_TOKEN": self._token, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is for this process, which ends the others in order.
                start_new_session=True,
            )
        self._processes.append((name, process))

    async def _until(self, name: str, has_come: Callable[[], Awaitable[bool]]) -> None:
        process = dict(self._processes)[name]
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while not await has_come():
            if process.poll() is not None:
                raise StackError(f"the {name} ended with status {process.returncode}: {self._log_end(name)}")
            if asyncio.get_running_loop().time() > deadline:
                raise StackError(f"the {name} did not answer within {START_SECONDS:.0f} s:\n{self._log_end(name)}")
            await asyncio.sleep(_POLL_SECONDS)

    async def _agent_answers(self) -> bool:
        try:
            async with await AgentClient.connect(self._folder) as client:
                await client.hello("aliquot")
        except AgentUnreachable:
            return False
        return True

    async def _relay_host_answers(self) -> bool:
        return await asyncio.to_thread(answers, self.runtime.relay_socket)

    async def _gateway_answers(self) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(self.runtime.gateway_socket)
            writer.close()
            await writer.wait_closed()
            self.gateway_address()
        except (OSError, StackError):
            return False
        return True

    def _log_end(self, name: str) -> str:
        """Return the process's last message to its user, or else the end of its log."""
        lines = self.log_path(name).read_text(errors="replace").splitlines()
        words = [line for line in lines if line.startswith("aliquot")]
        return "\n".join(words[-1:] or lines[-_LOG_LINES:]) or "(its log is empty)"

    async def _end(self) -> None:
        """End the child processes, last first, and remove the folder.

        Never raises for one that is already gone.
        """
        for _, process in reversed(self._processes):
            await asyncio.to_thread(_end_process, process)
        shutil.rmtree(self._folder, ignore_errors=True)
        remove_state(softgpu_state_path(self.runtime))


def _end_process(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
