"""Prometheus metrics of one server, from the same snapshot as the status. Keeps nothing.

It has a registry of its own: several servers in one process do not mix, and Jupyter's own metrics
stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.reports.kernel import DroppedMessages, HostMemory, Kernel, KernelDevice
from jupyter_aliquot.gateway.reports.status import Device, Status
from jupyter_aliquot.provisioner.grants.reservation import POD_ATTRIBUTE

from .compute_metrics import compute_metrics
from .nodes import devices_by_node, node_metrics
from .report import StatusSnapshot, status_report
from .residency_metrics import residency_metrics
from .user_metrics import usage_metrics, user_metrics

_Labels = Callable[[Kernel], list[str]]

_EVERYTHING = User("", "admin")
_DEVICE = ["node", "device", "uuid", "name"]
_KERNEL = ["kernel", "owner", "kernelspec", "priority", "namespace", "pod", "uuid"]

# Tuples of metric, function that takes the figure from a device's report, and help.
_DEVICE_GAUGES: tuple[tuple[str, Callable[[Device], float | None], str], ...] = (
    ("aliquot_device_memory_bytes", lambda one: one["memory_bytes"], "Memory of the device."),
    (
        "aliquot_device_memory_used_bytes",
        lambda one: one["used_bytes"],
        "Memory in use by all processes, as the driver reports it.",
    ),
    ("aliquot_device_memory_reserved_bytes", lambda one: one["reserved_bytes"], "Memory reserved for kernels."),
    (
        "aliquot_device_reserved_gpus",
        lambda one: one["reserved_gpus"],
        "Share of the device reserved for kernels, 1 for all of it.",
    ),
    (
        "aliquot_device_utilization_percent",
        lambda one: one["utilization_percent"],
        "Deprecated: aliquot_device_utilization_ratio. How busy the device is, as the driver says.",
    ),
    (
        "aliquot_device_utilization_ratio",
        lambda one: None if one["utilization_percent"] is None else one["utilization_percent"] / 100,
        "How busy the device is, as the driver says, 1 for always.",
    ),
    ("aliquot_device_temperature_celsius", lambda one: one["temperature_celsius"], "Temperature of the device."),
    ("aliquot_device_power_watts", lambda one: one["power_watts"], "Power draw of the device."),
    (
        "aliquot_device_overcommit_ratio",
        lambda one: one["overcommit"],
        "How many times its memory may be reserved.",
    ),
    ("aliquot_device_lost", lambda one: one["lost"], "1 for a device that vanished."),
)
_KERNEL_GAUGES: tuple[tuple[str, Callable[[KernelDevice], float], str], ...] = (
    ("aliquot_kernel_gpus", lambda one: one["gpus"], "Share of the device that the kernel was granted."),
    (
        "aliquot_kernel_memory_limit_bytes",
        lambda one: one["memory_limit_bytes"],
        "Memory that the kernel may use on the device.",
    ),
    (
        "aliquot_kernel_memory_guaranteed_bytes",
        lambda one: one["guaranteed_memory_bytes"],
        "Memory of the limit that is reserved.",
    ),
    ("aliquot_kernel_memory_used_bytes", lambda one: one["used_bytes"], "Memory that the kernel uses on the device."),
    (
        "aliquot_kernel_memory_peak_bytes",
        lambda one: one["peak_bytes"],
        "The most memory that the kernel has used on the device.",
    ),
    (
        "aliquot_kernel_context_bytes",
        lambda one: one["context_bytes"],
        "Memory that contexts take beside what the kernel allocates.",
    ),
)
# Tuples of metric, function that takes the figure from a kernel's host memory, and help.
_HOST_GAUGES: tuple[tuple[str, Callable[[HostMemory], float | None], str], ...] = (
    (
        "aliquot_kernel_host_memory_limit_bytes",
        lambda one: one["limit_bytes"],
        "Host memory that the kernel may page-lock.",
    ),
    (
        "aliquot_kernel_host_memory_used_bytes",
        lambda one: one["used_bytes"],
        "Host memory that the kernel has page-locked.",
    ),
)
_OUTCOMES = {
    "submitted": "Requests for a GPU that were taken into the queue.",
    "granted": "Requests for a GPU that were granted.",
    "refused": "Requests for a GPU that were refused after they had queued.",
    "withdrawn": "Requests for a GPU that their requester gave up.",
    "resized": "Sizes of running kernels that were changed.",
}


class ServerMetrics(Collector):
    """A collector that reads the snapshot at each scrape, so that its figures are current."""

    def __init__(self, snapshot: Callable[[], StatusSnapshot]) -> None:
        self._snapshot = snapshot
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return the Prometheus exposition text. Called by GET /aliquot/api/v1/metrics."""
        return generate_latest(self._registry)

    def describe(self) -> Iterator[Metric]:
        """Called by CollectorRegistry.register.

        Without it the registry would collect before the snapshot is there.
        """
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Called by the registry for each exposition."""
        snapshot = self._snapshot()
        yield from metrics_of(status_report(snapshot, _EVERYTHING, ended=0), snapshot)


def metrics_of(report: Status, snapshot: StatusSnapshot) -> Iterator[Metric]:
    """Yield all metrics of a report. tools/reference lists them from an empty one."""
    labels = partial(_labels, _pods(snapshot))
    yield from _device_metrics(report)
    yield from _kernel_metrics(report, labels)
    yield from node_metrics(report)
    yield from compute_metrics(report, _KERNEL, _DEVICE, labels)
    yield from residency_metrics(report, _KERNEL[:-1], labels)
    yield from user_metrics(report, _KERNEL[:-1], labels)
    yield from usage_metrics(snapshot.usage())
    agent_up = GaugeMetricFamily("aliquot_agent_up", "1 while the node agent answers.")
    agent_up.add_metric([], float(report["node"]["agent"] == "ok"))
    queue = GaugeMetricFamily("aliquot_queue_length", "Kernels that wait for room.")
    queue.add_metric([], float(report["queue"]["length"]))
    yield agent_up
    yield queue
    for outcome, text in _OUTCOMES.items():
        counter = CounterMetricFamily(f"aliquot_admission_{outcome}", text)
        counter.add_metric([], float(snapshot.counts.get(outcome, 0)))
        yield counter
    yield from _counted_words(
        "aliquot_kernel_terminations", "Kernels that ended, by reason.", "reason", snapshot.endings
    )
    yield from _counted_words(
        "aliquot_kernel_failures", "Kernels that failed, by the class of their failure.", "failure", snapshot.failures
    )
    yield from _counted_words(
        "aliquot_limit_refusals", "Requests that c.Limits refused or delayed, by setting.", "limit", snapshot.refusals
    )


def _counted_words(metric: str, text: str, label: str, counts: Mapping[str, int]) -> Iterator[Metric]:
    family = CounterMetricFamily(metric, text, labels=[label])
    for word, number in counts.items():
        family.add_metric([word], float(number))
    yield family


def _device_metrics(report: Status) -> Iterator[Metric]:
    for metric, figure_of, text in _DEVICE_GAUGES:
        family = GaugeMetricFamily(metric, text, labels=_DEVICE)
        for node, device in devices_by_node(report):
            if (figure := figure_of(device)) is not None:
                family.add_metric([node, str(device["index"]), device["uuid"], device["name"]], float(figure))
        yield family
    limited = GaugeMetricFamily(
        "aliquot_device_overcommit_limited", "1: the device is not overcommitted further.", labels=[*_DEVICE, "reason"]
    )
    for node, device in devices_by_node(report):
        if device["overcommit_reason"]:
            of = [node, str(device["index"]), device["uuid"], device["name"]]
            limited.add_metric([*of, device["overcommit_reason"]], 1.0)
    yield limited


def _kernel_metrics(report: Status, labels_of: _Labels) -> Iterator[Metric]:
    for metric, figure_of, text in _KERNEL_GAUGES:
        family = GaugeMetricFamily(metric, text, labels=_KERNEL)
        for labels, device in _kernel_devices(report, labels_of):
            family.add_metric(labels, float(figure_of(device)))
        yield family
    busy = CounterMetricFamily("aliquot_kernel_busy_seconds", "GPU time that the kernel has used.", labels=_KERNEL)
    for labels, device in _kernel_devices(report, labels_of):
        busy.add_metric(labels, float(device["busy_seconds"]))
    yield busy
    refusals = CounterMetricFamily(
        "aliquot_kernel_failed_allocations", "Allocations that failed at the memory limit.", labels=_KERNEL[:-1]
    )
    for kernel in report["kernels"]:
        refusals.add_metric(labels_of(kernel), float(kernel["failed_allocations"]))
    yield refusals
    dropped = CounterMetricFamily(
        "aliquot_kernel_dropped_messages", "Messages that browsers were not sent.", labels=[*_KERNEL[:-1], "why"]
    )
    for kernel in report["kernels"]:
        for why, count in _counts(kernel["dropped_messages"]):
            dropped.add_metric([*labels_of(kernel), why], count)
    yield dropped
    yield from _escape_metrics(report, labels_of)


def _counts(dropped: DroppedMessages | None) -> list[tuple[str, float]]:
    return [] if dropped is None else [(why, float(cast(int, count))) for why, count in dropped.items()]


def _escape_metrics(report: Status, labels_of: _Labels) -> Iterator[Metric]:
    for metric, figure_of, text in _HOST_GAUGES:
        family = GaugeMetricFamily(metric, text, labels=_KERNEL[:-1])
        for kernel in report["kernels"]:
            host = kernel["host_memory"]
            figure = None if host is None else figure_of(host)
            if figure is not None:
                family.add_metric(labels_of(kernel), float(figure))
        yield family
    unhooked = GaugeMetricFamily(
        "aliquot_kernel_uncontrolled_processes",
        "Processes of the kernel with memory on a device that no hook counts.",
        labels=_KERNEL[:-1],
    )
    for kernel in report["kernels"]:
        pids = {process["pid"] for process in kernel["uncontrolled_processes"]}  # one on two devices is listed twice
        unhooked.add_metric(labels_of(kernel), float(len(pids)))
    yield unhooked
    foreign = GaugeMetricFamily("aliquot_untracked_processes", "Processes on the devices that belong to no kernel.")
    foreign.add_metric([], float(report["node"]["untracked_processes"]))
    yield foreign


def _kernel_devices(report: Status, labels_of: _Labels) -> Iterator[tuple[list[str], KernelDevice]]:
    for kernel in report["kernels"]:
        for device in kernel["devices"]:
            yield [*labels_of(kernel), device["uuid"]], device


def _labels(pods: Mapping[str, list[str]], kernel: Kernel) -> list[str]:
    # Prometheus takes an empty label for none. A kernel has one pod at a time: no series are added.
    return [kernel["id"], kernel["owner"], kernel["name"], kernel["priority"], *pods.get(kernel["id"], ["", ""])]


def _pods(snapshot: StatusSnapshot) -> dict[str, list[str]]:
    """Return the namespace and the name of the pod of each kernel whose grant names one."""
    found = {}
    for status in (snapshot.node.status, *(node.status for node in snapshot.nodes)):
        for kernel in status.kernels if status is not None else ():
            namespace, _, pod = dict(kernel.attributes).get(POD_ATTRIBUTE, "").partition("/")
            if namespace and pod:
                found[kernel.kernel_id] = [namespace, pod]
    return found
