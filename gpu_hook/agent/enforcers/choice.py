"""Which enforcer is in force on this node, and why the others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .base import Enforcer, EnforcerError

ENFORCERS = ("hook", "driver", "mps")
_PROVEN = {"hook"}  # the others have no run on hardware under docs/results: they are opt-in


@dataclass(frozen=True)
class EnforcerReport:
    """One line of the status. ``reason``: why it is not in force; empty for the one that is."""

    name: str
    in_force: bool
    available: bool
    experimental: bool
    reason: str


@dataclass(frozen=True)
class Choice:
    enforcer: Enforcer
    reports: tuple[EnforcerReport, ...]


def choose(asked: str, candidates: Sequence[Enforcer]) -> Choice:
    """``auto`` takes the first that is proven. Raises EnforcerError when the one asked for is not there."""
    problems = {candidate.name: candidate.unavailable() for candidate in candidates}
    by_name = {candidate.name: candidate for candidate in candidates}
    if asked == "auto":
        asked = next(name for name, problem in problems.items() if name in _PROVEN and not problem)
    if problems[asked]:
        raise EnforcerError(f"asked --enforcer {asked}; this node has it not: {problems[asked]}")
    return Choice(by_name[asked], tuple(_report(name, name == asked, problems[name]) for name in by_name))


def _report(name: str, is_in_force: bool, problem: str) -> EnforcerReport:
    is_experimental = name not in _PROVEN
    reason = problem
    if not is_in_force and not problem:
        how = f"ask for it with --enforcer {name}"
        reason = f"no run on hardware is recorded; {how}" if is_experimental else f"not asked for; {how}"
    return EnforcerReport(name, is_in_force, not problem, is_experimental, reason)
