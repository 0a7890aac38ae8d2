"""A Jupyter server with Aliquot, whose plain kernels have relays, and browsers that use them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.client.control import read_relay_records, stop_relay

from .browser import Browser

_PATIENCE_SECONDS = 60.0


@pytest.fixture
def a_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[RuntimeDir]:
    """Make a runtime folder with a short path, for sockets, and end its last relays afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    monkeypatch.setenv("ALIQUOT_RUNTIME_DIR", str(folder))
    runtime = RuntimeDir(folder)
    yield runtime
    host = host_pid(runtime)
    for record in read_relay_records(runtime):
        asyncio.run(stop_relay(record))
    if host is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(host, signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)


def host_pid(runtime: RuntimeDir) -> int | None:
    """Return the pid in the relay host's lock; None without one."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int(runtime.relay_lock.read_text().strip())
    return None


@pytest.fixture
def jp_server_config(a_runtime: RuntimeDir, more_config: dict[str, Any]) -> Config:
    """Return the server's settings.

    Called by pytest-jupyter.
    """
    return Config(
        {
            "ServerApp": {
                "jpserver_extensions": {"jupyter_aliquot.gateway": True},
                "tornado_settings": {"websocket_max_message_size": 256 << 20},
                **more_config.pop("ServerApp", {}),
            },
            "Aliquot": {"runtime_dir": str(a_runtime.path), "start_agent": False},
            "AliquotProvisioner": {"relay": True},
            **more_config,
        }
    )


@pytest.fixture
def more_config() -> dict[str, Any]:
    """Return further settings; a test module overrides them.

    Without rate limits output arrives whole.
    """
    return {"ZMQChannelsWebsocketConnection": {"limit_rate": False}}


@pytest.fixture
def kernelspecs(jp_environ: Any, jp_data_dir: Path) -> Path:
    """Write the kernelspec python3 with our provisioner, without a size."""
    folder = jp_data_dir / "kernels" / "python3"
    folder.mkdir(parents=True)
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python",
        "language": "python",
        "metadata": {"kernel_provisioner": {"provisioner_name": "aliquot"}, "debugger": True},
    }
    (folder / "kernel.json").write_text(json.dumps(spec))
    return folder


class House:
    """A server, one kernel of it, and browsers."""

    def __init__(self, server: ServerApp, fetch: Any, connect: Any) -> None:
        self.server = server
        self.fetch = fetch
        self._connect = connect
        self.kernel_id = ""

    async def start_kernel(self) -> str:
        body = json.dumps({"name": "python3"})
        answer = await self.fetch("api", "kernels", method="POST", body=body, request_timeout=120)
        self.kernel_id = str(json.loads(answer.body)["id"])
        return self.kernel_id

    def browser(self, protocol: str = "v1", session: str = "tab-1") -> Browser:
        return Browser(self._connect, self.kernel_id, protocol, session)

    @property
    def link(self) -> KernelLink:
        found = self.server.kernel_manager.links.get(self.kernel_id)
        assert found is not None, "the kernel has a relay"
        return found  # type: ignore[no-any-return]

    @property
    def folder(self) -> Path:
        """Return the folder of the kernel's relay."""
        return Path(self.server.kernel_manager.get_kernel(self.kernel_id).ip).parent

    def bytes_to_write(self, *sessions: str) -> int:
        """Return the bytes that the gateway holds for all websockets, or for these sessions."""
        ports = [port for name, port in self.link._subscribers.items() if not sessions or name in sessions]
        streams = [port.websocket_handler.ws_connection.stream for port in ports]
        return sum(stream._total_write_index - stream._total_write_done_index for stream in streams)

    async def model(self) -> dict[str, Any]:
        answer = await self.fetch("api", "kernels", self.kernel_id)
        return json.loads(answer.body)  # type: ignore[no-any-return]

    async def act(self, action: str) -> None:
        await self.fetch(
            "api", "kernels", self.kernel_id, action, method="POST", allow_nonstandard_methods=True, request_timeout=120
        )


@pytest.fixture
def a_house(
    kernelspecs: Path, jp_serverapp: ServerApp, jp_fetch: Any, jp_ws_fetch: Any, jp_asyncio_loop: Any
) -> Iterator[House]:
    house = House(jp_serverapp, jp_fetch, jp_ws_fetch)

    async def begin() -> None:
        await jp_serverapp.extension_manager.start_all_extensions()
        await house.start_kernel()

    async def end() -> None:
        await jp_serverapp.kernel_manager.shutdown_all(now=True)
        await jp_serverapp.extension_manager.stop_all_extensions()

    jp_asyncio_loop.run_until_complete(begin())
    yield house
    jp_asyncio_loop.run_until_complete(end())


@pytest.fixture
def until() -> Callable[..., Awaitable[Any]]:
    """Return a function that waits for a condition, plain or awaitable, up to a deadline."""

    async def wait(condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            assert time.monotonic() < deadline, f"not within {_PATIENCE_SECONDS:g} s"
            await asyncio.sleep(0.02)

    return wait
