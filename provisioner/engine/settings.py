"""The administrator's choices for containers, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.provisioner.containers.cdi import USUAL_FOLDERS


@dataclass(frozen=True)
class ContainerSettings:
    """Options of kernels' containers.

    ``engine`` is a URL, empty for the usual one. ``devices``: with cdi the engine resolves them,
    with mounts we make the edits of the specs in ``cdi_dirs``, with auto the engine's properties
    decide. ``hook``: shim or preload, the agent's two devices. ``relay_image``: the image of a
    relay host in a container; empty for a process.
    """

    engine: str = ""
    devices: str = "auto"
    cdi_dirs: tuple[str, ...] = USUAL_FOLDERS
    hook: str = "shim"
    relay_image: str = ""
