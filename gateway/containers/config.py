"""The settings of the container engine: its address, and access to devices and the hook."""

from __future__ import annotations

from typing import Any

from traitlets import Enum, List, TraitError, Unicode, validate
from traitlets.config import Configurable

from jupyter_aliquot.provisioner.engine.settings import ContainerSettings


class KernelContainers(Configurable):
    """The engine that runs kernels of the image catalogue."""

    engine = Unicode(
        "",
        help="URL of the engine's API, such as unix:///run/podman/podman.sock; empty for DOCKER_HOST, "
        "or else the usual sockets of Docker and Podman.",
    ).tag(config=True)
    devices = Enum(
        ("auto", "cdi", "mounts"),
        "auto",
        help="How devices come into a container: cdi lets the engine resolve them, mounts makes the edits of the node "
        "agent's CDI specs without it, auto asks the engine which.",
    ).tag(config=True)
    cdi_dirs = List(
        Unicode(),
        ["/etc/cdi", "/var/run/cdi"],
        help="Folders of the node agent's CDI specs (its --cdi-dir), read where the engine does not resolve them.",
    ).tag(config=True)
    hook = Enum(
        ("shim", "preload"),
        "shim",
        help="How the hook comes before the driver: shim by the loader's search path, preload by /etc/ld.so.preload, "
        "for images whose programs clear their environment.",
    ).tag(config=True)

    relay_image = Unicode(
        "",
        help="Image with Aliquot for a relay host in a container of its own, started once per machine where none runs; "
        "empty: a process beside the gateway. Kernels that are processes then run in that container, too.",
    ).tag(config=True)

    def settings(self) -> ContainerSettings:
        """Return the settings as one value."""
        return ContainerSettings(self.engine, self.devices, tuple(self.cdi_dirs), self.hook, self.relay_image)

    @validate("engine")
    def _is_a_url(self, proposal: dict[str, Any]) -> str:
        url = str(proposal["value"])
        if url and not url.startswith(("unix:///", "tcp://", "https://", "http://")):
            raise TraitError(
                f"c.KernelContainers.engine: {url!r} is not the URL of an engine. Use one such as "
                "unix:///run/docker.sock"
            )
        return url

    @validate("cdi_dirs")
    def _are_absolute(self, proposal: dict[str, Any]) -> list[str]:
        folders = list(proposal["value"])
        if not folders or not all(folder.startswith("/") for folder in folders):
            raise TraitError(
                f"c.KernelContainers.cdi_dirs: {folders} are not absolute paths. Use one or more absolute paths"
            )
        return folders
