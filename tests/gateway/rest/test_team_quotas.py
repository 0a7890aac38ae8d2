"""Teams' quotas on a real server: refusals, waits, and a file that changes while the server runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from .conftest import TOKENS, Ask, write_light_spec
from .fake_agent import FakeAgent
from .test_contract import check, until

TEAMS = """\
teams:
  vision:
    users: [alice]
    nominalQuota: 0.25
    borrowingLimit: 0.25
"""


@pytest.fixture
def quota_file(tmp_path: Path) -> Path:
    path = tmp_path / "aliquot.yaml"
    path.write_text(TEAMS)
    return path


@pytest.fixture
def jp_server_config(jp_server_config: Config, quota_file: Path, jp_data_dir: Path) -> Config:
    write_light_spec(jp_data_dir / "kernels")
    jp_server_config.Aliquot.quota_file = str(quota_file)
    return jp_server_config


def write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


async def start(ask: Ask, who: str, gpus: float) -> tuple[int, str]:
    answer = await ask(who, "POST", "api/kernels", body={"name": f"light.gpu-{gpus}"})
    return answer.status, "" if answer.status == 201 else answer.json["message"]


async def problems(ask: Ask, who: str = "ada") -> str:
    return str((await ask(who, "GET", "aliquot/api/v1/status")).json["node"]["message"])


async def test_a_team_holds_its_quota_and_what_it_borrows_and_other_users_get_nothing(
    ask: Ask, an_agent: FakeAgent
) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    assert await start(ask, "alice", 0.5) == (201, "")
    status, message = await start(ask, "alice", 0.75)
    assert status == 403
    assert message.startswith(
        "Requested 0.75 GPU, but the team vision may hold 0.5 at most, with all that it may borrow"
    )
    status, message = await start(ask, "bob", 0.25)
    assert status == 403
    assert message.startswith(
        "Requested 0.25 GPU, but no team of the quota file has the user bob. Ask an administrator"
    )


async def test_a_file_that_changes_is_in_force_without_a_restart_and_a_bad_one_is_told(
    ask: Ask, an_agent: FakeAgent, quota_file: Path
) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    assert (await start(ask, "bob", 0.25))[0] == 403
    write(quota_file, f"{TEAMS}  rest:\n    user: [bob]\n")

    await until(lambda: problems(ask), lambda told: "teams.rest.user is no known key. Use users" in told)
    assert (await start(ask, "bob", 0.25))[0] == 403, "the last good file is in force"
    write(quota_file, f"{TEAMS}  rest:\n    users: [bob]\n    nominalQuota: 9\n")

    wanted = "come to 9.25 GPUs (vision 0.25, rest 9), and there are 1."
    await until(lambda: problems(ask), lambda told: wanted in told)
    assert (await start(ask, "bob", 0.25))[0] == 201


async def test_users_are_told_of_errors_in_the_file_without_its_lines(
    ask: Ask, an_agent: FakeAgent, quota_file: Path
) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    write(quota_file, f"{TEAMS}  rest:\n    users: [alice]\n    nominalQuota: 9\n")
    await until(lambda: problems(ask), lambda told: "teams.rest.users names 'alice'" in told)
    told = await problems(ask, "bob")
    assert "The quota file has errors" in told
    assert [word for word in (str(quota_file), "alice", "vision", "rest") if word in told] == []
    write(quota_file, f"{TEAMS}  rest:\n    users: [carla]\n    nominalQuota: 9\n")

    await until(lambda: problems(ask), lambda told: "come to 9.25 GPUs (vision 0.25, rest 9)" in told)
    told = await problems(ask, "bob")
    assert [word for word in ("quota", "vision", "rest") if word in told] == []


async def test_a_file_with_several_errors_has_a_line_for_each_also_in_aliquot_status(
    ask: Ask, a_server: Any, an_agent: FakeAgent, quota_file: Path, runtime_dir: Path
) -> None:
    await an_agent.start()
    write(quota_file, f"{TEAMS}  rest:\n    user: [bob]\n    nominalquota: 9\n")
    told = await until(lambda: problems(ask), lambda told: "teams.rest.nominalquota" in told)
    lines = told.splitlines()
    assert lines[0] == "The last good quota file is in force, for the present one has errors:"
    assert [line.partition(" is ")[0].rpartition(" ")[2] for line in lines[1:]] == [
        "teams.rest.user",
        "teams.rest.nominalquota",
    ]
    done = await run(a_server, "ada", "status", ALIQUOT_RUNTIME_DIR=str(runtime_dir))
    assert done.stdout.splitlines()[: len(lines)] == lines, done.stderr


async def get(ask: Ask, who: str, path: str) -> Any:
    return check(await ask(who, "GET", f"/aliquot/api/v1/{path}"), f"/aliquot/api/v1/{path}")


async def test_users_see_their_team_and_administrators_all_teams(
    ask: Ask, an_agent: FakeAgent, quota_file: Path
) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    write(quota_file, f"organization: Lab\n{TEAMS}  rest: {{users: ['*'], nominalQuota: 0.5, queueOrder: srtf}}\n")
    reload = "/aliquot/api/v1/quota/reload"
    assert (await ask("alice", "POST", reload, body={})).status == 403
    assert check(await ask("ada", "POST", reload, body={}), reload, "post")["organization"] == "Lab"
    await holds(ask, 0.5)
    own = (await get(ask, "alice", "quota"))["teams"]
    assert [(team["name"], team["is_yours"]) for team in own] == [("vision", True)]
    assert own[0]["gpus"] == [
        {
            "model": None,
            "nominal_gpus": 0.25,
            "held_gpus": 0.5,
            "borrowed_gpus": 0.25,
            "available_gpus": 0.0,
            "borrowing_limit_gpus": 0.25,
            "lending_limit_gpus": None,
        }
    ]
    assert [team["name"] for team in (await get(ask, "bob", "quota"))["teams"]] == ["rest"]
    every = await get(ask, "ada", "quota")
    assert {team["name"]: team["queue_order"] for team in every["teams"]} == {"vision": None, "rest": "srtf"}
    assert [team["name"] for team in every["teams"]] == ["vision", "rest"]
    assert (every["file"], (await get(ask, "alice", "quota"))["file"]) == (str(quota_file), None)


async def test_what_a_team_had_beyond_its_quota_is_told_while_it_counts(
    ask: Ask, an_agent: FakeAgent, quota_file: Path
) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    await holds(ask, 0.5)
    without = await get(ask, "alice", "quota")
    assert (without["usage_half_life_seconds"], without["teams"][0]["past_use"]) == (None, None)
    write(quota_file, f"queue: {{usageHalfLife: 1s}}\n{TEAMS}")
    await ask("ada", "POST", "/aliquot/api/v1/quota/reload", body={})

    def is_told(quota: Any) -> bool:
        return bool(quota["teams"][0]["past_use"])

    told = await until(lambda: get(ask, "alice", "quota"), is_told)
    assert told["usage_half_life_seconds"] == 1.0
    assert 0 < told["teams"][0]["past_use"] <= 0.25, "a quarter of the one GPU is borrowed"


async def holds(ask: Ask, gpus: float) -> None:
    """Start a kernel of alice, and wait until it has its GPU."""
    assert (await start(ask, "alice", gpus))[0] == 201

    def is_held(quota: Any) -> bool:
        return any(team["gpus"][0]["held_gpus"] == gpus for team in quota["teams"])

    await until(lambda: get(ask, "alice", "quota"), is_held)


async def waits(ask: Ask, who: str) -> asyncio.Task[Any]:
    """Start a kernel that has to wait, and wait until it does."""
    task = asyncio.ensure_future(ask(who, "POST", "api/kernels", body={"name": "light.gpu-0.25"}))
    await until(lambda: get(ask, who, "queue"), lambda queue: len(queue["requests"]) == 1)
    return task


async def test_a_request_that_lacks_quota_is_told_in_the_queue_to_its_user(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    await holds(ask, 0.5)
    task = await waits(ask, "alice")
    (told,) = (await get(ask, "alice", "queue"))["requests"]
    assert (told["position"], told["team"], told["kind"], told["wait_reason"]["code"]) == (
        1,
        "vision",
        "start",
        "team_quota",
    )
    assert "the team vision holds 0.5 of its quota of 0.25 GPU" in told["reason"]
    assert (await get(ask, "bob", "queue")) == {"length": 1, "requests": []}
    assert len((await get(ask, "ada", "queue"))["requests"]) == 1
    task.cancel()


async def run(a_server: Any, who: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `aliquot` as this user, as in the terminal of a server in gateway mode."""
    url = f"http://127.0.0.1:{a_server.port}{a_server.base_url}"
    env = {
        **os.environ,
        "JUPYTER_GATEWAY_URL": url,
        "JUPYTER_GATEWAY_AUTH_TOKEN": TOKENS[who],
        "COLUMNS": "200",
        **more,
    }
    command = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", *words]
    return await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True, timeout=120)


async def test_the_commands_show_quotas_and_queue_and_reload(
    ask: Ask, a_server: Any, an_agent: FakeAgent, quota_file: Path
) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    await holds(ask, 0.5)
    task = await waits(ask, "alice")
    shown = await run(a_server, "alice", "quota")
    assert shown.returncode == 0, shown.stderr
    assert "vision (yours)" in shown.stdout
    queue = await run(a_server, "alice", "queue")
    assert "1 of 1" in queue.stdout, queue.stderr
    assert "vision" in queue.stdout
    write(quota_file, f"{TEAMS}  rest: {{user: [bob]}}\n")
    refused = await run(a_server, "ada", "quota", "reload")
    assert refused.returncode == 1
    assert f"{quota_file}:6: teams.rest.user is no known key. Use users" in refused.stderr
    write(quota_file, f"{TEAMS}  rest: {{users: [bob]}}\n")
    done = await run(a_server, "ada", "quota", "reload")
    assert (done.returncode, "rest" in done.stdout) == (0, True), done.stderr
    task.cancel()
