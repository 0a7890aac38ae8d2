"""A machine for tests: a gateway, an agent on the software GPU, relays, kernels in containers.

All containers are of one engine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import docker

if TYPE_CHECKING:
    from tests.containers.container_engines import WHOLE_IMAGE, Engine
else:
    from container_engines import WHOLE_IMAGE, Engine

USER = 4321
CONFIG = """
c.AliquotProvisioner.relay = True
c.ImageCatalogue.images = [{images}]
c.KernelContainers.engine = {engine!r}
c.KernelContainers.cdi_dirs = [{cdi!r}]
c.KernelContainers.relay_image = {relay_image!r}
c.SharedFolders.roots = [{homes!r}]
c.SharedFolders.home = {homes!r} + "/{{user}}"
c.SharedFolders.make_homes = True
c.SharedFolders.home_owner = "{user}:{user}"
"""


def survival() -> ModuleType:
    """Load the parts of the tests of process kernels.

    They are gateways that come and go, and tabs that reconnect.
    """
    path = Path(__file__).parents[1] / "system" / "survival" / "conftest.py"
    spec = importlib.util.spec_from_file_location("survival_of_processes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


parts = survival()


class ContainerNode(parts.Node):  # type: ignore[name-defined, misc]
    """A machine whose gateway starts containers on one engine, with a software GPU of 4 GiB."""

    def __init__(self, folder: Path, engine: Engine, relay_image: str = "") -> None:
        super().__init__(folder)
        self.engine = engine
        self.homes = folder / "homes"
        self.homes.mkdir()
        folder.chmod(0o755)
        image = {"name": "pytorch", "display_name": "PyTorch", "version": "2.11", "image": WHOLE_IMAGE, "pull": "never"}
        # Its programs have no variable of the loader.
        clean = ["/usr/bin/env", "-u", "LD_LIBRARY_PATH", "-u", "LD_AUDIT", "python3", "-m", "ipykernel_launcher", "-f"]
        bare = {**image, "name": "bare", "kernelspec": {"argv": [*clean, "{connection_file}"]}}
        small = {"name": "small", "image": WHOLE_IMAGE, "pull": "never", "limits": {"memory": "128MiB"}}
        images = ", ".join(json.dumps(each | {"user": f"{USER}:{USER}"}) for each in (image, bare, small))
        self.config = folder / "gateway_config.py"
        self.config.write_text(
            CONFIG.format(
                images=images,
                engine=engine.url,
                cdi=str(engine.cdi_dir),
                homes=str(self.homes),
                user=USER,
                relay_image=relay_image,
            )
        )
        self.start()

    def start(self) -> None:
        self.start_agent("4GiB", "--cdi-dir", str(self.engine.cdi_dir), "--library-dir", str(self.folder / "libraries"))

    def add_config(self, line: str) -> None:
        """Add a line to the configuration of the next gateway."""
        self.config.write_text(f"{self.config.read_text()}{line}\n")

    def gateway(self) -> Any:
        return self.serve(f"--config={self.config}").wait_until_up()

    def next(self, gateway: Any) -> Any:
        return self.succeed(gateway, f"--config={self.config}")

    def box(self, kernel_id: str) -> Any:
        """Return the kernel's container, as the engine describes it."""
        return self.engine.client().containers.get(f"aliquot-{kernel_id}")

    def box_id(self, kernel_id: str) -> str:
        """Return the container's id; empty between one container and the next."""
        with contextlib.suppress(docker.errors.APIError):  # Podman answers 500 during a removal
            return str(self.box(kernel_id).id)
        return ""

    def boxes(self) -> list[str]:
        labels = {"label": f"aliquot.dev/runtime-dir={self.runtime.path}"}
        return [str(box.name) for box in self.engine.client().containers.list(all=True, filters=labels)]

    def close(self) -> None:
        super().close()
        for name in self.boxes():
            self.engine.client().containers.get(name).remove(force=True)
