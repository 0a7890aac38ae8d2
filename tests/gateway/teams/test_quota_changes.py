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
    assert quota_changes(before, after).split("; ") == [
        "queue.order fifo → drf",
        "team b removed",
        "team c added",
        "team a: users ann → ann, dan",
        "team a: nominalQuota all 1 → H200 1.5",
        "team a: borrowingLimit all 2 → none",
        "team a: mayBeEnded never → low",
    ]
    assert quota_changes(before, read_quotas(f"\n\n{BEFORE}", "moved.yaml")) == "", "lines are no change"
    assert quota_changes(None, before) == "team a added; team b added"


def test_a_change_is_audited_with_the_user_who_had_the_file_read(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text(BEFORE)

    async def scene() -> None:
        file = open_quota_file(path, tmp_path, SystemClock(), LOG)
        file.observe(partial(tell_quotas, Audit(tmp_path, LOG), str(path)))
        await file.reload_soon("ada")
        path.write_text(BEFORE.replace("nominalQuota: 1}", "nominalQuota: 3}"))
        await file.reload_soon("ada")
        path.write_text(BEFORE)
        file.reload()

    asyncio.run(scene())
    lines: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(one["action"], one["subject"], one["by"], one["detail"]) for one in lines] == [
        ("quota", str(path), "ada", "team b: nominalQuota all 1 → all 3"),
        ("quota", str(path), None, "team b: nominalQuota all 3 → all 1"),
    ]
