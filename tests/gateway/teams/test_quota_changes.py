"""The audit of changed quotas: what changed, and who had the file read."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.events.audit import Audit, tell_quotas
from jupyter_aliquot.gateway.teams.changes import quota_changes
from jupyter_aliquot.gateway.teams.quota_file import open_quota_file
from jupyter_aliquot.gateway.teams.reading import read_quotas

LOG = logging.getLogger(__name__)
BEFORE = """
teams:
  a: {users: [ann], nominalQuota: 1, borrowingLimit: 2}
  b: {users: [bob], nominalQuota: 1}
"""
AFTER = """
queue: {order: drf}
teams:
  c: {users: [cy]}
  a: {users: [ann, dan], nominalQuota: {H200: 1.5}, mayBeEnded: low}
"""


def test_each_team_and_key_that_changed_is_named() -> None:
    before, after = read_quotas(BEFORE, "old.yaml"), read_quotas(AFTER, "new.yaml")
    (line,) = quota_changes(before, after)
    assert line.split("; ") == [
        "queue.order fifo → drf",
        "team b removed",
        "team c added",
        "team a: users ann → ann, dan",
        "team a: nominalQuota all 1 → H200 1.5",
        "team a: borrowingLimit all 2 → none",
        "team a: mayBeEnded never → low",
    ]
    assert quota_changes(before, read_quotas(f"\n\n{BEFORE}", "moved.yaml")) == [], "lines are no change"
    assert quota_changes(None, before) == ["team a added; team b added"]


def test_a_changed_budget_has_its_values_before_and_after() -> None:
    text = BEFORE + "budgets:\n  users: {'*': {gpuHours: 10}}\n  teams: {a: {gpuHours: 5}}\n"
    before = read_quotas(text, "old.yaml")
    after = read_quotas(
        text.replace("gpuHours: 10", "gpuHours: 1000, atLimit: refuse").replace("teams: {a: {gpuHours: 5}}", ""),
        "new.yaml",
    )
    assert quota_changes(before, after) == [
        "budget of user * gpuHours 10, period month, atLimit warn, warnAt 0.8"
        " → gpuHours 1000, period month, atLimit refuse, warnAt 0.8; "
        "budget of team a gpuHours 5, period month, atLimit warn, warnAt 0.8 → none"
    ]


def test_another_order_of_the_teams_is_a_change() -> None:
    teams = ["  a: {groups: [g]}", "  b: {groups: [h]}", "  c: {groups: [i]}"]
    before = read_quotas("\n".join(["teams:", *teams]), "old.yaml")
    after = read_quotas("\n".join(["teams:", teams[2], *teams[:2]]), "new.yaml")
    assert quota_changes(before, after) == ["order of the teams a, b, c → c, a, b"]
    assert quota_changes(before, read_quotas("\n".join(["teams:", *teams[1:]]), "fewer.yaml")) == ["team a removed"]


def test_a_change_of_many_teams_is_told_whole_in_several_lines() -> None:
    text = "\n".join(["teams:", *(f"  t{number}: {{users: [u{number}], nominalQuota: 1}}" for number in range(120))])
    lines = quota_changes(read_quotas(text, "old.yaml"), read_quotas(text.replace("Quota: 1", "Quota: 2"), "new.yaml"))
    assert "; ".join(lines).split("; ") == [f"team t{number}: nominalQuota all 1 → all 2" for number in range(120)]
    assert len(lines) > 1
    assert all(len(line) <= 2000 for line in lines)


def test_a_change_is_audited_with_the_user_who_had_the_file_read(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text(BEFORE)

    async def scene() -> None:
        file = open_quota_file(path, tmp_path, SystemClock(), LOG)
        file.observe(partial(tell_quotas, Audit(tmp_path, LOG), str(path)))
        await file.reload_soon("ada")
        path.write_text(BEFORE.replace("nominalQuota: 1}", "nominalQuota: 3}"))
        await file.reload_soon("ada")
        path.write_text(f"# a comment\n{BEFORE}")
        file.reload()
        path.write_text(BEFORE)
        file.reload()

    asyncio.run(scene())
    lines: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(one["action"], one["subject"], one["by"], one["detail"]) for one in lines] == [
        ("quota", str(path), "ada", "team b: nominalQuota all 1 → all 3"),
        ("quota", str(path), None, "team b: nominalQuota all 3 → all 1"),
    ]


def test_a_change_while_no_gateway_ran_is_audited_at_its_next_start(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"

    def start(text: str) -> list[str]:
        path.write_text(text)
        audit = Audit(tmp_path, LOG)
        open_quota_file(path, tmp_path, SystemClock(), LOG).observe(partial(tell_quotas, audit, str(path)))
        return [json.loads(line)["detail"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]

    assert start(BEFORE) == [], "no earlier quotas are known"
    assert start(BEFORE) == []
    want = ["team b: nominalQuota all 1 → all 3"]
    assert start(BEFORE.replace("nominalQuota: 1}", "nominalQuota: 3}")) == want
    assert start(BEFORE.replace("nominalQuota: 1}", "nominalQuota: 3}")) == want, "once"
