"""Teams' quotas on a real server: refusals, waits, and a file that changes while the server runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from traitlets.config import Config

from .conftest import Ask, write_light_spec
from .fake_agent import FakeAgent
from .test_contract import until

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


async def problems(ask: Ask) -> str:
    return str((await ask("ada", "GET", "aliquot/api/v1/status")).json["node"]["message"])


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
