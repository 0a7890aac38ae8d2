"""Fair shares, slowdown and throttled time: over REST, as metrics, and as events.

The tests cover users, and the form in the contract.
"""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.events.diff import by_id, kernel_news
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.status.report import StatusSnapshot, kernel_reports
from jupyter_aliquot.gpu_hook.client.client import read_status

from .conftest import Ask
from .fake_agent import UUID, FakeAgent, device, kernel
from .test_contract import check, until

CONTROL = {"controller": "weighted", "sharing": "time slices", "target_percent": 2.0, "contended": True}
HELD: dict[str, Any] = {
    **{"share_entitled": 0.25, "share_used": 0.1, "own_seconds": 4.5, "stretch": 1.5, "throttled_seconds": 3.25},
    **{"bound_milliseconds": 2.0, "pace": "paced", "reason": "production is active", "unholdable": False},
}
NEW: dict[str, Any] = {
    **HELD,
    **{"share_entitled": None, "share_used": None, "stretch": None, "bound_milliseconds": None, "reason": ""},
}


def with_compute(kernel_id: str, owner: str, compute: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    report = kernel(kernel_id, owner, **more)
    report["devices"][0]["compute"] = compute
    return report


async def test_compute_is_told_to_the_kernels_owner(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.devices = [device(compute_control=CONTROL)]
    an_agent.kernels = [
        with_compute("held", "alice", HELD, workload_class="opportunistic"),
        with_compute("new", "alice", {**NEW, "is_capped": True}),
        with_compute("idle", "alice", None),
        with_compute("bobs", "bob", HELD),
    ]
    await an_agent.start()

    async def status() -> Any:
        return check(await ask("alice", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")

    told = await until(status, lambda status: status["kernels"])
    assert told["devices"][0]["compute_control"] == CONTROL
    compute = {one["id"]: one["devices"][0]["compute"] for one in told["kernels"]}
    assert set(compute) == {"held", "new", "idle"}
    want = {name: HELD[name] for name in ("share_used", "own_seconds", "pace")}
    want |= {"fair_share": HELD["share_entitled"], "slowdown": HELD["stretch"]}
    assert {name: compute["held"][name] for name in want} == want
    assert (compute["held"]["max_delay_seconds"], compute["held"]["throttle_reason"]) == (0.002, "production is active")
    assert (compute["held"]["has_hard_limit"], compute["new"]["has_hard_limit"]) == (False, True)
    assert (compute["new"]["share_used"], compute["new"]["max_delay_seconds"], compute["new"]["throttle_reason"]) == (
        None,
    ) * 3
    assert compute["idle"] is None


async def test_an_agent_from_before_tells_nothing_of_it(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    await an_agent.start()

    async def status() -> Any:
        return check(await ask("alice", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")

    told = await until(status, lambda status: status["kernels"])
    assert (told["devices"][0]["compute_control"], told["kernels"][0]["devices"][0]["compute"]) == (None, None)


async def test_metrics_have_what_was_measured_and_no_sample_of_the_rest(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.devices = [device(compute_control=CONTROL)]
    an_agent.kernels = [with_compute("held", "alice", HELD), with_compute("new", "bob", NEW)]
    await an_agent.start()

    async def samples() -> Any:
        text = check(await ask("ada", "GET", "aliquot/api/v1/metrics"), "/aliquot/api/v1/metrics")
        found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {(sample.name.removeprefix("aliquot_"), sample.labels.get("kernel")): sample for sample in found}

    told = await until(samples, lambda told: ("kernel_slowdown_ratio", "held") in told)
    want = {
        "kernel_fair_share_ratio": 0.25,
        "kernel_share_used_ratio": 0.1,
        "kernel_slowdown_ratio": 1.5,
        "kernel_max_delay_seconds": 0.002,
        "kernel_paused": 0.0,
        "kernel_hard_limit": 0.0,
        "kernel_own_seconds_total": 4.5,
        "kernel_throttled_seconds_total": 3.25,
    }
    assert {name: told[name, "held"].value for name in want} == want
    assert told["kernel_throttled_seconds_total", "held"].labels["uuid"] == UUID
    assert ("kernel_slowdown_ratio", "new") not in told
    assert told["kernel_throttled_seconds_total", "new"].value == 3.25
    assert told["device_contended", None].value == 1
    assert told["device_compute_control_info", None].labels["controller"] == "weighted"


def look(*kernels: dict[str, Any]) -> dict[str, Any]:
    node = {"node": "n", "driver": "softgpu", "enforcer": "hook", "connections": 1, "devices": [device()]}
    status = read_status({**node, "kernels": list(kernels)})
    return dict(by_id(kernel_reports(StatusSnapshot("", node=NodeView(status)), User("ada", "admin"))))


def test_a_kernel_that_is_held_out_and_comes_back_is_news() -> None:
    here = look(with_compute("k", "ada", HELD))
    out = look(with_compute("k", "ada", {**HELD, "unholdable": True, "reason": "production would be 9 % slower"}))
    [left] = kernel_news(here, out)
    assert (left["kind"], left["paused"], left["reason"]) == ("paused", True, "production would be 9 % slower")
    [back] = kernel_news(out, look(with_compute("k", "ada", NEW)))
    assert (back["kind"], back["paused"], back["reason"]) == ("paused", False, None)
    assert kernel_news(here, look(with_compute("k", "ada", NEW))) == [], (
        "shares change all the time: the status has them"
    )
