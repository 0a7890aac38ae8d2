"""Reports and metrics of nodes on other machines. Pure."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from jupyter_aliquot.gateway.base.clock import iso
from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.reports.status import Device, RemoteNode, Status
from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot

from .devices import NOTHING_KNOWN
from .node_schedule import cordon_report
from .report_cache import ReportMemo

log = logging.getLogger(__name__)


def nodes_report(
    nodes: Collection[RemoteNodeView],
    name: str,
    memo: ReportMemo,
    cordons: Mapping[str, Cordon],
    ledger: LedgerSnapshot = NOTHING_KNOWN,
) -> list[RemoteNode]:
    """Return the nodes on other machines.

    ``name``: the user whose kernels count as "mine". ``ledger``: what teams lower, and the model of
    kernels that share a device. An unknown node keeps the devices that its agent last told.
    """
    memo.forget_nodes({node.name for node in nodes})
    return [_node_report(node, name, memo, cordons.get(node.name), ledger) for node in nodes]


def _node_report(
    node: RemoteNodeView, name: str, memo: ReportMemo, cordon: Cordon | None, ledger: LedgerSnapshot
) -> RemoteNode:
    devices: list[Device] = []
    message = node.message
    try:
        if node.status is not None:
            devices = memo.devices_of(node.name, node.status).reports(name, ledger)
    except Exception as error:  # one node's report fails no other's
        log.exception("node=unreadable name=%s", node.name)
        message = f"{message} Its devices cannot be shown: {error!r:.200}".strip()
    return {
        "name": node.name,
        "state": "connected" if node.is_connected else "unknown",
        "message": message or None,
        "since": iso(node.since),
        "driver": node.status.driver if node.status else None,
        "kernels": len(node.status.kernels) if node.status else None,
        "devices": devices,
        "cordon": cordon_report(cordon),
    }


def devices_by_node(report: Status) -> Iterator[tuple[str, Device]]:
    """Yield each device with its node's name: those of this machine, then those of connected nodes.

    Figures of an unknown node are old, so metrics leave them out.
    """
    for device in report["devices"]:
        yield report["node"]["name"], device
    for node in report["nodes"]:
        if node["state"] == "connected":
            for device in node["devices"]:
                yield node["name"], device


def node_metrics(report: Status) -> Iterator[Metric]:
    """Yield whether each node on another machine is connected, and whether each node is cordoned."""
    connected = GaugeMetricFamily(
        "aliquot_node_connected", "1 while the agent of a node on another machine is connected.", labels=["node"]
    )
    for node in report["nodes"]:
        connected.add_metric([node["name"]], float(node["state"] == "connected"))
    yield connected
    cordoned = GaugeMetricFamily(
        "aliquot_node_cordoned", "1 while nothing new starts on a node; 2 while it is drained.", labels=["node"]
    )
    for name, cordon in ((one["name"], one["cordon"]) for one in (report["node"], *report["nodes"])):
        if name:
            cordoned.add_metric([name], 0.0 if cordon is None else 2.0 if cordon["draining"] else 1.0)
    yield cordoned
