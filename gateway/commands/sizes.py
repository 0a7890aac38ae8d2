"""`aliquot sizes`: lists the sizes that are offered; writes the presets to disk for clients that read only the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aliquot.gateway.catalogue import ImageCatalogue
from aliquot.gateway.commands.command import JSON_FLAG, Command, CommandError
from aliquot.gateway.config import Aliquot
from aliquot.gateway.kernelspec_files import install_sizes, sys_prefix_folder, user_folder
from aliquot.gateway.sizes import OfferedSize, SizedKernelSpecManager, grammar_help
from aliquot.gateway.tables import console
from aliquot.provisioner.resources import Bytes
from jupyter_core.application import JupyterApp
from rich.table import Table
from traitlets import Bool, Unicode


class SizesCommand(Command):
    """Reads the server's configuration, so that it says what the server offers."""

    name = "aliquot sizes"
    description = """The sizes that kernels can have, as kernelspec names.

    Any valid size works by its name through JupyterLab and the gateway. nbclient, papermill and VS Code read
    kernelspecs from the disk: for them, --install writes the listed ones there."""
    examples = """
    aliquot sizes
    aliquot sizes --install --user
    """
    flags = {
        **Command.flags,
        **JSON_FLAG,
        "install": ({"SizesCommand": {"install": True}}, "Write the listed sizes as kernelspecs."),
        "user": ({"SizesCommand": {"to_user": True}}, "With --install: for this user (the default)."),
        "sys-prefix": ({"SizesCommand": {"to_sys_prefix": True}}, "With --install: for this Python environment."),
    }
    aliases = {"prefix": "SizesCommand.prefix"}
    classes = [Aliquot, ImageCatalogue]

    install = Bool(False, help="Write the listed sizes as kernelspecs.").tag(config=True)
    to_user = Bool(False, help="Write them for this user.").tag(config=True)
    to_sys_prefix = Bool(False, help="Write them for this Python environment.").tag(config=True)
    prefix = Unicode("", help="With --install: below this folder, in share/jupyter/kernels.").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        if not self.install and (self.to_user or self.to_sys_prefix or self.prefix):
            raise CommandError("--user, --sys-prefix and --prefix say where to install: add --install")
        manager = offered_by_server(self)
        sizes = manager.offered_sizes()
        if not sizes:
            raise CommandError("no kernelspec to offer sizes of: 'jupyter kernelspec list' shows what is installed")
        if self.install:
            done = install_sizes(manager, self._folder())
            for path in done.written:
                print(f"wrote {path}")
            for path in done.removed:
                print(f"removed {path}: no longer offered")
        elif self.json_output:
            print(json.dumps([_as_json(size) for size in sizes], indent=2, ensure_ascii=False))
        else:
            self._print(manager, sizes)

    def _folder(self) -> Path:
        if sum((self.to_user, self.to_sys_prefix, bool(self.prefix))) > 1:
            raise CommandError("asked more than one place; choose one of --user, --sys-prefix and --prefix")
        if self.prefix:
            return Path(self.prefix).absolute() / "share" / "jupyter" / "kernels"
        return sys_prefix_folder() if self.to_sys_prefix else user_folder()

    def _print(self, manager: SizedKernelSpecManager, sizes: list[OfferedSize]) -> None:
        columns = ["kernelspec", "shown as", "memory limit", "class"]
        has_images = any(size.image for size in sizes)
        table = Table(*columns, *["image"][:has_images], box=None, pad_edge=False, header_style="bold")
        for size in sizes:
            limit = size.request.memory_limit
            table.add_row(
                size.name,
                size.display_name,
                "its share of the device's" if limit is None else str(Bytes(limit)),
                size.request.workload_class.value,
                *([size.image.container.image if size.image else ""] if has_images else []),
            )
        console().print(table)
        console().print(f"\n{grammar_help(manager.settings.largest())}.", soft_wrap=True)


def offered_by_server(command: Command) -> SizedKernelSpecManager:
    """A manager configured as the server's is: by the Jupyter server's configuration files, then our options."""
    files = JupyterApp(config_file_name="jupyter_server_config")
    files.load_config_file()
    config = files.config
    config.merge(command.config)
    return SizedKernelSpecManager(config=config)


def _as_json(size: OfferedSize) -> dict[str, Any]:
    return {
        "name": size.name,
        "base": size.base,
        "display_name": size.display_name,
        "gpus": float(size.request.gpus),
        "memory_limit": size.request.memory_limit,
        "workload_class": size.request.workload_class.value,
        "image": size.image.container.image if size.image else None,
        "description": size.image.description if size.image else "",
        "is_default": size.is_default,
    }
