"""The accounting of a real server: its answers by user, their form, and its refusals."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import threading
import time
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_aliquot.gateway.accounting import query, questions
from jupyter_aliquot.gateway.accounting.questions import _read
from jupyter_aliquot.gateway.accounting.recorder import UsageAccounting

from .conftest import Ask
from .fake_agent import FakeAgent, kernel
from .test_contract import check
from .test_team_quotas import run

USAGE = "/aliquot/api/v1/usage"
LOOKS = 1500


@pytest.fixture
def jp_server_config(jp_server_config: Config, tmp_path: Path) -> Config:
    jp_server_config.Accounting.path = str(tmp_path / "accounting.sqlite")
    return jp_server_config


@pytest.fixture
def no_accounting(jp_server_config: Config) -> None:
    """Switch the accounting off before the server is made."""
    jp_server_config.Accounting.enabled = False


async def told(ask: Ask, who: str, **params: Any) -> Any:
    return check(await ask(who, "GET", "aliquot/api/v1/usage", params=params), USAGE)


def working(kernel_id: str, owner: str, own: float, **other: Any) -> dict[str, Any]:
    """Return a kernel that began now, with so many seconds of GPU time."""
    made = kernel(kernel_id, owner, created=time.time(), **other)
    compute = {"own_seconds": own, "throttled_seconds": 0.0, "pace": "open"}
    made["devices"][0]["compute"] = compute
    return made


async def until_counted(ask: Ask, who: str, *users: str) -> Any:
    """Return the report once these users' kernels were used."""
    for _ in range(LOOKS):
        found = await told(ask, who)
        used = {row["user"] for row in found["rows"] if row["gpu_hours"]["working"] > 0}
        if used >= set(users):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"never counted; last: {found}")


async def begin(ask: Ask, an_agent: FakeAgent, *kernels: tuple[str, str, float]) -> None:
    """Let the server see an empty node, and then these kernels."""
    await an_agent.start()
    await ask("ada", "GET", "aliquot/api/v1/status")
    an_agent.kernels = [working(*one) for one in kernels]
    an_agent.tell_status()


async def test_users_get_their_own_and_administrators_all(ask: Ask, an_agent: FakeAgent) -> None:
    await begin(ask, an_agent, ("k1", "alice", 0.5), ("k2", "bob", 1.5))
    all_of_it = await until_counted(ask, "ada", "alice", "bob")
    assert [row["user"] for row in all_of_it["rows"]] == ["alice", "bob"]
    assert all_of_it["total"]["working"] == pytest.approx(2.0 / 3600, abs=1e-5)
    for who in ("alice", "bob"):
        mine = await told(ask, who)
        assert [row["user"] for row in mine["rows"]] == [who]
        assert mine["total"] == mine["rows"][0]["gpu_hours"]
    refused = await ask("alice", "GET", "aliquot/api/v1/usage", params={"user": "bob"})
    assert (refused.status, "Only administrators" in refused.json["message"]) == (403, True)


async def test_rows_are_by_what_is_asked_for(ask: Ask, an_agent: FakeAgent) -> None:
    await begin(ask, an_agent, ("k1", "alice", 0.5), ("k2", "bob", 1.5))
    await until_counted(ask, "ada", "alice", "bob")
    named = (await told(ask, "ada", by="size,model,priority"))["rows"]
    assert [(row["size"], row["model"], row["priority"], row["user"]) for row in named] == [
        ("0.25", "a device", "normal", None)
    ]
    days = (await told(ask, "ada", by="day", **{"from": "2020-01-01", "to": "2100-01-01"}))["rows"]
    began = datetime.fromtimestamp(an_agent.kernels[0]["created"], timezone.utc).date().isoformat()
    assert days[0]["day"] == began
    assert (await told(ask, "ada", month="2020-02"))["rows"] == []
    alone = await told(ask, "ada", by="user", user="bob")
    assert [row["user"] for row in alone["rows"]] == ["bob"]


async def test_csv_has_the_rows_and_begins_no_formula(ask: Ask, an_agent: FakeAgent) -> None:
    await begin(ask, an_agent, ("k1", "=alice", 0.5))
    await until_counted(ask, "ada", "=alice")
    for more in ({"params": {"format": "csv"}}, {"headers": {"Accept": "text/csv"}}):
        answer = await ask("ada", "GET", "aliquot/api/v1/usage", **more)
        assert (answer.status, answer.media_type) == (200, "text/csv")
        assert "attachment" in answer.headers["Content-Disposition"]
        [row] = csv.DictReader(io.StringIO(answer.body.decode()))
        assert row["user"] == "'=alice"
        assert float(row["working_gpu_hours"]) > 0


WRONG_QUESTIONS = (
    ({"month": "2026-13"}, "the month '2026-13', which does not exist"),
    ({"month": "november"}, "such as 2026-11"),
    ({"month": "0000-01"}, "does not exist"),
    ({"month": ""}, "the month '', which does not exist"),
    ({"month": " 2026-11"}, "the month ' 2026-11', which does not exist"),
    ({"month": "", "to": "2026-11-01"}, "together with from or to"),
    ({"month": "2026-11", "from": "2026-11-01"}, "together with from or to"),
    ({"from": "", "to": "2026-11-01"}, "from='', which is no date"),
    ({"to": ""}, "to without from"),
    ({"from": "2026-11-01"}, "Add to"),
    ({"to": "2026-11-01"}, "Add from"),
    ({"from": "2026-11-02", "to": "2026-11-01"}, "does not come after"),
    ({"from": "2026-11-01", "to": "2026-11-01"}, "The end itself is not part"),
    ({"from": "2026-02-30", "to": "2026-03-01"}, "from='2026-02-30', which is no date"),
    ({"from": "2026-11-01", "to": "2026-11-01T10:00"}, "its time zone's offset"),
    ({"by": "kernel"}, "by='kernel', which does not exist"),
    ({"by": "user,"}, "Use one of user, team"),
    ({"format": "xml"}, "Use one of json, csv"),
    ({"moth": "2026-11"}, "Requested 'moth'"),
)


async def test_what_cannot_be_asked_is_refused_with_what_can(ask: Ask) -> None:
    for params, want in WRONG_QUESTIONS:
        answer = await ask("alice", "GET", "aliquot/api/v1/usage", params=params)
        assert answer.status == 400, params
        assert want in json.loads(answer.body)["message"], params


async def test_a_user_with_many_questions_under_way_is_told_when_to_ask_again(
    ask: Ask, an_agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await an_agent.start()
    go_on = threading.Event()

    def hold_up(*read: Any) -> Any:
        assert go_on.wait(60)
        return _read(*read)

    monkeypatch.setattr(questions, "_read", hold_up)
    asked = [asyncio.ensure_future(ask("alice", "GET", "aliquot/api/v1/usage")) for _ in range(5)]
    try:
        # The other four wait for the first one, which is held up.
        [done], slow = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        refused = await done
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert "4 such requests of yours are under way" in refused.json["message"]
    finally:
        go_on.set()
    assert [one.status for one in await asyncio.gather(*slow)] == [200] * 4
    assert (await ask("alice", "GET", "aliquot/api/v1/usage")).status == 200


async def test_an_answer_of_too_many_rows_is_refused_with_what_to_ask(
    ask: Ask, an_agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(ask, an_agent, ("k1", "alice", 0.5), ("k2", "bob", 1.5))
    await until_counted(ask, "ada", "alice", "bob")
    monkeypatch.setattr(query, "MOST_ROWS", 1)
    for params in ({}, {"format": "csv"}):
        refused = await ask("ada", "GET", "aliquot/api/v1/usage", params=params)
        assert (refused.status, "Requested more than 1 rows" in refused.json["message"]) == (400, True)
        assert "Request fewer days" in refused.json["message"]
    assert (await ask("alice", "GET", "aliquot/api/v1/usage")).status == 200


async def test_the_time_that_jupyters_clients_add_to_pass_caches_is_no_parameter(ask: Ask) -> None:
    assert (await told(ask, "alice", month="2026-11", **{"1764410000000": ""}))["month"] == "2026-11"
    refused = await ask("alice", "GET", "aliquot/api/v1/usage", params={"1764410000000x": ""})
    assert (refused.status, "Requested '1764410000000x'" in refused.json["message"]) == (400, True)


async def test_moments_of_other_time_zones_are_whole_days_of_ours(ask: Ask) -> None:
    params = {"from": "2026-11-01T00:30:00+01:00", "to": "2026-11-30T23:00:00-0100"}
    found = await told(ask, "alice", **params)
    assert (found["start"], found["end"], found["month"]) == ("2026-10-31T00:00:00Z", "2026-12-01T00:00:00Z", None)
    exact = await told(ask, "alice", **{"from": "2026-11-01T00:00:00Z", "to": "2026-12-01"})
    assert (exact["start"], exact["end"], exact["month"]) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "2026-11")


async def test_an_accounting_that_is_switched_off_is_said_and_leaves_no_file(
    no_accounting: None, ask: Ask, an_agent: FakeAgent, tmp_path: Path
) -> None:
    await an_agent.start()
    answer = await ask("alice", "GET", "aliquot/api/v1/usage")
    assert (answer.status, "c.Accounting.enabled" in answer.json["message"]) == (503, True)
    assert not (tmp_path / "accounting.sqlite").exists()


async def test_the_command_says_that_the_accounting_has_no_such_name(
    ask: Ask, a_server: Any, an_agent: FakeAgent
) -> None:
    await begin(ask, an_agent, ("k1", "alice", 0.5), ("k2", "bob", 1.5))
    await until_counted(ask, "ada", "alice", "bob")
    for form in ((), ("--json",), ("--csv",)):
        done = await run(a_server, "ada", "usage", "--user", "alcie", *form)
        assert done.returncode == 0, "no GPU time is an answer, too"
        assert "the accounting has no user 'alcie' since" in done.stderr
        assert "; did you mean alice?; it has: alice, bob\n" in done.stderr
    known = await run(a_server, "ada", "usage", "--user", "alice", "--from", "2020-01-01", "--to", "2020-01-02")
    assert (known.returncode, known.stderr) == (0, "")


async def test_the_command_tells_a_user_of_own_gpu_time_alone(ask: Ask, a_server: Any, an_agent: FakeAgent) -> None:
    """A user sees nothing of the use of others, which is no sign that there is no such team."""
    await begin(ask, an_agent, ("k1", "alice", 0.5), ("k2", "bob", 1.5))
    await until_counted(ask, "ada", "alice", "bob")
    done = await run(a_server, "alice", "usage", "--team", "vision")
    assert (done.returncode, "the accounting has no team" in done.stderr) == (0, False)
    assert "the accounting has no GPU time of yours for the team 'vision' since" in done.stderr
    asked_by_admin = await run(a_server, "ada", "usage", "--team", "vision")
    assert "the accounting has no team 'vision' since" in asked_by_admin.stderr


@pytest.mark.parametrize("answered", [1, 2])
async def test_a_hint_that_the_gateway_does_not_give_is_left_out(
    ask: Ask, a_server: Any, an_agent: FakeAgent, answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(ask, an_agent, ("k1", "alice", 0.5))
    await until_counted(ask, "ada", "alice")
    asked = count()
    monkeypatch.setattr(UsageAccounting, "refusal", lambda *of: "" if next(asked) < answered else "too many requests")
    done = await run(a_server, "ada", "usage", "--user", "alcie")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no GPU time was counted" in done.stdout
    assert next(asked) == answered + 1
