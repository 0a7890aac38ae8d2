"""What a kernel has on its devices: the one account of it, for the room that others get and for the status."""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.agent.swap.facts import swapped_by_device

from .kernel import Kernel


def bytes_on_devices(kernel: Kernel) -> tuple[dict[str, int], dict[str, int]]:
    """Return by device what its processes say that they charged, and what they have there now, whatever they say."""
    uses = list(zip(kernel.reservation.parts, kernel.report(), strict=True))
    away = swapped_by_device(kernel.residency.facts())
    charged = {part.uuid: use.charged_bytes for part, use in uses}
    return charged, {part.uuid: max(0, use.there_bytes - away.get(part.uuid, 0)) for part, use in uses}
