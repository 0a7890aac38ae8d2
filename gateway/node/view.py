"""The node agent's last answer, as the gateway's other parts get it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.client.reports import KernelStatus, NodeStatus


@dataclass(frozen=True)
class NodeView:
    """What the agent last said; None while it does not answer. ``problems``: what is wrong, and what to do."""

    status: NodeStatus | None = None
    problems: tuple[str, ...] = ()


def needed_bytes(known: KernelStatus) -> int | None:
    """The quota with which nothing would have been refused for want of it; None if nothing was.

    A quota is divided by the shares: where one device of several was too small, the whole has to grow in proportion.
    """
    whole = sum(device.hundredths for device in known.devices)
    needed = (
        -(-device.needed_bytes * whole // device.hundredths)
        for device in known.devices
        if device.needed_bytes is not None and device.hundredths
    )
    return max(needed, default=None)


def lacked_bytes(known: KernelStatus | None) -> int | None:
    """The quota that would have been enough; None where its own is."""
    needed = None if known is None else needed_bytes(known)
    quota = 0 if known is None else sum(device.quota_bytes for device in known.devices)
    return needed if needed is not None and needed > quota else None
