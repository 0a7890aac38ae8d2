"""Budgets on a real server: what refuses a start, a size and a dry run, and where users see it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from .conftest import Ask, write_light_spec
from .fake_agent import FakeAgent, kernel
from .test_contract import check, until

FILE = """\
teams:
  vision: {users: [alice]}
  everyone: {users: ["*"]}
budgets:
  users:
    alice: {gpuHours: 0.0001, period: day, atLimit: refuse}
  teams:
    vision: {gpuHours: 1000}
"""


@pytest.fixture
def jp_server_config(jp_server_config: Config, tmp_path: Path, jp_data_dir: Path) -> Config:
    write_light_spec(jp_data_dir / "kernels")
    path = tmp_path / "aliquot.yaml"
    path.write_text(FILE)
    jp_server_config.Aliquot.quota_file = str(path)
    jp_server_config.Accounting.path = str(tmp_path / "accounting.sqlite")
    # Once a charge is counted, it stays: a test does not hurry before a second of a day ends.
    jp_server_config.Accounting.charge_by = "use"
    jp_server_config.Accounting.priority_weights = {"low": 0.5}
    return jp_server_config


async def budgets(ask: Ask, who: str, path: str = "status") -> dict[str, Any]:
    report = check(await ask(who, "GET", f"aliquot/api/v1/{path}"), f"/aliquot/api/v1/{path}")
    found = report["user"]["budgets"] if path == "status" else report["budgets"]
    return {f"{one['kind']} {one['name']}": one for one in found}


async def spend(ask: Ask, an_agent: FakeAgent) -> None:
    """Let alice use a second of GPU time, which is more than her budget, and wait until it is counted."""
    an_agent.gives_room = True
    await an_agent.start()
    await ask("alice", "GET", "aliquot/api/v1/status")
    used = kernel("k1", "alice", created=time.time())
    used["devices"][0]["compute"] = {"own_seconds": 1.0, "throttled_seconds": 0.0, "pace": "open"}
    an_agent.kernels = [used]
    an_agent.tell_status()
    await until(lambda: budgets(ask, "alice"), lambda found: found["user alice"]["state"] == "exceeded")


async def test_a_budget_that_is_used_up_refuses_starts_and_dry_runs_and_is_seen(ask: Ask, an_agent: FakeAgent) -> None:
    await spend(ask, an_agent)
    refused = await ask("alice", "POST", "api/kernels", body={"name": "light.gpu-0.25"})
    assert refused.status == 403
    assert "alice has used 0.0003 of the 0.0001 GPU-hours of today's budget. It renews on" in refused.json["message"]
    dry = await ask("alice", "GET", "aliquot/api/v1/dry-run", params={"gpus": "0.25"})
    assert dry.json["outcome"] == "never"
    assert "GPU-hours of today's budget" in dry.json["message"]
    for path in ("status", "sizes", "usage"):
        seen = await budgets(ask, "alice", path)
        assert (seen["user alice"]["state"], seen["team vision"]["state"]) == ("exceeded", "ok")
    assert (await ask("alice", "POST", "api/kernels", body={"name": "light"})).status == 201
    assert (await ask("bob", "POST", "api/kernels", body={"name": "light.gpu-0.25"})).status == 201


async def test_users_see_their_own_budgets_and_administrators_all(ask: Ask, an_agent: FakeAgent) -> None:
    await spend(ask, an_agent)
    assert await budgets(ask, "bob", "usage") == {}
    assert set(await budgets(ask, "ada", "usage")) == {"user alice", "team vision"}
    assert await budgets(ask, "ada") == {}


async def test_a_larger_size_is_refused_and_a_smaller_one_is_not(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    # Before the first look no use is known, and nothing is admitted.
    await until(lambda: budgets(ask, "alice"), lambda found: found["user alice"]["message"] is None)
    started = await ask("alice", "POST", "api/kernels", body={"name": "light.gpu-0.5"})
    assert started.status == 201
    path = f"aliquot/api/v1/kernels/{started.json['id']}"
    # The agent knows the kernel, and that it used its time.
    await until(lambda: ask("alice", "GET", "aliquot/api/v1/status"), lambda _: bool(an_agent.kernels))
    [held] = an_agent.kernels
    held["created"] = time.time()
    held["devices"][0]["compute"] = {"own_seconds": 1.0, "throttled_seconds": 0.0, "pace": "open"}
    an_agent.tell_status()
    await until(lambda: budgets(ask, "alice"), lambda found: found["user alice"]["state"] == "exceeded")
    # Until the kernel has started, its size cannot be changed at all.
    larger = await until(lambda: ask("alice", "PATCH", path, body={"gpus": 0.75}), lambda found: found.status != 409)
    assert (larger.status, "today's budget" in larger.json["message"]) == (403, True)
    assert (await ask("alice", "PATCH", path, body={"gpus": 0.25})).status == 200
    assert (await ask("alice", "PATCH", path, body={"priority": "low"})).status == 200
    heavier = await ask("alice", "PATCH", path, body={"priority": "normal"})
    assert (heavier.status, "today's budget" in heavier.json["message"]) == (403, True)
    dry = await ask(
        "alice", "GET", "aliquot/api/v1/dry-run", params={"kernel": started.json["id"], "priority": "normal"}
    )
    assert (dry.json["outcome"], "today's budget" in dry.json["message"]) == ("never", True)
