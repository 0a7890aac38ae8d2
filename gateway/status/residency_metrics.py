"""Prometheus metrics of swaps: what is out, how often, how long kernels waited, and what it takes of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Report = dict[str, Any]

_GAUGES = (
    (
        "aliquot_kernel_swapped_bytes",
        "swapped_bytes",
        "Memory of the kernel that is in the host's instead of a device's.",
    ),
    ("aliquot_kernel_swappable_bytes", "swappable_bytes", "Memory of the kernel that a swap can move."),
)
_COPIES = (
    ("aliquot_host_copies_bytes", "used_bytes", "Host memory that holds copies of swapped kernels."),
    ("aliquot_host_copies_budget_bytes", "budget_bytes", "Host memory that such copies may take."),
    ("aliquot_host_copies_spilled_bytes", "spilled_bytes", "Copies of swapped kernels that are in files."),
)


def residency_metrics(report: Report, names: Sequence[str], labels: Callable[[Report], list[str]]) -> Iterator[Metric]:
    """``names`` and ``labels``: those of a kernel. Kernels of which the agent tells nothing have no samples."""
    told = [kernel for kernel in report["kernels"] if kernel["residency"] is not None]
    for metric, field, text in _GAUGES:
        gauge = GaugeMetricFamily(metric, text, labels=names)
        for kernel in told:
            gauge.add_metric(labels(kernel), float(kernel["residency"][field]))
        yield gauge
    swaps = CounterMetricFamily("aliquot_kernel_swaps", "Moves of the kernel's memory.", labels=[*names, "direction"])
    waited = CounterMetricFamily("aliquot_kernel_wait_seconds", "Time that calls waited for memory.", labels=names)
    for kernel in told:
        for direction in ("out", "in"):
            swaps.add_metric([*labels(kernel), direction], float(kernel["residency"][f"swaps_{direction}"]))
        waited.add_metric(labels(kernel), float(kernel["residency"]["waited_seconds"]))
    stuck = GaugeMetricFamily(
        "aliquot_kernel_not_swappable", "1: the kernel's memory cannot be swapped.", labels=[*names, "reason"]
    )
    for kernel in told:
        if kernel["residency"]["not_swappable"] is not None:
            stuck.add_metric([*labels(kernel), kernel["residency"]["not_swappable"]], 1.0)
    over = GaugeMetricFamily(
        "aliquot_kernel_over_limit_bytes", "Used beyond a memory limit that was lowered.", labels=names
    )
    for kernel in report["kernels"]:
        over.add_metric(labels(kernel), float(kernel["over_limit_bytes"]))
    yield from (swaps, waited, stuck, over, *_node_metrics(report["node"]))


def _node_metrics(node: Report) -> Iterator[Metric]:
    ratio = GaugeMetricFamily("aliquot_overcommit_ratio", "How many times its memory the node may promise.")
    ratio.add_metric([], float(node["overcommit"]))
    yield ratio
    copies = node["host_copies"] or {}
    for metric, field, text in _COPIES:
        gauge = GaugeMetricFamily(metric, text)
        if copies.get(field) is not None:
            gauge.add_metric([], float(copies[field]))
        yield gauge
