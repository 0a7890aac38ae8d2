"""Prometheus metrics of swaps: memory swapped out, swaps, waiting times, and host memory used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jupyter_aliquot.gateway.reports.kernel import Kernel, Residency
from jupyter_aliquot.gateway.reports.status import HostCopies, Node, Status

_GAUGES: tuple[tuple[str, Callable[[Residency], float], str], ...] = (
    (
        "aliquot_kernel_swapped_bytes",
        lambda one: one["swapped_bytes"],
        "Memory of the kernel that is in the host's instead of a device's.",
    ),
    (
        "aliquot_kernel_swappable_bytes",
        lambda one: one["swappable_bytes"],
        "Memory of the kernel that a swap can move.",
    ),
)
_COPIES: tuple[tuple[str, Callable[[HostCopies], float | None], str], ...] = (
    ("aliquot_host_copies_bytes", lambda one: one["used_bytes"], "Host memory that holds copies of swapped kernels."),
    ("aliquot_host_copies_budget_bytes", lambda one: one["budget_bytes"], "Host memory that such copies may take."),
    (
        "aliquot_host_copies_spilled_bytes",
        lambda one: one["spilled_bytes"],
        "Copies of swapped kernels that are in files.",
    ),
)


def residency_metrics(report: Status, names: Sequence[str], labels: Callable[[Kernel], list[str]]) -> Iterator[Metric]:
    """Yield the metrics of swaps. A kernel that the agent does not report has no samples.

    ``names`` and ``labels``: the names and values of a kernel's labels.
    """
    told = [(labels(kernel), kernel["residency"]) for kernel in report["kernels"] if kernel["residency"] is not None]
    for metric, figure_of, text in _GAUGES:
        gauge = GaugeMetricFamily(metric, text, labels=names)
        for values, residency in told:
            gauge.add_metric(values, float(figure_of(residency)))
        yield gauge
    swaps = CounterMetricFamily("aliquot_kernel_swaps", "Moves of the kernel's memory.", labels=[*names, "direction"])
    waited = CounterMetricFamily("aliquot_kernel_wait_seconds", "Time that calls waited for memory.", labels=names)
    for values, residency in told:
        swaps.add_metric([*values, "out"], float(residency["swaps_out"]))
        swaps.add_metric([*values, "in"], float(residency["swaps_in"]))
        waited.add_metric(values, float(residency["waited_seconds"]))
    stuck = GaugeMetricFamily(
        "aliquot_kernel_not_swappable", "1: the kernel's memory cannot be swapped.", labels=[*names, "reason"]
    )
    for values, residency in told:
        if residency["not_swappable"] is not None:
            stuck.add_metric([*values, residency["not_swappable"]], 1.0)
    over = GaugeMetricFamily(
        "aliquot_kernel_over_limit_bytes", "Used beyond a memory limit that was lowered.", labels=names
    )
    for kernel in report["kernels"]:
        over.add_metric(labels(kernel), float(kernel["over_limit_bytes"]))
    yield from (swaps, waited, stuck, over, *_node_metrics(report["node"]))


def _node_metrics(node: Node) -> Iterator[Metric]:
    ratio = GaugeMetricFamily("aliquot_overcommit_ratio", "How many times its memory the node may promise.")
    ratio.add_metric([], float(node["overcommit"]))
    yield ratio
    copies = node["host_copies"]
    for metric, figure_of, text in _COPIES:
        gauge = GaugeMetricFamily(metric, text)
        figure = None if copies is None else figure_of(copies)
        if figure is not None:
            gauge.add_metric([], float(figure))
        yield gauge
