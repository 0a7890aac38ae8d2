"""jupyter-resource-usage, unmodified, beside Aliquot: it shows the CPU and memory of a kernel behind a relay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from traitlets.config import Config

from .conftest import ROOT, Ask
from .fake_agent import FakeAgent, device
from .test_contract import until

# Kept out of the environment by tools/setup.py: its extension would run in each server of the tests.
PACKAGE = ROOT / "build" / "resource-usage"


@pytest.fixture
def jp_server_config(jp_server_config: Config, monkeypatch: pytest.MonkeyPatch) -> Config:
    assert Path(PACKAGE, "jupyter_resource_usage").is_dir(), "python3 tools/setup.py test fetches it"
    monkeypatch.setattr(sys, "path", [*sys.path, str(PACKAGE)])
    extensions = {**jp_server_config.ServerApp.jpserver_extensions, "jupyter_resource_usage": True}
    jp_server_config.ServerApp.jpserver_extensions = extensions
    return jp_server_config


async def test_it_shows_a_sized_kernels_process(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    an_agent.gives_room = True
    await an_agent.start()
    kernel_id = (await ask("ada", "POST", "api/kernels", body={"name": "python3.gpu-0.25"})).json["id"]

    async def state() -> str:
        return str((await ask("ada", "GET", "api/kernels", kernel_id)).json["execution_state"])

    await until(state, lambda found: found == "idle")
    answer = await ask("ada", "GET", f"api/metrics/v1/kernel_usage/get_usage/{kernel_id}")
    assert answer.status == 200
    assert answer.json["content"]["kernel_memory"] > 1 << 20, answer.json
    assert answer.json["kernel_id"] == kernel_id
    whole = await ask("ada", "GET", "api/metrics/v1")
    assert (whole.status, whole.json["rss"] > 0) == (200, True)
