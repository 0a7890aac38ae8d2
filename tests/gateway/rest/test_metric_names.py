"""Metrics follow Prometheus' rules of names and units, as `promtool check metrics` holds them, and users' add up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.status.prometheus import metrics_of
from jupyter_aliquot.gateway.status.report import PLAIN, LocalKernel, StatusSnapshot, status_report
from jupyter_aliquot.gpu_hook.client.client import read_status

from .conftest import Ask
from .fake_agent import GIB, FakeAgent, device, kernel
from .test_compute import CONTROL, HELD, with_compute
from .test_contract import until

# Units that are no base unit, by Prometheus' best practices.
OTHER_UNITS = {
    *("nanoseconds", "microseconds", "milliseconds", "minutes", "hours", "days", "weeks", "ms", "us", "ns", "s"),
    *("percent", "permille", "bits", "kilobytes", "megabytes", "gigabytes", "kib", "mib", "gib", "kb", "mb", "gb"),
    *("fahrenheit", "kelvin", "milliwatts", "kilowatts"),
}
NODE = {"node": "far", "driver": "softgpu", "enforcer": "hook", "connections": 1}
TYPES = {"counter", "gauge", "histogram", "summary", "metric"}
RESERVED_ENDS = ("_count", "_sum", "_bucket", "_created")
RESERVED_LABELS = {"le", "quantile", "job", "instance"}
# Names of before these rules were checked. Their help names the successor; v1 keeps them.
DEPRECATED = {"aliquot_device_utilization_percent": "aliquot_device_utilization_ratio"}


def faults(families: Iterable[Metric]) -> list[str]:
    """Return what is wrong with names, types, helps and labels."""
    found = []
    for family in families:
        words = family.name.split("_")
        rules = {
            "is no name of Aliquot's": re.fullmatch(r"aliquot(_[a-z0-9]+)+", family.name) is None,
            "names a unit that is no base unit": bool(OTHER_UNITS & set(words)),
            "names its type": bool(TYPES & set(words)),
            "ends as a part of a histogram does": family.name.endswith(RESERVED_ENDS),
            "is no counter and ends in _total": family.type != "counter" and family.name.endswith("_total"),
            "is a counter without _total": family.type == "counter"
            and any(not sample.name.endswith("_total") for sample in family.samples),
            "has no type": family.type not in ("counter", "gauge"),
            "has no help that is a sentence": not family.documentation.endswith("."),
            "is an info that is not 1": family.name.endswith("_info")
            and {s.value for s in family.samples} - {1.0} != set(),
            "has a label that is reserved or no word": any(
                label in RESERVED_LABELS or re.fullmatch(r"[a-z][a-z_]*", label) is None
                for sample in family.samples
                for label in sample.labels
            ),
        }
        found += [f"{family.name} {fault}" for fault, holds in rules.items() if holds]
    return found


async def families_of(ask: Ask, agent: FakeAgent) -> dict[str, Metric]:
    """Return the metrics of a gateway with kernels of two users."""
    agent.devices = [device(compute_control=CONTROL, utilization_percent=40)]
    in_pod = {**with_compute("k-1", "alice", HELD), "attributes": {"pod": "gpus/kernel-1"}}
    swapped = {"state": "swapped", "mode": "vmm", "swapped_bytes": GIB}
    agent.kernels = [in_pod, kernel("k-2", "bob"), kernel("k-3", "bob", residency=swapped)]
    await agent.start()

    async def look() -> dict[str, Metric]:
        text = (await ask("ada", "GET", "aliquot/api/v1/metrics")).body.decode()
        return {family.name: family for family in text_string_to_metric_families(text)}

    found: dict[str, Metric] = await until(look, lambda told: told["aliquot_user_kernels"].samples)
    return found


async def test_each_metric_keeps_the_rules(ask: Ask, an_agent: FakeAgent) -> None:
    families = await families_of(ask, an_agent)
    assert len(families) > 40
    allowed = {f"{name} names a unit that is no base unit" for name in DEPRECATED}
    assert set(faults(families.values())) == allowed
    for name, successor in DEPRECATED.items():
        assert families[name].documentation.startswith(f"Deprecated: {successor}.")
        assert families[successor].samples


async def test_a_users_figures_are_sums_of_the_kernels(ask: Ask, an_agent: FakeAgent) -> None:
    families = await families_of(ask, an_agent)

    def by_owner(name: str) -> dict[str, float]:
        return {sample.labels["owner"]: sample.value for sample in families[name].samples}

    assert by_owner("aliquot_user_gpus") == {"alice": 0.25, "bob": 0.5}
    assert by_owner("aliquot_user_memory_used_bytes") == {"alice": GIB, "bob": 2 * GIB}
    assert by_owner("aliquot_user_swapped_bytes") == {"alice": 0, "bob": GIB}
    assert by_owner("aliquot_user_queued_gpus") == {"alice": 0, "bob": 0}
    states = {(one.labels["owner"], one.labels["state"]): one.value for one in families["aliquot_user_kernels"].samples}
    assert states == {("alice", "on_gpu"): 1, ("bob", "on_gpu"): 1, ("bob", "swapped_out"): 1}
    ratios = [sample.value for sample in families["aliquot_device_utilization_ratio"].samples]
    assert ratios == [0.4]


async def test_each_metric_of_a_kernel_names_its_pod_and_is_empty_without_one(ask: Ask, an_agent: FakeAgent) -> None:
    families = await families_of(ask, an_agent)
    for family in families.values():
        if family.name.startswith("aliquot_kernel_"):
            pods = {one.labels["kernel"]: named(one.labels) for one in family.samples if "kernel" in one.labels}
            assert pods.items() <= {"k-1": ("gpus", "kernel-1"), "k-2": ("", ""), "k-3": ("", "")}.items(), family.name
    of_kernels = [one for one in families.values() if any("kernel" in sample.labels for sample in one.samples)]
    assert len(of_kernels) > 20
    assert all(family.name.startswith("aliquot_kernel_") for family in of_kernels)


def named(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels["namespace"], labels["pod"]


@pytest.mark.parametrize(
    ("attribute", "want"),
    [("gpus/kernel-1", ("gpus", "kernel-1")), ("kernel-1", ("", "")), ("gpus/", ("", "")), ("/kernel-1", ("", ""))],
)
def test_a_pod_on_another_machine_is_named_and_half_a_name_is_none(attribute: str, want: tuple[str, str]) -> None:
    told = {**NODE, "devices": [device()], "kernels": [kernel("k-1", "alice", attributes={"pod": attribute})]}
    mine = LocalKernel("k-1", "python3.gpu-0.25", "alice", "", PLAIN, "on_gpu")
    snapshot = StatusSnapshot("1", nodes=(RemoteNodeView("far", status=read_status(told)),), kernels=(mine,))
    families = {one.name: one for one in metrics_of(status_report(snapshot, User("", "admin")), snapshot)}
    assert [named(one.labels) for one in families["aliquot_kernel_over_limit_bytes"].samples] == [want]


@pytest.mark.parametrize(
    ("family", "want"),
    [
        (GaugeMetricFamily("aliquot_wait_milliseconds", "Wait.", 1), "names a unit that is no base unit"),
        (GaugeMetricFamily("aliquot_queue_total", "Queue.", 1), "is no counter and ends in _total"),
        (GaugeMetricFamily("aliquot_queue_gauge", "Queue.", 1), "names its type"),
        (GaugeMetricFamily("aliquot_queue_count", "Queue.", 1), "ends as a part of a histogram does"),
        (GaugeMetricFamily("aliquot_queueLength", "Queue.", 1), "is no name of Aliquot's"),
        (GaugeMetricFamily("aliquot_queue", "", 1), "has no help that is a sentence"),
        (GaugeMetricFamily("aliquot_build_info", "Build.", 2), "is an info that is not 1"),
        (CounterMetricFamily("aliquot_waits_seconds", "Waits.", 1), ""),
    ],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
def test_the_rules_find_what_breaks_them(family: Metric, want: str) -> None:
    assert faults([family]) == ([f"{family.name} {want}"] if want else [])
