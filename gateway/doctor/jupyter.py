"""Checks of Jupyter: provisioner, kernelspecs on disk, server and lab extension.

They change nothing.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_core.application import JupyterApp
from jupyter_core.paths import jupyter_config_path, jupyter_path
from jupyter_server.extension.config import ExtensionConfigManager

from jupyter_aliquot.gateway.serverapp.app import EXTENSION
from jupyter_aliquot.gateway.serverapp.class_defaults import ACCESS_CLASSES, KERNEL_CLASSES

from .runner import FAIL, OK, WARN, Finding

LAB_EXTENSION = "@jupyter-aliquot/labextension"
_INSTALL = "install again: pip install ."

_REPLACED = {**KERNEL_CLASSES, **ACCESS_CLASSES}


def check_provisioner() -> list[Finding]:
    """Check that jupyter_client finds the provisioner, in any client."""
    found = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners", name="aliquot")
    if not found:
        return [Finding("provisioner", FAIL, "jupyter_client does not know the provisioner 'aliquot'", _INSTALL)]
    return [Finding("provisioner", OK, f"{next(iter(found)).value}")]


def check_kernelspecs() -> list[Finding]:
    """Check for presets on disk, which nbclient, papermill and VS Code read."""
    names = sorted(name for name in KernelSpecManager().find_kernel_specs() if ".gpu-" in name)
    if names:
        return [Finding("kernelspecs", OK, f"on disk: {', '.join(names)}")]
    found = "no sizes on disk: JupyterLab offers them, nbclient, papermill and VS Code do not see them"
    return [Finding("kernelspecs", WARN, found, "aliquot sizes --install --user")]


def check_server() -> list[Finding]:
    """Check that a plain `jupyter lab` or `jupyter server` loads the extension and its classes."""
    application = JupyterApp(config_file_name="jupyter_server_config")
    application.load_config_file()
    manager = ExtensionConfigManager(read_config_path=application.config_file_paths)
    extensions: dict[str, bool] = manager.get_jpserver_extensions()  # type: ignore[no-untyped-call]  # jupyter_server's
    remedy = f"jupyter server extension enable --user {EXTENSION}; aliquot lab and aliquot serve work without"
    if not extensions.get(EXTENSION):
        found = f"{EXTENSION} is not enabled for plain Jupyter servers: they keep their own kernel manager"
        return [Finding("server extension", WARN, found, remedy)]
    enabled = Finding("server extension", OK, f"{EXTENSION} is enabled for every Jupyter server")
    return [enabled, *_check_classes(dict(application.config.get("ServerApp", {})))]


def _check_classes(configured: dict[str, Any]) -> list[Finding]:
    """Check that no configuration replaces the classes of Aliquot."""
    others = {trait: _class_name(value) for trait, value in configured.items() if trait in _REPLACED}
    foreign = {trait: name for trait, name in others.items() if name != _class_name(_REPLACED[trait])}
    if not foreign:
        manager = _class_name(_REPLACED["kernel_manager_class"])
        return [Finding("server classes", OK, f"the kernel manager is {manager}; the other classes are ours, too")]
    found = ", ".join(f"{trait}: {name}" for trait, name in foreign.items())
    remedy = "remove " + ", ".join(f"c.ServerApp.{trait}" for trait in foreign) + " from Jupyter's configuration"
    return [Finding("server classes", WARN, f"the configuration names others than ours: {found}", remedy)]


def _class_name(configured: Any) -> str:
    if configured is None or isinstance(configured, str):
        return configured or ""
    return f"{configured.__module__}.{configured.__qualname__}"


def check_lab_extension() -> list[Finding]:
    """Check that JupyterLab has the panel and the kernel picker."""
    folders = [Path(folder) / LAB_EXTENSION for folder in jupyter_path("labextensions")]
    found = next((folder for folder in folders if (folder / "package.json").is_file()), None)
    if found is None:
        return [Finding("lab extension", WARN, f"{LAB_EXTENSION} is not installed: no sidebar, no picker", _INSTALL)]
    disabled_by = [str(path) for path in _page_configs() if _disables(path)]
    if disabled_by:
        remedy = f"jupyter labextension enable {LAB_EXTENSION}"
        return [Finding("lab extension", WARN, f"{LAB_EXTENSION} is disabled by {', '.join(disabled_by)}", remedy)]
    version = json.loads((found / "package.json").read_text(encoding="utf-8")).get("version", "of unknown version")
    return [Finding("lab extension", OK, f"{LAB_EXTENSION} {version} in {found}")]


def _page_configs() -> list[Path]:
    return [Path(folder) / "labconfig" / "page_config.json" for folder in jupyter_config_path()]


def _disables(path: Path) -> bool:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        return bool(settings.get("disabledExtensions", {}).get(LAB_EXTENSION))
    except (OSError, ValueError, AttributeError):
        return False
