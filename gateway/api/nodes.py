"""REST of nodes: those on other machines, cordons, and moves between GPUs. openapi.yaml is the contract."""

from __future__ import annotations

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, authenticated

from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.nodes.cordons import Cordons
from jupyter_aliquot.gateway.reports.status import Nodes, NodeSchedule
from jupyter_aliquot.gateway.scheduling.defragmentation.service import Defragmentation
from jupyter_aliquot.gateway.status.node_schedule import cordon_report, device_schedule, known_nodes, node_schedule
from jupyter_aliquot.gateway.status.nodes import nodes_report
from jupyter_aliquot.provisioner.errors import AliquotError

from .base import AliquotHandler
from .jupyter import read_body

_MOVE_FIELDS = ("digest", "size", "node")
_NODE = r"/aliquot/api/v1/nodes/(?P<name>[^/]+)"


class NodesHandler(AliquotHandler):
    """Answer the nodes on other machines."""

    @authenticated
    @authorized
    async def get(self) -> None:
        snapshot = self.sources.snapshot(self.requester)
        report: Nodes = {
            "nodes": nodes_report(
                snapshot.nodes, self.requester.name, snapshot.memo, snapshot.cordons, snapshot.ledger
            ),
            "cordon": cordon_report(snapshot.ledger.cordon),
        }
        self.answer(report)


class _OneNodeHandler(AliquotHandler):
    """The part that handlers of one node share. For administrators."""

    def schedule(self, name: str) -> NodeSchedule:
        """Return the report of a node, or of a device by its UUID.

        Raises HTTPError: 403, and 404 for one that is not known.
        """
        if not self.requester.is_admin:
            raise HTTPError(403, "Nodes are cordoned and drained by administrators")
        snapshot = self.sources.snapshot(self.requester)
        labels = {kernel.id: kernel.label for kernel in snapshot.kernels if kernel.label}
        local = snapshot.ledger.node.name or ("" if snapshot.node.status is None else snapshot.node.status.node)
        names = known_nodes(local, (node.name for node in snapshot.nodes), snapshot.cordons)
        holder = next((one for one in snapshot.ledger.nodes if any(d.uuid == name for d in one.devices)), None)
        if holder is not None:
            statuses = (snapshot.node.status, *(node.status for node in snapshot.nodes))
            status = next((one for one in statuses if one is not None and one.node == holder.name), None)
            return device_schedule(name, snapshot.cordons.get(name), status, snapshot.ledger, labels)
        if name not in names:
            raise HTTPError(404, f"Requested the node {name}, but the nodes are {', '.join(names) or 'not known yet'}")
        if name == local:
            return node_schedule(name, snapshot.cordons.get(name), snapshot.node.status, snapshot.ledger, labels)
        status = next((node.status for node in snapshot.nodes if node.name == name), None)
        ledger = snapshot.ledger if name in {one.name for one in snapshot.ledger.others} else None
        return node_schedule(name, snapshot.cordons.get(name), status, ledger, labels)


class NodeHandler(_OneNodeHandler):
    """Answer whether kernels start on a node, and which kernels are there."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        self.answer(self.schedule(name))


class _CordonHandler(_OneNodeHandler):
    """The part that the handlers share which change a node's cordon."""

    @property
    def cordons(self) -> Cordons:
        found = self.sources.cordons
        if found is None:
            raise HTTPError(503, "This server has no nodes, for its kernels are a gateway's: ask that one")
        return found

    async def cordon(self, name: str, *, is_draining: bool) -> None:
        """Cordon the node, and answer."""
        self.schedule(name)
        try:
            reason = self._read_reason()
            await self.cordons.cordon(name, self.requester.name, reason, is_draining=is_draining)
        except AliquotError as error:
            raise http_error(error) from error
        self.answer(self.schedule(name))

    def _read_reason(self) -> str:
        body = read_body(self.get_json_body) or {}
        reason = body.get("reason")
        if set(body) - {"reason"} or not isinstance(reason, (str, type(None))):
            raise HTTPError(400, 'Send {"reason": TEXT}, or no body')
        return reason or ""


class CordonHandler(_CordonHandler):
    """Let nothing new start on a node."""

    @authenticated
    @authorized
    async def post(self, name: str) -> None:
        await self.cordon(name, is_draining=False)


class DrainHandler(_CordonHandler):
    """Cordon a node, and have its kernels swapped out."""

    @authenticated
    @authorized
    async def post(self, name: str) -> None:
        await self.cordon(name, is_draining=True)


class UncordonHandler(_CordonHandler):
    """Let kernels start on a node again."""

    @authenticated
    @authorized
    async def post(self, name: str) -> None:
        self.schedule(name)
        try:
            await self.cordons.uncordon(name, self.requester.name)
        except AliquotError as error:
            raise http_error(error) from error
        self.answer(self.schedule(name))


class MovesHandler(AliquotHandler):
    """Answer a plan of moves between GPUs, and run one that was answered. For administrators."""

    @authenticated
    @authorized
    async def get(self) -> None:
        await self._answer_plan(self.get_query_argument("size", ""), self.get_query_argument("node", ""))

    @authenticated
    @authorized
    async def post(self) -> None:
        plans, body = self._plans(), read_body(self.get_json_body) or {}
        digest, size, node = (body.get(name) or "" for name in _MOVE_FIELDS)
        if set(body) - set(_MOVE_FIELDS) or not digest or not all(isinstance(one, str) for one in (digest, size, node)):
            raise HTTPError(400, 'Send {"digest": TEXT}, and the size and node that the plan was asked for')
        self._check_node(plans, node)
        try:
            await plans.begin(digest, self.requester.name, size, node)
        except AliquotError as error:
            raise http_error(error) from error
        self.set_status(202)
        await self._answer_plan(size, node)

    async def _answer_plan(self, size: str, node: str) -> None:
        plans = self._plans()
        self._check_node(plans, node)
        try:
            self.answer(await plans.report(size, node))
        except AliquotError as error:
            raise http_error(error) from error

    def _plans(self) -> Defragmentation:
        if not self.requester.is_admin:
            raise HTTPError(403, "Kernels are moved between GPUs by administrators")
        if self.sources.moves is None:
            raise HTTPError(503, "This server has no nodes, for its kernels are a gateway's: ask that one")
        return self.sources.moves

    def _check_node(self, plans: Defragmentation, node: str) -> None:
        if node and node not in plans.node_names:
            known = ", ".join(plans.node_names) or "not known yet"
            raise HTTPError(404, f"Requested moves on the node {node[:60]}, but the nodes are {known}")


NODE_HANDLERS = (
    (r"/aliquot/api/v1/nodes", NodesHandler),
    (_NODE, NodeHandler),
    (_NODE + "/cordon", CordonHandler),
    (_NODE + "/drain", DrainHandler),
    (_NODE + "/uncordon", UncordonHandler),
    (r"/aliquot/api/v1/moves", MovesHandler),
)
