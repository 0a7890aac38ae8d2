"""Prometheus metrics that a device's exporter cannot give where kernels share it: by user, and of idle kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.gateway.reports.status import Status

_USAGE_LABELS = ["owner", "team", "gpu_model", "priority"]

_OWNER = ["owner"]
_NOT_HOLDING = frozenset({"queued", "ended"})
# Tuples of metric, function that takes the figure from a kernel's report, and help.
_SUMS: tuple[tuple[str, Callable[[Kernel], float], str], ...] = (
    (
        "aliquot_user_gpus",
        lambda one: 0.0 if one["state"] in _NOT_HOLDING else one["gpus"],
        "GPUs that the user's kernels hold.",
    ),
    (
        "aliquot_user_idle_gpus",
        lambda one: 0.0 if one["state"] in _NOT_HOLDING or one["idle_since"] is None else one["gpus"],
        "GPUs that kernels of the user hold while they are idle.",
    ),
    (
        "aliquot_user_queued_gpus",
        lambda one: one["gpus"] if one["state"] == "queued" else 0.0,
        "GPUs that the user's kernels wait for.",
    ),
    ("aliquot_user_memory_used_bytes", lambda one: one["used_bytes"], "GPU memory that the user's kernels use."),
    (
        "aliquot_user_swapped_bytes",
        lambda one: 0 if one["residency"] is None else one["residency"]["swapped_bytes"],
        "Memory of the user's kernels that is in the host's instead of a device's.",
    ),
)


def user_metrics(report: Status, names: Sequence[str], labels: Callable[[Kernel], list[str]]) -> Iterator[Metric]:
    """Yield the metrics. ``names`` and ``labels``: the names and values of a kernel's labels."""
    owners = sorted({kernel["owner"] for kernel in report["kernels"]})
    for metric, figure_of, text in _SUMS:
        family = GaugeMetricFamily(metric, text, labels=_OWNER)
        sums = dict.fromkeys(owners, 0.0)
        for kernel in report["kernels"]:
            sums[kernel["owner"]] += figure_of(kernel)
        for owner, figure in sums.items():
            family.add_metric([owner], figure)
        yield family
    kernels = GaugeMetricFamily("aliquot_user_kernels", "Kernels of the user, by state.", labels=[*_OWNER, "state"])
    for (owner, state), count in sorted(Counter((one["owner"], one["state"]) for one in report["kernels"]).items()):
        kernels.add_metric([owner, state], float(count))
    yield kernels
    yield from _idle_metrics(report, names, labels)


def _idle_metrics(report: Status, names: Sequence[str], labels: Callable[[Kernel], list[str]]) -> Iterator[Metric]:
    since = GaugeMetricFamily(
        "aliquot_kernel_idle_since_timestamp_seconds",
        "When the kernel became idle, in seconds since the epoch; no sample while it works.",
        labels=names,
    )
    restore = GaugeMetricFamily(
        "aliquot_kernel_restore_seconds",
        "How long a cell would wait for the memory of a swapped-out kernel now.",
        labels=names,
    )
    for kernel in report["kernels"]:
        if kernel["idle_since"] is not None:
            # Python 3.10 reads no Z.
            moment = datetime.fromisoformat(kernel["idle_since"].replace("Z", "+00:00"))
            since.add_metric(labels(kernel), moment.timestamp())
        residency = kernel["residency"]
        if residency is not None and residency["restore_seconds"] is not None:
            restore.add_metric(labels(kernel), float(residency["restore_seconds"]))
    yield since
    yield restore


class UsageCounter(NamedTuple):
    """GPU seconds of one user, team, model and priority since the gateway's start."""

    owner: str
    team: str
    model: str
    priority: str
    working: float = 0.0
    on_gpu: float = 0.0
    swapped_out: float = 0.0
    waiting: float = 0.0
    charged: float = 0.0

    @property
    def labels(self) -> list[str]:
        return [self.owner, self.team, self.model, self.priority]


def usage_metrics(counters: Sequence[UsageCounter]) -> Iterator[Metric]:
    """Yield the counters."""
    working = CounterMetricFamily("aliquot_usage_working_gpu_seconds", "GPU time used.", labels=_USAGE_LABELS)
    held = CounterMetricFamily(
        "aliquot_usage_held_gpu_seconds",
        "Size times the time of kernels, by their memory's place.",
        labels=[*_USAGE_LABELS, "place"],
    )
    waiting = CounterMetricFamily(
        "aliquot_usage_waiting_gpu_seconds", "Size times the time in want of a GPU.", labels=_USAGE_LABELS
    )
    charged = CounterMetricFamily(
        "aliquot_usage_charged_gpu_seconds", "GPU time that is charged, with its weights.", labels=_USAGE_LABELS
    )
    for one in counters:
        working.add_metric(one.labels, one.working)
        held.add_metric([*one.labels, "on_gpu"], one.on_gpu)
        held.add_metric([*one.labels, "swapped_out"], one.swapped_out)
        waiting.add_metric(one.labels, one.waiting)
        charged.add_metric(one.labels, one.charged)
    yield from (working, held, waiting, charged)
