"""The history of a real server: its answers by user, their form, and its refusals."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from .conftest import Answer, Ask
from .fake_agent import UUID, FakeAgent, kernel
from .test_contract import check

HISTORY = "/aliquot/api/v1/history"
LOOKS = 1500


@pytest.fixture
def jp_server_config(jp_server_config: Config, tmp_path: Path) -> Config:
    jp_server_config.History.sample_seconds = 0.01
    jp_server_config.History.path = str(tmp_path / "usage.sqlite")
    return jp_server_config


@pytest.fixture
def no_history(jp_server_config: Config) -> None:
    """Disable the history before the server is made."""
    jp_server_config.History.enabled = False


def working(kernel_id: str, owner: str, **other: Any) -> dict[str, Any]:
    return kernel(kernel_id, owner, attributes={"kernelspec": "python3.gpu-0.25"}, **other)


async def ask_until_known(ask: Ask, who: str, *wanted: str) -> Any:
    """Return the history once these kernels are in it."""
    for _ in range(LOOKS):
        found = check(await ask(who, "GET", "aliquot/api/v1/history"), HISTORY)
        if {one["id"] for one in found["kernels"]} >= set(wanted):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"never known; last: {found}")


async def test_each_user_reads_their_own_kernels_and_all_devices(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [working("k1", "alice"), working("k2", "bob"), working("k3", "")]
    await an_agent.start()
    told = await ask_until_known(ask, "ada", "k1", "k2", "k3")
    assert [one["uuid"] for one in told["devices"]] == [UUID]
    for who, want in {"alice": ["k1"], "bob": ["k2"]}.items():
        mine = check(await ask(who, "GET", "aliquot/api/v1/history"), HISTORY)
        assert [one["id"] for one in mine["kernels"]] == want
        assert [one["uuid"] for one in mine["devices"]] == [UUID]
        assert mine["omitted"] == 0
        named = {"kernel": "k2"}
        asked = check(await ask(who, "GET", "aliquot/api/v1/history", params=named), HISTORY)
        assert [one["owner"] for one in asked["kernels"]] == (["bob"] if who == "bob" else [])
        cells = (await ask(who, "GET", "aliquot/api/v1/history", params={"format": "csv"})).body.decode()
        assert {row["owner"] for row in csv.DictReader(io.StringIO(cells)) if row["kind"] == "kernel"} == {who}
    assert (await ask("nobody", "GET", "aliquot/api/v1/history")).status == 403


async def test_a_kernel_that_ended_is_still_told_with_its_size(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [working("k1", "alice", label="=train.ipynb")]
    await an_agent.start()
    await ask_until_known(ask, "alice", "k1")
    an_agent.kernels = []
    for name in ("day", "week"):
        answer = await ask("alice", "GET", "aliquot/api/v1/history", params={"range": name})
        [found] = check(answer, HISTORY)["kernels"]
        want = {"label": "=train.ipynb", "gpus": 0.25, "name": "python3.gpu-0.25", "priority": "normal"}
        assert {key: found[key] for key in want} == want
        assert [value for value in found["figures"]["used_bytes"]["mean"] if value is not None]


async def test_csv_comes_by_accept_too_and_begins_no_formula(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [working("k1", "alice", label='=HYPERLINK("x")')]
    await an_agent.start()
    await ask_until_known(ask, "alice", "k1")

    async def table(**more: Any) -> Answer:
        found: Answer = await ask("alice", "GET", "aliquot/api/v1/history", **more)
        return found

    asked = [await table(params={"format": "csv"}), await table(headers={"Accept": "text/csv"})]
    for answer in asked:
        assert (answer.status, answer.media_type) == (200, "text/csv")
        assert "attachment" in answer.headers["Content-Disposition"]
        labels = {row["label"] for row in csv.DictReader(io.StringIO(answer.body.decode())) if row["id"] == "k1"}
        assert labels == {'\'=HYPERLINK("x")'}
    assert (await table(params={"format": "json"}, headers={"Accept": "text/csv"})).media_type == "application/json"


@pytest.mark.parametrize("params", [{"range": "year"}, {"range": "%s"}, {"format": "xml"}])
async def test_what_cannot_be_asked_is_refused_with_what_can(ask: Ask, params: dict[str, str]) -> None:
    answer = await ask("alice", "GET", "aliquot/api/v1/history", params=params)
    assert answer.status == 400
    [(name, asked)] = params.items()
    assert f"Requested the {name} {asked!r}, which does not exist. Use one of" in json.loads(answer.body)["message"]


async def test_the_file_is_where_it_was_wanted_and_for_its_owner_alone(
    ask: Ask, an_agent: FakeAgent, tmp_path: Path
) -> None:
    an_agent.kernels = [working("k1", "alice")]
    await an_agent.start()
    await ask_until_known(ask, "alice", "k1")
    assert stat.S_IMODE((tmp_path / "usage.sqlite").stat().st_mode) == 0o600


async def test_a_history_that_is_switched_off_is_said_and_leaves_no_file(
    no_history: None, ask: Ask, an_agent: FakeAgent, tmp_path: Path
) -> None:
    await an_agent.start()
    answer = await ask("alice", "GET", "aliquot/api/v1/history")
    assert answer.status == 503
    assert "c.History.enabled" in json.loads(answer.body)["message"]
    assert not (tmp_path / "usage.sqlite").exists()
