"""The tables of `aliquot queue` and `aliquot quota`: when requests start, and what teams had before."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from rich.console import Console

from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gateway.teams.tree import TeamTree
from jupyter_aliquot.gateway.terminal.quota_table import OF_GROUPS, queue_table, quota_table

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)
PREDICTED = {"earliest": "2026-11-29T12:03:30.000Z", "latest": "2026-11-29T12:07:30.000Z"}


@pytest.mark.parametrize(
    ("expected", "predicted", "want"),
    [
        (None, PREDICTED, "in 3–8 min"),
        ("2026-11-29T13:00:00.000Z", PREDICTED, "at 13:00"),
        ("2026-11-30T13:00:00.000Z", PREDICTED, "at 2026-11-30 13:00"),
        (None, {"earliest": "2026-11-29T11:00:00.000Z", "latest": "2026-11-29T11:30:00.000Z"}, "in 0–1 min"),
    ],
)
@pytest.mark.usefixtures("in_utc")
def test_an_announced_start_is_shown_and_else_the_predicted_one(expected: Any, predicted: Any, want: str) -> None:
    request = {
        "position": 1,
        "kernel_id": "0123456789",
        "owner": "ada",
        "label": "a.ipynb",
        "team": None,
        "kind": "start",
        "gpus": 0.5,
        "priority": "normal",
        "since": "2026-11-29T11:59:00.000Z",
        "reason": "none is free",
        "expected_start": expected,
        "predicted_start": predicted,
    }
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(queue_table({"length": 1, "requests": [request]}, NOW))
    assert want in captured.get()


@pytest.mark.parametrize(("half_life", "past_use", "want"), [(86400.0, 0.126, "12.6%"), (None, None, "")])
def test_past_use_beyond_quota_is_shown_where_it_counts(half_life: Any, past_use: Any, want: str) -> None:
    gpus = {"model": None, **{f"{word}_gpus": 1.0 for word in ("nominal", "held", "borrowed", "available")}}
    team = {"name": "vision", "is_yours": True, "queued": 0, "evicted": 0, "over_quota_weight": 1.0}
    team |= {"overcommit": None, "queue_order": None, "past_use": past_use, "gpus": [gpus, {**gpus, "model": "H200"}]}
    report = {"problem": None, "warnings": [], "order": "fifo", "usage_half_life_seconds": half_life, "teams": [team]}
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(quota_table(report))
    assert ("past use" in captured.get()) == (half_life is not None)
    assert want in captured.get()


@pytest.mark.parametrize(("own", "want"), [("srtf", ["srtf", "las"]), (None, [])])
def test_orders_of_requests_are_shown_where_a_team_has_its_own(own: str | None, want: list[str]) -> None:
    gpus = {"model": None, **{f"{word}_gpus": 1.0 for word in ("nominal", "held", "borrowed", "available")}}
    team = {"is_yours": False, "queued": 0, "evicted": 0, "over_quota_weight": 1.0, "overcommit": None, "gpus": [gpus]}
    teams = [{**team, "name": "a", "queue_order": own}, {**team, "name": "b", "queue_order": None}]
    report = {"problem": None, "warnings": [], "order": "las", "usage_half_life_seconds": None, "teams": teams}
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(quota_table(report))
    head, *rows = captured.get().splitlines()
    assert ("order" in head) == bool(want)
    assert [row.split()[-1] for row in rows if row.strip()[:1] in "ab"] == (want or ["1", "1"])


def test_a_gateway_that_tells_no_order_of_teams_is_shown_without_one() -> None:
    """A running gateway may be older than the command."""
    gpus = {"model": None, **{f"{word}_gpus": 1.0 for word in ("nominal", "held", "borrowed", "available")}}
    team = {"name": "a", "is_yours": False, "queued": 0, "evicted": 0, "over_quota_weight": 1.0, "gpus": [gpus]}
    report = {"problem": None, "warnings": [], "order": "las", "usage_half_life_seconds": None}
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(quota_table({**report, "teams": [{**team, "overcommit": None}]}))
    assert "order" not in captured.get()


@pytest.mark.parametrize(("parent", "want"), [("group", True), (None, False)])
def test_the_columns_of_a_team_above_others_are_explained(parent: str | None, want: bool) -> None:
    gpus = {"model": None, **{f"{word}_gpus": 1.0 for word in ("nominal", "held", "borrowed", "available")}}
    team = {"is_yours": False, "queued": 0, "evicted": 0, "over_quota_weight": 1.0, "overcommit": None, "gpus": [gpus]}
    teams = [{**team, "name": "group", "parent": None}, {**team, "name": "a", "parent": parent}]
    report = {"problem": None, "warnings": [], "order": "las", "usage_half_life_seconds": None, "teams": teams}
    console = Console(width=300, force_terminal=False)
    with console.capture() as captured:
        console.print(quota_table(report))
    assert (OF_GROUPS in captured.get()) == want


def test_what_a_team_above_others_borrows_is_what_its_group_holds_beyond_its_quotas() -> None:
    """One team of two holds both quotas: it borrows from its neighbor, and their group from no team."""
    quotas = read_quotas(
        "teams:\n  group: {}\n  a: {parent: group, nominalQuota: 2}\n  b: {parent: group, nominalQuota: 2}\n", "f"
    )
    tree = TeamTree(quotas, {"": 800}, {("a", ""): 400})
    assert [tree.borrowed(one, "") for one in ("a", "b", "group")] == [200, 0, 0]
    tree = TeamTree(quotas, {"": 800}, {("a", ""): 500})
    assert [tree.borrowed(one, "") for one in ("a", "b", "group")] == [300, 0, 100]
