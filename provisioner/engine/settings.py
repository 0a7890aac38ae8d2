"""The administrator's choices for containers, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.provisioner.containers.cdi import USUAL_FOLDERS


@dataclass(frozen=True)
class ContainerSettings:
    """``engine`` is a URL, empty for the usual one. ``devices``: cdi lets the engine resolve them, mounts makes its
    edits from the specs in ``cdi_dirs``, auto asks the engine. ``hook``: shim or preload, the agent's two devices.
    ``relay_image``: of a relay host in a container; empty for a process."""

    engine: str = ""
    devices: str = "auto"
    cdi_dirs: tuple[str, ...] = USUAL_FOLDERS
    hook: str = "shim"
    relay_image: str = ""
