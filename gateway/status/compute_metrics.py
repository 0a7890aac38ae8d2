"""Prometheus metrics of GPU time, made from the status report. Pure; prometheus.py serves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jupyter_aliquot.gateway.reports.kernel import Compute, Kernel
from jupyter_aliquot.gateway.reports.status import Status

from .nodes import devices_by_node

# Tuples of metric, function that takes the figure from a kernel's compute on a device, and help.
_GAUGES: tuple[tuple[str, Callable[[Compute], float | None], str], ...] = (
    (
        "aliquot_kernel_fair_share_ratio",
        lambda one: one["fair_share"],
        "The kernel's fair share of the device's time now.",
    ),
    (
        "aliquot_kernel_share_used_ratio",
        lambda one: one["share_used"],
        "Part of the device's time that the kernel had in the last second.",
    ),
    (
        "aliquot_kernel_slowdown_ratio",
        lambda one: one["slowdown"],
        "Duration of the kernel's launches, divided by their duration alone.",
    ),
    (
        "aliquot_kernel_max_delay_seconds",
        lambda one: one["max_delay_seconds"],
        "The longest that the kernel's work in flight can delay a normal-priority kernel.",
    ),
    ("aliquot_kernel_paused", lambda one: one["paused"], "1 while the kernel is paused for normal-priority work."),
    ("aliquot_kernel_hard_limit", lambda one: one["has_hard_limit"], "1 where the kernel's share is a hard limit."),
)
_COUNTERS: tuple[tuple[str, Callable[[Compute], float], str], ...] = (
    (
        "aliquot_kernel_own_seconds",
        lambda one: one["own_seconds"],
        "GPU time of the kernel, its neighbours' slices taken out.",
    ),
    (
        "aliquot_kernel_throttled_seconds",
        lambda one: one["throttled_seconds"],
        "Time for which the kernel's launches waited for their turn.",
    ),
)


def compute_metrics(
    report: Status, kernel: Sequence[str], device: Sequence[str], labels: Callable[[Kernel], list[str]]
) -> Iterator[Metric]:
    """Yield the metrics of kernels and devices. A figure that was not measured has no sample.

    Args:
        report: The status report.
        kernel: The names of a kernel's labels.
        device: The names of a device's labels.
        labels: Returns the label values of a kernel, without its device.
    """
    told = [
        ([*labels(one), part["uuid"]], part["compute"])
        for one in report["kernels"]
        for part in one["devices"]
        if part["compute"] is not None
    ]
    for metric, gauge_of, text in _GAUGES:
        gauge = GaugeMetricFamily(metric, text, labels=kernel)
        for values, compute in told:
            if (figure := gauge_of(compute)) is not None:
                gauge.add_metric(values, float(figure))
        yield gauge
    for metric, count_of, text in _COUNTERS:
        counter = CounterMetricFamily(metric, text, labels=kernel)
        for values, compute in told:
            counter.add_metric(values, float(count_of(compute)))
        yield counter
    yield from _control_metrics(report, device)


def _control_metrics(report: Status, names: Sequence[str]) -> Iterator[Metric]:
    contended = GaugeMetricFamily("aliquot_device_contended", "1 while the device's time is controlled.", labels=names)
    info = GaugeMetricFamily(
        "aliquot_device_compute_control_info",
        "1, with what decides about the device's time and how kernels share it.",
        labels=[*names, "controller", "sharing"],
    )
    for node, one in devices_by_node(report):
        control, values = one["compute_control"], [node, str(one["index"]), one["uuid"], one["name"]]
        if control is not None:
            contended.add_metric(values, float(control["contended"]))
            info.add_metric([*values, control["controller"], control["sharing"]], 1.0)
    yield contended
    yield info
