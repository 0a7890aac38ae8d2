"""Kernels of all nodes in one view: what culling, the history and the guard of interception look at."""

from __future__ import annotations

from jupyter_aliquot.gateway.culling.culler import GpuUse
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.nodes.whole_view import WholeView
from jupyter_aliquot.gpu_hook.client.reports import KernelDeviceStatus, KernelStatus, NodeStatus


def kernel(kernel_id: str, busy_seconds: float = 0.0) -> KernelStatus:
    part = KernelDeviceStatus("GPU-1", 0, 25, 1 << 30, 0, 0, 0, busy_seconds, 0)
    return KernelStatus(kernel_id, "alice", "", 25, None, "production", 1, (), 0.0, "holds", (1,), False, (part,))


def node(name: str, *kernels: KernelStatus) -> NodeStatus:
    return NodeStatus(name, "softgpu", "hook", (), kernels, 1)


def test_without_other_nodes_the_view_is_the_own_one() -> None:
    own = NodeView(node("here", kernel("a")))
    assert WholeView(tuple).of(own) is own


def test_kernels_of_other_nodes_are_in_the_view_while_their_agents_are_connected() -> None:
    nodes = [RemoteNodeView("gpu-a", is_connected=True, status=node("gpu-a", kernel("b")))]
    nodes.append(RemoteNodeView("gpu-b", is_connected=False, status=node("gpu-b", kernel("c"))))
    whole, own = WholeView(lambda: nodes), NodeView(node("here", kernel("a")), ("told",))
    seen = whole.of(own)
    assert seen.status is not None
    assert ([one.kernel_id for one in seen.status.kernels], seen.problems) == (["a", "b"], ("told",))
    assert whole.of(own).status is seen.status, "made once for the same statuses"
    [elsewhere] = [whole.of(NodeView()).status]
    assert elsewhere is not None
    assert [one.kernel_id for one in elsewhere.kernels] == ["b"], "a gateway without a node of its own"


def test_gpu_work_on_another_node_is_use_and_a_lost_node_is_unknown() -> None:
    nodes = [RemoteNodeView("gpu-a", is_connected=True, status=node("gpu-a", kernel("b", 1.0)))]
    whole, use = WholeView(lambda: nodes), GpuUse()
    use.observe(whole.of(NodeView()), 100.0)
    nodes[0] = RemoteNodeView("gpu-a", is_connected=True, status=node("gpu-a", kernel("b", 2.0)))
    use.observe(whole.of(NodeView()), 200.0)
    assert use.last("b") == 200.0
    nodes[0] = RemoteNodeView("gpu-a", is_connected=False, status=nodes[0].status)
    use.observe(whole.of(NodeView()), 300.0)
    assert use.last("b") is None
