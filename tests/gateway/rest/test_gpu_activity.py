"""A kernel whose GPU works is active for Jupyter and for the Hub, also while no cell of it runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jupyter_server.serverapp import ServerApp

from .conftest import Ask
from .fake_agent import FakeAgent, device, kernel
from .test_contract import until


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


async def test_gpu_work_between_cells_counts_as_activity(ask: Ask, a_server: ServerApp, an_agent: FakeAgent) -> None:
    an_agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    an_agent.gives_room = True
    await an_agent.start()
    kernel_id = (await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.25"})).json["id"]

    async def model() -> Any:
        return (await ask("alice", "GET", "api/kernels", kernel_id)).json

    async def seen() -> bool:
        report = (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel_id)).json
        return bool(report["busy_seconds"] == busy)

    def works(seconds: float) -> dict[str, Any]:
        found = kernel(kernel_id, "alice")
        found["devices"][0]["busy_seconds"] = seconds
        return found

    await until(model, lambda one: one["execution_state"] == "idle")
    busy = 1.5
    an_agent.kernels = [works(busy)]
    await until(seen, bool)
    before = await model()
    server_before = a_server.web_app.last_activity()
    busy = 2.5
    an_agent.kernels = [works(busy)]
    after = await until(model, lambda one: moment(one["last_activity"]) > moment(before["last_activity"]))
    assert after["execution_state"] == "idle"
    # JupyterHub's single-user server reports this moment to the Hub, whose culler reads it there.
    assert a_server.web_app.last_activity() > server_before
    assert a_server.web_app.last_activity() >= moment(after["last_activity"])

    an_agent.kernels = [works(busy)]
    await until(seen, bool)
    at_rest = await model()
    assert await model() == at_rest, "a GPU that does nothing more is no activity"
