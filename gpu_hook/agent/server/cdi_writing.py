"""Writes the CDI specs of a node, for container engines."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.devices.cdi import hook_spec, softgpu_spec, write_specs
from jupyter_aliquot.gpu_hook.agent.devices.libraries import mounted_folders
from jupyter_aliquot.gpu_hook.base.files import replace_file
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

from .operations import Node

log = logging.getLogger(__name__)


def write_node_specs(folder: Path, runtime: RuntimeDir, node: Node, indices: Iterable[int]) -> None:
    """Write what mounts the node's libraries, and its software GPUs of these indices. Raises OSError."""
    replace_file(runtime.loader_file, node.libraries.preload_text, mode=0o644, is_durable=False)
    folders = mounted_folders(node.libraries)
    specs = [hook_spec(folders, runtime.loader_file)]
    if node.driver.kind == "softgpu":
        specs.append(softgpu_spec(folders, softgpu_state_path(runtime), indices))
    write_specs(folder, specs)
    log.info("event=cdi_written folder=%s kinds=%s", folder, [spec["kind"] for spec in specs])
