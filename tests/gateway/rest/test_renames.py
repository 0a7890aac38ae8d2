"""A notebook that is renamed has its new name in the status, the queue and the nodes, in REST and commands."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from .conftest import TOKENS, Ask, write_light_spec
from .fake_agent import UUID, FakeAgent
from .test_contract import check, until

NODE = "a node"


@pytest.fixture
def jp_server_config(jp_server_config: Config, jp_data_dir: Path) -> Config:
    write_light_spec(jp_data_dir / "kernels")
    return jp_server_config


async def asked(ask: Ask, path: str, who: str = "ada") -> Any:
    return check(await ask(who, "GET", f"/aliquot/api/v1/{path}"), f"/aliquot/api/v1/{path.partition('/')[0]}")


async def rename(ask: Ask, session: str, path: str) -> None:
    body = {"path": path, "name": path.rpartition("/")[2], "type": "notebook"}
    assert (await ask("alice", "PATCH", "api/sessions", session, body=body)).status == 200


async def start(ask: Ask, path: str, gpus: float) -> Any:
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": f"light.gpu-{gpus}"}}
    answer = await ask("alice", "POST", "api/sessions", body=body)
    assert answer.status == 201, answer
    return answer.json


async def run(a_server: ServerApp, runtime: Path, *words: str) -> str:
    url = f"http://127.0.0.1:{a_server.port}{a_server.base_url}"
    env = {**os.environ, "JUPYTER_GATEWAY_URL": url, "JUPYTER_GATEWAY_AUTH_TOKEN": TOKENS["ada"], "COLUMNS": "240"}
    env["ALIQUOT_RUNTIME_DIR"] = str(runtime)
    command = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", *words]
    done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_renamed_notebook_has_its_new_name_everywhere(
    ask: Ask, a_server: ServerApp, an_agent: FakeAgent, runtime_dir: Path
) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    await until(lambda: asked(ask, "status"), lambda status: status["node"]["name"] == NODE)
    runs = await start(ask, "old.ipynb", 0.25)
    await until(lambda: asked(ask, "status"), lambda status: status["kernels"][0]["devices"])
    await rename(ask, runs["id"], "work/new.ipynb")
    assert an_agent.kernels[0]["label"] == "old.ipynb", "the agent has the name at the start"

    shown = await run(a_server, runtime_dir, "status")
    assert ("work/new.ipynb" in shown, "old.ipynb" in shown) == (True, False), shown
    told = await run(a_server, runtime_dir, "status", "--json")
    assert ("work/new.ipynb" in told, "old.ipynb" in told) == (True, False), told
    for path in (f"nodes/{NODE}", f"nodes/{UUID}"):
        answer = await ask("ada", "GET", f"/aliquot/api/v1/{path}")
        assert [one["label"] for one in answer.json["kernels"]] == ["work/new.ipynb"], path


async def test_a_request_that_waits_has_the_new_name_of_its_notebook(
    ask: Ask, a_server: ServerApp, an_agent: FakeAgent, runtime_dir: Path
) -> None:
    await an_agent.start()
    await until(lambda: asked(ask, "status"), lambda status: status["node"]["name"] == NODE)
    task = asyncio.ensure_future(start(ask, "old.ipynb", 0.5))
    await until(lambda: asked(ask, "queue"), lambda queue: queue["length"] == 1)
    waits = await task
    await rename(ask, waits["id"], "work/new.ipynb")
    [request] = (await asked(ask, "queue"))["requests"]
    assert request["label"] == "work/new.ipynb"
    shown = await run(a_server, runtime_dir, "queue")
    assert ("work/new.ipynb" in shown, "old.ipynb" in shown) == (True, False), shown
