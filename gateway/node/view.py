"""The node agent's last answer, for the gateway's other parts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.client.reports import KernelStatus, NodeStatus


@dataclass(frozen=True)
class NodeView:
    """The agent's last status; None while it does not answer.

    ``problems`` say what is wrong, and what to do.
    """

    status: NodeStatus | None = None
    problems: tuple[str, ...] = ()


def needed_bytes(known: KernelStatus) -> int | None:
    """Return the memory limit with which no allocation would have failed; None if none did.

    A limit is divided by the shares. If one device of several was too small, the whole has to grow
    in proportion.
    """
    whole = sum(device.hundredths for device in known.devices)
    needed = (
        -(-device.needed_bytes * whole // device.hundredths)
        for device in known.devices
        if device.needed_bytes is not None and device.hundredths
    )
    return max(needed, default=None)


def lacked_bytes(known: KernelStatus | None) -> int | None:
    """Return the memory limit that would have been enough; None if the kernel's own is."""
    needed = None if known is None else needed_bytes(known)
    quota = 0 if known is None else sum(device.quota_bytes for device in known.devices)
    return needed if needed is not None and needed > quota else None
