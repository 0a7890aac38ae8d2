"""The oracle: our plans against cases in KAI-Scheduler's form; those of its tests where the data are there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from plan import kai_page
from plan.kai_cases import Case, judge, read_cases

DATA = Path(os.environ.get("ALIQUOT_TRACES", Path(__file__).parents[2] / ".." / "shared" / "data"))
NODE = {"gpus": 2, "gpu_memory_mib": 100, "cpu": 20000, "mem": 20_000_000_000}
TASK = {"cpu": 1, "mem": 1_000_000_000}


def a_case(action: str, jobs: list[dict[str, Any]], outcome: dict[str, dict[str, int]], **other: object) -> Case:
    queues = [
        {"name": name, "parent": "default", "priority": 100, "quota_gpus": 1, "limit_gpus": -1, "over_quota_weight": 1}
        for name in ("q0", "q1")
    ]
    return {
        "id": f"ours:{action}",
        "name": action,
        "tier": "core",
        "mode": "single_pass",
        "actions": [action],
        "nodes": {"node0": NODE},
        "queues": queues,
        "departments": [],
        "jobs": jobs,
        "outcome": outcome,
        "needs": [],
        "assertion": "table",
        **other,
    }


def a_job(name: str, queue: str, state: str, *gpus: float, priority: int = 50, age: int = 1) -> dict[str, Any]:
    tasks = [{**TASK, "name": f"{name}-{at}", "state": state, "gpus": part} for at, part in enumerate(gpus)]
    if state == "running":
        tasks = [{**task, "node": "node0"} for task in tasks]
    return {
        "name": name,
        "queue": queue,
        "priority": priority,
        "preemptible": priority < 100,
        "min_available": len(gpus),
        "age_minutes": age,
        "tasks": tasks,
    }


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        (a_case("allocate", [a_job("a", "q0", "pending", 2)], {"a": {"placed": 1}}), "agrees"),
        (a_case("allocate", [a_job("a", "q0", "pending", 2)], {"a": {"waits": 1}}), "differs"),
        (a_case("allocate", [a_job("a", "q0", "pending", 1, 1)], {"a": {"placed": 2}}), "not claimed"),
        (
            a_case(
                "reclaim",
                [a_job("a", "q0", "running", 1, age=3), a_job("b", "q0", "running", 1), a_job("c", "q1", "pending", 1)],
                {"a": {"kept": 1}, "b": {"evicted": 1}, "c": {"reserved": 1}},
            ),
            "agrees",
        ),
        (
            a_case(
                "reclaim",
                [a_job("a", "q0", "running", 2, priority=100), a_job("b", "q1", "pending", 1)],
                {"a": {"kept": 1}, "b": {"waits": 1}},
            ),
            "agrees",
        ),
        (
            a_case(
                "preempt",
                [a_job("a", "q0", "running", 2), a_job("b", "q0", "pending", 1, priority=100)],
                {"a": {"evicted": 1}, "b": {"reserved": 1}},
            ),
            "not claimed",
        ),
        (a_case("allocate", [], {}, needs=["needs_dra"]), "not claimed"),
    ],
)
def test_a_case_is_judged_by_what_becomes_of_each_job(case: Case, verdict: str) -> None:
    assert judge(case).verdict == verdict


def test_nine_tenths_of_the_claimed_cases_agree_and_each_difference_is_explained() -> None:
    """Judge the cases of the research data, or ours where those are not there."""
    ours = a_case("allocate", [a_job("a", "q0", "pending", 1)], {"a": {"placed": 1}})
    found = [judge(case) for case in read_cases(DATA) or [ours]]
    (share,) = [row for row in kai_page.rows(found) if row.want]
    assert share.value >= kai_page.WANT_PERCENT
    page = kai_page.markdown(found)
    assert "not explained" not in page
    assert all(one.case_id.split(":", 1)[1].rsplit("/", 1)[0] in page for one in found), "each case is on the page"
