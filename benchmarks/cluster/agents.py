"""Agents that dial a gateway all at once: the real dialer for each, before the socket of one real agent.

On the way back a node gets a name and a GPU of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.agent.dialing.dialer import GatewayDialer
from jupyter_aliquot.gpu_hook.agent.dialing.settings import GatewayAddress, agents_url
from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from tests.system.pods.conftest import Ring

_SECONDS = 120.0


def connect_all(ring: Ring, count: int) -> float:
    """Return the seconds from the first dial until the gateway has all agents, with their status."""
    folder = Path(tempfile.mkdtemp(prefix="aqd-", dir="/tmp"))
    try:
        return asyncio.run(_connect(ring, count, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _connect(ring: Ring, count: int, folder: Path) -> float:
    node = next(iter(ring.nodes.values()))
    uuid = query("status", runtime_dir=node.run_dir)["devices"][0]["uuid"]
    real = RuntimeDir(node.run_dir).agent_socket
    address = GatewayAddress(agents_url(ring.server.url), ring.folder / "token")
    names = [f"far-{number}" for number in range(count)]
    servers = []
    for number, name in enumerate(names):
        changes = ((node.name.encode(), name.encode()), (uuid.encode(), f"{uuid[:-6]}{number:06x}".encode()))
        servers.append(await asyncio.start_unix_server(_renaming(real, changes), folder / name, limit=1 << 24))
    dialers = [GatewayDialer(address, name, folder / name) for name in names]
    began = time.perf_counter()
    tasks = [asyncio.create_task(dialer.run()) for dialer in dialers]
    try:
        while not await asyncio.to_thread(_has_all, ring, set(names)):
            if time.perf_counter() - began > _SECONDS:
                raise SystemExit(f"not all agents have connected after {_SECONDS:g} s")
            await asyncio.sleep(0.05)
        return time.perf_counter() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in servers:
            server.close()


def _has_all(ring: Ring, names: set[str]) -> bool:
    nodes = ring.server.call("GET", "/aliquot/api/v1/nodes")["nodes"]
    return names <= {one["name"] for one in nodes if one["state"] == "connected"}


def _renaming(real: Path, changes: tuple[tuple[bytes, bytes], ...]) -> Any:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_back: bool) -> None:
        while line := await reader.readline():
            for before, after in changes if is_back else ():
                line = line.replace(before, after)
            writer.write(line)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs = await asyncio.open_unix_connection(real, limit=1 << 24)
        ways = (pass_on(reader, theirs[1], is_back=False), pass_on(theirs[0], writer, is_back=True))
        with contextlib.suppress(asyncio.CancelledError):  # the measurement is over
            await asyncio.gather(*ways, return_exceptions=True)

    return serve
