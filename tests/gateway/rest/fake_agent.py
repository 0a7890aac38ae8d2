"""A node agent whose answers a test sets.

It speaks the control protocol, and holds nothing.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

GIB = 1 << 30
UUID = "GPU-00000000-0000-0000-0000-000000000001"


def device(**other: Any) -> dict[str, Any]:
    """Return a device of 16 GiB."""
    return {
        "index": 0,
        "uuid": UUID,
        "name": "a device",
        "memory_bytes": 16 * GIB,
        "reserved_bytes": 4 * GIB,
        "reserved_hundredths": 25,
        "used_bytes": GIB,
        "charged_bytes": GIB,
        "utilization_percent": 40,
        "temperature_celsius": None,
        "power_watts": 71.5,
        "lost": False,
        **other,
    }


def kernel(kernel_id: str, owner: str, **other: Any) -> dict[str, Any]:
    """Return a kernel with a quarter of that device."""
    return {
        "kernel_id": kernel_id,
        "owner": owner,
        "label": f"{kernel_id}.ipynb",
        "hundredths": 25,
        "memory_limit": None,
        "workload_class": "production",
        "generation": 1,
        "attributes": {},
        "created": 1_800_000_000.5,
        "interception": "holds",
        "pids": [1],
        "ending": False,
        "devices": [
            {
                "uuid": UUID,
                "index": 0,
                "hundredths": 25,
                "quota_bytes": 4 * GIB,
                "charged_bytes": GIB,
                "lent_bytes": GIB,
                "peak_bytes": 2 * GIB,
                "busy_seconds": 1.5,
                "refusals": 3,
            }
        ],
        **other,
    }


def escaped(**other: Any) -> dict[str, Any]:
    """Return a process of a kernel that no hook sees."""
    return {
        "pid": 77,
        "name": "python3",
        "uuid": UUID,
        "index": 0,
        "used_bytes": 3 * GIB,
        "charged_bytes": 0,
        "why": "not registered",
        **other,
    }


class FakeAgent:
    """An agent that answers at `path` between start and stop.

    Tests change its answers by its attributes. Without ``gives_room`` it has no capacity; with it,
    it grants and changes all that is requested.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.devices = [device()]
        self.kernels: list[dict[str, Any]] = []
        self.node: dict[str, Any] = {}  # more of the status
        self.gives_room = False
        # Requests about kernels: op and kernel id, in their order.
        self.asked: list[tuple[str, str]] = []
        # The options in force, which the agent reports in its hello.
        self.options: dict[str, str] = {}
        # Refused ops: op to code and message.
        self.refusals: dict[str, tuple[str, str]] = {}
        # Ops that get no answer, and the first question without one.
        self.hangs: set[str] = set()
        self.hung = asyncio.Event()
        self._watched = asyncio.Event()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for writer in self._writers:
                writer.close()
            self._writers.clear()
            await server.wait_closed()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while line := await reader.readline():
            question = json.loads(line)
            if question["op"] in self.hangs:
                self.hung.set()
                continue
            answer = self._answer(question["op"], question)
            writer.write(json.dumps({"id": question["id"], **answer}).encode() + b"\n")
            await writer.drain()

    def tell_changed(self) -> None:
        """Report that capacity may have returned."""
        for writer in self._writers:
            writer.write(b'{"event": "changed"}\n')

    async def until_watched(self) -> None:
        """Wait for the next watch request since the last call."""
        await asyncio.wait_for(self._watched.wait(), 30)
        self._watched.clear()

    def tell_status(self) -> None:
        """Report that the node's status changed."""
        for writer in self._writers:
            writer.write(b'{"event": "status"}\n')

    def _answer(self, op: str, question: dict[str, Any]) -> dict[str, Any]:
        node = {"ok": True, "node": "a node", "driver": "softgpu"}
        if op == "hello" and op not in self.refusals:
            return {**node, "version": 1, "pid": 1, "options": self.options}
        if op == "status":
            return {
                **node,
                "enforcer": "hook",
                "devices": self.devices,
                "kernels": self.kernels,
                "connections": 1,
                **self.node,
            }
        if op == "watch" and op not in self.refusals:
            self._watched.set()
        if "kernel_id" in question:
            self.asked.append((op, question["kernel_id"]))
        if op in self.refusals:
            code, message = self.refusals[op]
            return {"ok": False, "code": code, "message": message}
        if op == "reserve" and not self.gives_room:
            return {"ok": False, "code": "no_room", "message": "asked 0.9 GPU, 0.75 free on gpu0"}
        if op in ("reserve", "resize"):
            return {"ok": True, "grant": self._hold(question)}
        return {"ok": True, "released": False}

    def _hold(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Hold the kernel on the first device, and return its grant."""
        kernel_id, hundredths = asked["kernel_id"], asked["hundredths"]
        held = next((one for one in self.kernels if one["kernel_id"] == kernel_id), None)
        if held is None:
            held = kernel(kernel_id, asked["owner"], label=asked["label"], generation=0)
            self.kernels.append(held)
        limit = asked["memory_limit"]
        quota = 16 * GIB * hundredths // 100 if limit is None else limit
        held.update(hundredths=hundredths, memory_limit=limit, workload_class=asked["workload_class"])
        held["generation"] += 1
        held["devices"][0].update(hundredths=hundredths, quota_bytes=quota)
        part = {"uuid": UUID, "index": 0, "hundredths": hundredths, "quota_bytes": quota}
        same = ("kernel_id", "owner", "generation", "hundredths", "memory_limit", "workload_class")
        folder = str(self._path.parent / "kernels" / kernel_id)
        return {**{name: held[name] for name in same}, "node": "n", "devices": [part], "kernel_dir": folder, "env": {}}
