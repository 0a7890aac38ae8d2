"""Cordons over REST and by the commands: who may, what users read, what is kept and audited."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_aliquot.gateway.api.base import SETTING
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.nodes.cordons import LONGEST_REASON, Cordons
from jupyter_aliquot.provisioner.errors import StateError

from .conftest import TOKENS, Ask, write_light_spec
from .fake_agent import UUID, FakeAgent, kernel
from .test_contract import check, until

LOG = logging.getLogger(__name__)
NODE = "a node"  # the fake agent's
PATH = f"/aliquot/api/v1/nodes/{NODE}"  # the fetcher quotes it


class SetClock(SystemClock):
    """A clock whose wall time a test sets."""

    seconds = 1000.0

    def wall(self) -> float:
        return self.seconds


@pytest.fixture
def jp_server_config(jp_server_config: Config, jp_data_dir: Path, tmp_path: Path) -> Config:
    write_light_spec(jp_data_dir / "kernels")
    jp_server_config.Aliquot.state_dir = str(tmp_path / "state")
    return jp_server_config


async def known(ask: Ask) -> None:
    """Wait until the gateway knows its node."""
    await until(lambda: asked(ask, "ada", "status"), lambda status: status["node"]["name"] == NODE)


async def asked(ask: Ask, who: str, path: str, **params: str) -> Any:
    return check(await ask(who, "GET", f"/aliquot/api/v1/{path}", params=params), f"/aliquot/api/v1/{path}")


async def post(ask: Ask, verb: str, **body: Any) -> Any:
    template = f"/aliquot/api/v1/nodes/{{name}}/{verb}"
    return check(await ask("ada", "POST", f"{PATH}/{verb}", body=body), template, "post")


async def test_one_gpu_is_cordoned_by_its_uuid(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    await known(ask)
    template, path = "/aliquot/api/v1/nodes/{name}", f"/aliquot/api/v1/nodes/{UUID}"
    told = check(await ask("ada", "POST", f"{path}/cordon", body={"reason": "ECC"}), f"{template}/cordon", "post")
    assert (told["name"], told["cordon"]["reason"], told["cordoned_by"]) == (UUID, "ECC", "ada")
    task = asyncio.ensure_future(ask("alice", "POST", "api/kernels", body={"name": "light.gpu-0.25"}))
    queue = await until(lambda: asked(ask, "alice", "queue"), lambda queue: queue["length"] == 1)
    assert queue["requests"][0]["wait_reason"]["code"] == "cordoned"
    check(await ask("ada", "POST", f"{path}/uncordon", body={}), f"{template}/uncordon", "post")
    assert (await task).status == 201
    assert (await ask("ada", "POST", "/aliquot/api/v1/nodes/GPU-none/cordon", body={})).status == 404


async def test_a_cordoned_node_is_told_to_all_and_starts_nothing(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    await known(ask)
    told = await post(ask, "cordon", reason="new  driver\n")
    assert told["cordoned_by"] == "ada"
    want = {"since": told["cordon"]["since"], "reason": "new driver", "draining": False}
    assert told["cordon"] == want
    assert (await asked(ask, "alice", "status"))["node"]["cordon"] == want
    assert (await asked(ask, "alice", "nodes"))["cordon"] == want
    task = asyncio.ensure_future(ask("alice", "POST", "api/kernels", body={"name": "light.gpu-0.25"}))
    queue = await until(lambda: asked(ask, "alice", "queue"), lambda queue: queue["length"] == 1)
    assert queue["requests"][0]["wait_reason"]["code"] == "cordoned"
    run = await asked(ask, "alice", "dry-run", gpus="0.25")
    assert (run["outcome"], "has cordoned the node a node" in run["message"]) == ("queued", True)
    metrics = (await ask("ada", "GET", "aliquot/api/v1/metrics")).body.decode()
    assert 'aliquot_node_cordoned{node="a node"} 1.0' in metrics
    assert (await post(ask, "uncordon"))["cordon"] is None
    assert (await task).status == 201
    assert (await asked(ask, "alice", "status"))["node"]["cordon"] is None


async def test_a_drain_lists_what_stays_and_why(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True
    an_agent.kernels = [kernel("other", "carol")]
    await an_agent.start()
    await known(ask)
    (staying,) = (await post(ask, "drain"))["kernels"]
    assert (staying["kernel_id"], staying["state"]) == ("other", "stays")
    assert "another program of that machine has it" in staying["reason"]
    told = check(await ask("ada", "GET", PATH), "/aliquot/api/v1/nodes/{name}")
    assert told["cordon"]["draining"]


async def test_a_cordon_of_an_unknown_node_or_with_a_bad_body_changes_nothing(ask: Ask, an_agent: FakeAgent) -> None:
    await an_agent.start()
    await known(ask)
    refused = await ask("ada", "POST", "aliquot/api/v1/nodes/elsewhere/cordon", body={})
    assert (refused.status, refused.json["message"]) == (
        404,
        "Requested the node elsewhere, but the nodes are a node",
    )
    for body in ({"reason": 1}, {"why": "x"}, {"reason": "x" * (LONGEST_REASON + 1)}):
        assert (await ask("ada", "POST", f"{PATH}/cordon", body=body)).status == 400
    assert (await asked(ask, "ada", "status"))["node"]["cordon"] is None


async def test_cordons_are_audited_and_outlive_the_gateway(ask: Ask, an_agent: FakeAgent, tmp_path: Path) -> None:
    await an_agent.start()
    await known(ask)
    await post(ask, "cordon", reason="fan")
    await post(ask, "drain", reason="fan")
    (path,) = (tmp_path / "state").rglob("cordons.json")
    found = Cordons(path, SystemClock(), LOG).of(NODE)
    assert found is not None
    assert (found.by, found.reason, found.is_draining) == ("ada", "fan", True)
    await post(ask, "uncordon")
    assert Cordons(path, SystemClock(), LOG).of(NODE) is None
    lines = [json.loads(line) for line in (path.parent / "audit.jsonl").read_text().splitlines()]
    assert [(one["action"], one["subject"], one["by"], one["detail"]) for one in lines] == [
        ("cordon", NODE, "ada", "fan"),
        ("drain", NODE, "ada", "fan"),
        ("uncordon", NODE, "ada", "fan"),
    ]
    assert {one["__schema__"] for one in lines} == {"https://schema.aliquot.dev/administration"}


async def test_a_drain_that_is_repeated_keeps_its_reason_its_user_and_its_time(tmp_path: Path) -> None:
    changes: list[tuple[Any, ...]] = []
    clock = SetClock()
    cordons = Cordons(tmp_path / "cordons.json", clock, LOG)
    cordons.observe(lambda *change: changes.append(change))
    await cordons.cordon(NODE, "root", "new driver")
    await cordons.cordon(NODE, "root", is_draining=True)
    first = cordons.of(NODE)
    assert first is not None
    assert (first.reason, first.is_draining) == ("new driver", True), "a drain keeps the reason of the cordon"
    clock.seconds += 60
    assert await cordons.cordon(NODE, "eve", is_draining=True) == first
    assert await cordons.cordon(NODE, "eve", "new  driver", is_draining=True) == first
    assert len(changes) == 2, "no other audit line"
    other = await cordons.cordon(NODE, "eve", "fan", is_draining=True)
    assert (other.by, other.reason, other.since) == ("eve", "fan", first.since)


@pytest.mark.parametrize("text", ["", "{", '{"nodes": 1}', '{"nodes": {"n": {"by": "a", "since": "x"}}}', "[" * 99999])
def test_a_file_of_cordons_that_cannot_be_read_is_set_aside(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cordons.json"
    path.write_text(text)
    cordons = Cordons(path, SystemClock(), LOG)
    assert cordons.all == {}
    assert "were damaged, and no node is cordoned" in cordons.problem
    assert not path.exists()
    assert [one.read_text() for one in tmp_path.iterdir()] == [text]


async def test_a_file_of_cordons_that_was_cut_off_at_any_byte_is_set_aside_and_told(tmp_path: Path) -> None:
    path = tmp_path / "cordons.json"
    await Cordons(path, SystemClock(), LOG).cordon(NODE, "ada", "fan")
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        cordons = Cordons(path, SystemClock(), LOG)
        assert cordons.all == {}
        assert "were damaged" in cordons.problem
        assert not path.exists()
    path.write_bytes(whole)
    assert set(Cordons(path, SystemClock(), LOG).all) == {NODE}


async def test_a_file_of_cordons_that_cannot_be_read_now_stays_and_is_read_before_a_change(tmp_path: Path) -> None:
    path, away = tmp_path / "cordons.json", tmp_path / "away.json"
    await Cordons(path, SystemClock(), LOG).cordon("other", "ada", "fan")
    path.rename(away)
    path.mkdir()  # each reading of it is an OSError, for root, too
    cordons = Cordons(path, SystemClock(), LOG)
    assert "cannot be read (Is a directory), and no node is cordoned" in cordons.problem
    with pytest.raises(StateError, match="Nothing changed"):
        await cordons.cordon(NODE, "ada")
    assert path.is_dir(), "it is not set aside"
    path.rmdir()
    away.rename(path)
    await cordons.cordon(NODE, "ada")
    assert (set(cordons.all), cordons.problem) == ({"other", NODE}, "")
    assert set(Cordons(path, SystemClock(), LOG).all) == {"other", NODE}


async def test_administrators_read_in_the_status_that_cordons_are_lost(
    ask: Ask, a_server: Any, an_agent: FakeAgent
) -> None:
    await an_agent.start()
    await known(ask)
    [extension] = a_server.extension_manager.extension_apps["jupyter_aliquot.gateway"]
    extension.settings[SETTING].cordons.problem = "The cordons were damaged"
    assert "The cordons were damaged." in (await asked(ask, "ada", "status"))["node"]["message"]
    assert "damaged" not in ((await asked(ask, "alice", "status"))["node"]["message"] or "")


async def test_administrators_read_in_the_status_which_cordons_are_of_no_known_node(
    ask: Ask, a_server: Any, an_agent: FakeAgent
) -> None:
    await an_agent.start()
    await known(ask)
    [extension] = a_server.extension_manager.extension_apps["jupyter_aliquot.gateway"]
    await post(ask, "cordon", reason="fan")
    assert (await asked(ask, "ada", "status"))["node"]["message"] is None, "this node is there"
    await extension.settings[SETTING].cordons.cordon("former-name", "ada")
    message = (await asked(ask, "ada", "status"))["node"]["message"]
    assert "former-name is cordoned, and no node or GPU of this name is known" in message
    assert "aliquot uncordon former-name" in message
    assert (await asked(ask, "alice", "status"))["node"]["message"] is None
    await extension.settings[SETTING].cordons.uncordon("former-name", "ada")
    assert (await asked(ask, "ada", "status"))["node"]["message"] is None


async def run(a_server: Any, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `aliquot` as the administrator, as in the terminal of a server in gateway mode."""
    url = f"http://127.0.0.1:{a_server.port}{a_server.base_url}"
    env = {**os.environ, "JUPYTER_GATEWAY_URL": url, "JUPYTER_GATEWAY_AUTH_TOKEN": TOKENS["ada"], "COLUMNS": "200"}
    command = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", *words]
    return await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True, timeout=120)


async def test_the_commands_cordon_drain_and_uncordon(ask: Ask, a_server: Any, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("other", "carol")]
    await an_agent.start()
    await known(ask)
    told = await run(a_server, "cordon", NODE, "--reason", "new driver")
    assert "node a node is cordoned: nothing new starts there" in told.stdout, told.stderr
    assert "(new driver)" in told.stdout
    told = await run(a_server, "drain", NODE)
    assert "node a node is drained: its kernels are swapped out, and none starts there" in told.stdout, told.stderr
    assert "another program of that machine has it" in told.stdout
    told = await run(a_server, "node", NODE, "--json")
    report = json.loads(told.stdout)
    assert report["cordon"]["draining"], told.stderr
    assert (report["cordon"]["reason"], report["cordoned_by"]) == ("new driver", "ada")
    told = await run(a_server, "uncordon", NODE, "--json")
    assert json.loads(told.stdout)["cordon"] is None, told.stderr
    refused = await run(a_server, "cordon", "elsewhere")
    assert (refused.returncode, "the nodes are a node" in refused.stderr) == (1, True)
    assert (await run(a_server, "cordon")).returncode == 2
