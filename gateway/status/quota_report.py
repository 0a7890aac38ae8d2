"""Reports of teams' quotas and of the queue, from a snapshot of admission. Pure.

An administrator sees all of it. Another user sees the own team and those above it, and the own
requests.
"""

from __future__ import annotations

from dataclasses import replace

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import iso, iso_moment
from jupyter_aliquot.gateway.reports.quota import ModelQuota, Queue, QueuedRequest, Quota, TeamQuota
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.scheduling.queue_policy import PastUse
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.teams.quota_file import QuotaFile
from jupyter_aliquot.gateway.teams.values import ANY_MODEL, NOTHING, Amounts, Team
from jupyter_aliquot.gateway.teams.warnings import quota_warnings
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE

from .expected_starts import predicted_report


def quota_report(admission: AdmissionSnapshot, file: QuotaFile, past: PastUse, who: User) -> Quota:
    """Return the quotas in force as this user may see them; without a file, no teams."""
    # The ledger has a file's quotas, and the past use, of its last cycle.
    found = TeamQuotas.of(replace(admission.ledger, quotas=file.quotas, past=past))
    told: Quota = {
        "organization": None,
        "order": None,
        "backfill": True,
        "usage_half_life_seconds": None,
        "file": str(file.path) if who.is_admin and file.path is not None else None,
        "problem": file.problem if who.is_admin and file.problem else None,
        "warnings": [],
        "teams": [],
    }
    if found is None:
        return told
    quotas = found.quotas
    own = quotas.team_of(who.name, who.teams)
    above = set() if own is None else {team.name for team in quotas.ancestors(own.name)}
    shown = [team for team in quotas.teams.values() if who.is_admin or team.name in above]
    told["organization"], told["order"] = quotas.organization or None, quotas.order
    told["backfill"], told["usage_half_life_seconds"] = quotas.is_backfilling, quotas.usage_half_life
    told["warnings"] = list(quota_warnings(quotas, found.tree.gpus)) if who.is_admin else []
    told["teams"] = [_team(found, admission, team, is_yours=own is team) for team in shown]
    return told


def queue_report(admission: AdmissionSnapshot, who: User) -> Queue:
    """Return the queue in the order in which it is served, as this user may see it."""
    found = TeamQuotas.of(admission.ledger)
    groups = {one.kernel_id: one.teams for one in admission.pending}
    shown = [entry for entry in admission.waiting if who.is_admin or entry.owner == who.name]
    requests = []
    for entry in shown:
        team = None if found is None else found.team_of(entry.owner, groups.get(entry.kernel_id, ()))
        requests.append(_request(entry, team or None))
    return {"length": len(admission.waiting), "requests": requests}


def _team(found: TeamQuotas, admission: AdmissionSnapshot, team: Team, *, is_yours: bool) -> TeamQuota:
    waiting = [one for one in admission.pending if found.team_of(one.owner, one.teams) == team.name]
    return {
        "name": team.name,
        "parent": team.parent or None,
        "is_yours": is_yours,
        "over_quota_weight": team.weight,
        "reclaim_min_runtime_seconds": team.reclaim_seconds,
        "may_be_ended": team.may_be_ended,
        "queue_order": team.queue_order,
        "overcommit": team.overcommit,
        "past_use": None if found.quotas.usage_half_life is None else found.tree.usage.get(team.name, 0.0),
        "queued": len([one for one in waiting if one.returns_to is None]),
        "evicted": len([one for one in waiting if one.returns_to is not None]),
        "gpus": [_model(found, team, model) for model in found.quotas.models],
    }


def _model(found: TeamQuotas, team: Team, model: str) -> ModelQuota:
    tree = found.tree
    return {
        "model": None if model == ANY_MODEL else model,
        "nominal_gpus": tree.nominal(team.name, model) / WHOLE,
        "held_gpus": tree.used(team.name, model) / WHOLE,
        "borrowed_gpus": tree.borrowed(team.name, model) / WHOLE,
        "available_gpus": max(0, tree.available(team.name, model)) / WHOLE,
        "borrowing_limit_gpus": _limit(team.borrowing, model),
        "lending_limit_gpus": _limit(team.lending, model),
    }


def _limit(amounts: Amounts | None, model: str) -> float | None:
    return None if amounts is None else (amounts or NOTHING).get(model, 0) / WHOLE


def _request(entry: QueueEntry, team: str | None) -> QueuedRequest:
    return {
        "kernel_id": entry.kernel_id,
        "owner": entry.owner,
        "label": entry.label,
        "team": team,
        "kind": "return" if entry.is_return else "grow" if entry.is_growth else "start",
        "gpus": float(entry.request.gpus),
        "priority": entry.request.workload_class.priority,
        "position": entry.position,
        "reason": entry.reason,
        "wait_reason": entry.why.report(),
        "since": iso_moment(entry.since),
        "expected_start": iso(entry.expected_start),
        "predicted_start": predicted_report(entry.predicted),
    }
