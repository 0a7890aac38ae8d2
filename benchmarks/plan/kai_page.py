"""The table of KAI-Scheduler's cases: how many agree, and why the others differ or are not claimed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from report import Row, at_least

from .kai_cases import FOLDER, Judged, judge, read_cases

WANT_PERCENT = 90.0
TIERS = ("core", "extended", "kubernetes")
VERDICTS = ("agrees", "differs", "not claimed")
INTRODUCTION = """# The planner against KAI-Scheduler's tests

Each case of `kai-cases` is one cluster: nodes, teams with quotas, running and waiting jobs, and what KAI's
actions make of them. `make bench-plan` gives each case to admission's `plan(snapshot, pending, now)`, the one
that the gateway and `aliquot simulate` call, and compares what became of each job. Names of nodes are not
compared: each scheduler has ties of its own. A job that KAI may preempt has low priority, and low priority
alone borrows. Others cannot be moved.

Derived from KAI-Scheduler test tables, Copyright 2025 NVIDIA CORPORATION; KAI Scheduler was originally forked
from kube-batch, Copyright (c) The Kubernetes Authors. Licensed under the Apache License 2.0. Changed: converted
from Go source to JSON; feature flags and outcome words were added. Source:
[kai-scheduler/KAI-Scheduler](https://github.com/kai-scheduler/KAI-Scheduler), commit `d5bc503a`,
`pkg/scheduler/actions`. The cases are not part of this repository.
"""

_BEHIND = "what waits for its team's quota is passed by no later request of that team, so that it starts at all"
REASONS = {
    "TestHandleFractionalGPUAllocation/9": _BEHIND,
    "TestAllocateFractionalGpuIntegrationTest/2": _BEHIND,
    "TestHandleAllocation/8": "both teams are within quota: the older request goes first, in KAI the smaller one",
    "TestHandleAllocation/14": "a team's quota counts its kernels of low priority, too, where KAI's counts the others",
}


def verdicts(data: Path) -> list[Judged]:
    """Return the verdict of each case; none if the cases are not there."""
    return [judge(case) for case in read_cases(data)]


def rows(found: Sequence[Judged]) -> Iterator[Row]:
    """Yield how many of the claimed cases agree."""
    for tier in TIERS:
        counts = Counter(one.verdict for one in found if one.tier == tier)
        for verdict in VERDICTS:
            yield Row(f"kai-cases, {tier}: {verdict}", counts[verdict], "cases")
    claimed = [one for one in found if one.verdict != "not claimed"]
    agree = sum(one.verdict == "agrees" for one in claimed)
    yield at_least("kai-cases: claimed cases that agree", 100.0 * agree / len(claimed), "%", WANT_PERCENT)


def markdown(found: Sequence[Judged]) -> str:
    """Return the page."""
    claimed = [one for one in found if one.verdict != "not claimed"]
    agree = sum(one.verdict == "agrees" for one in claimed)
    lines = [INTRODUCTION, f"Of {len(claimed)} claimed cases {agree} agree: {100 * agree / len(claimed):.1f} %.\n"]
    lines += ["| tier | cases | " + " | ".join(VERDICTS) + " |", "|---|---:|---:|---:|---:|"]
    for tier in TIERS:
        counts = Counter(one.verdict for one in found if one.tier == tier)
        lines.append(f"| {tier} | {sum(counts.values())} | " + " | ".join(str(counts[one]) for one in VERDICTS) + " |")
    lines += ["", "## Cases that differ", "", "| case | ours and KAI's | why |", "|---|---|---|"]
    for one in found:
        if one.verdict == "differs":
            lines.append(f"| `{_short(one)}`: {one.name} | {one.why} | {REASONS.get(_short(one), 'not explained')} |")
    lines += ["", "## Cases that are not claimed", "", "| why | cases |", "|---|---|"]
    by_reason: dict[str, list[str]] = {}
    for one in found:
        if one.verdict == "not claimed":
            by_reason.setdefault(one.why, []).append(f"`{_short(one)}`")
    lines += [f"| {why} | {len(cases)}: {', '.join(cases)} |" for why, cases in sorted(by_reason.items())]
    lines += ["", "## Cases that agree", ""]
    by_test: dict[str, list[str]] = {}
    for one in found:
        if one.verdict == "agrees":
            test, number = _short(one).rsplit("/", 1)
            by_test.setdefault(test, []).append(number)
    lines += [f"- `{test}`: {', '.join(numbers)}" for test, numbers in sorted(by_test.items())]
    return "\n".join(lines) + "\n"


def _short(one: Judged) -> str:
    return one.case_id.split(":", 1)[1]


__all__ = ["FOLDER", "markdown", "rows", "verdicts"]
