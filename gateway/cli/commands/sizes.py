"""The command `aliquot sizes`: list the sizes on offer, and write them as kernelspecs to the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from jupyter_core.application import JupyterApp
from traitlets import Bool, Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gateway.containers.images import ImageCatalogue
from jupyter_aliquot.gateway.kernelspecs.installed import install_named, install_sizes, sys_prefix_folder, user_folder
from jupyter_aliquot.gateway.kernelspecs.manager import OfferedSize, SizedKernelSpecManager
from jupyter_aliquot.gateway.sizes.grammar import parse_size_name
from jupyter_aliquot.gateway.terminal.tables import console, plain_table
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query, read_status
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus, UnreadableReportError
from jupyter_aliquot.provisioner.errors import SizeNameError
from jupyter_aliquot.provisioner.resources import Bytes, Request

from .base import JSON_FLAG, Command

_ANSWER_SECONDS = 3.0


class SizesCommand(Command):
    """List the sizes that the server offers: the command reads the server's configuration."""

    name = "aliquot sizes"
    description = """List the sizes that kernels can have, as kernelspec names.

    Any valid size works by its name through JupyterLab and the gateway. nbclient, papermill and VS Code read
    kernelspecs from the disk: for them, --install writes the listed sizes there, or the named ones: 0.5-8g on
    every kernelspec that has sizes, python3.gpu-0.5-8g on one."""
    usage = "aliquot sizes [--install [NAME ...]] [options]"
    accepts_arguments = True
    examples = """
    aliquot sizes
    aliquot sizes --install --user
    aliquot sizes --install 0.5-8g
    """
    flags = {
        **Command.flags,
        **JSON_FLAG,
        "install": ({"SizesCommand": {"install": True}}, "Write the listed, or the named, sizes as kernelspecs."),
        "user": ({"SizesCommand": {"to_user": True}}, "With --install: for this user (the default)."),
        "sys-prefix": ({"SizesCommand": {"to_sys_prefix": True}}, "With --install: for this Python environment."),
    }
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = (("json", "install"), ("user", "sys-prefix", "prefix"))
    aliases = {"prefix": "SizesCommand.prefix"}
    classes = [Aliquot, ImageCatalogue]

    install = Bool(False, help="Write the listed sizes as kernelspecs.").tag(config=True)
    to_user = Bool(False, help="Write them for this user.").tag(config=True)
    to_sys_prefix = Bool(False, help="Write them for this Python environment.").tag(config=True)
    prefix = Unicode("", help="With --install: below this folder, in share/jupyter/kernels.").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        if not self.install and (self.to_user or self.to_sys_prefix or self.prefix):
            raise UsageError("--user, --sys-prefix and --prefix are for --install. Add --install")
        if self.extra_args and not self.install:
            raise UsageError(f"{self.extra_args[0]!r} was not expected: names are for --install. Add --install")
        manager = offered_by_server(self)
        sizes = manager.offered_sizes()
        if not sizes:
            raise CommandError("No installed kernelspec has sizes. See jupyter kernelspec list")
        if self.install:
            folder, names = self._folder(), self._names(sizes)
            done = install_named(manager, folder, names) if names else install_sizes(manager, folder)
            for path in done.written:
                print(f"wrote {path}")
            for path in done.removed:
                print(f"removed {path}: no longer offered")
        elif self.json_output:
            print(json.dumps([size.report() for size in sizes], indent=2, ensure_ascii=False))
        else:
            self._print(manager, sizes)

    def _folder(self) -> Path:
        if self.prefix:
            return Path(self.prefix).absolute() / "share" / "jupyter" / "kernels"
        return sys_prefix_folder() if self.to_sys_prefix else user_folder()

    def _names(self, sizes: list[OfferedSize]) -> list[str]:
        """Return the named kernelspecs.

        A size by itself stands for that size of each kernelspec that has sizes. Raises UsageError.
        """
        bases = list(dict.fromkeys(size.base for size in sizes if size.image is None))
        names = [
            name
            for word in self.extra_args
            for name in ([word] if ".gpu-" in word.lower() else [f"{base}.gpu-{word}" for base in bases])
        ]
        try:
            for name in names:
                parse_size_name(name)
        except SizeNameError as error:
            raise UsageError(str(error)) from None
        return names

    def _print(self, manager: SizedKernelSpecManager, sizes: list[OfferedSize]) -> None:
        has_images = any(size.image for size in sizes)
        names = ("kernelspec", "shown as", "memory", "priority", *["image"][:has_images])
        table = plain_table(*names, drop_first=("image", "priority", "shown as")[not has_images :])
        devices = _devices()
        manager.count_devices = lambda: len(devices)
        device_bytes = min((device.memory_bytes for device in devices), default=None)
        for size in sizes:
            table.add_row(
                size.name,
                size.display_name,
                _memory_text(size.request, device_bytes),
                size.request.workload_class.priority,
                *([size.image.container.image if size.image else ""] if has_images else []),
            )
        console().print(table)
        console().print(f"\n{manager.grammar()}.", soft_wrap=True)


def _devices() -> list[DeviceStatus]:
    """Return this machine's devices; none where no node agent answers."""
    try:
        devices = read_status(query("status", seconds=_ANSWER_SECONDS)).devices
    except (AgentClientError, UnreadableReportError):
        return []
    return [device for device in devices if not device.lost]


def _memory_text(request: Request, device_bytes: int | None) -> str:
    if request.memory_limit is not None:
        return str(Bytes(request.memory_limit))
    if device_bytes is None:
        return f"{request.gpus} of a device's"
    return str(Bytes(device_bytes * request.gpus.hundredths // 100))


def offered_by_server(command: Command) -> SizedKernelSpecManager:
    """Return a manager with the configuration of the Jupyter server, then of the command line."""
    files = JupyterApp(config_file_name="jupyter_server_config")
    files.load_config_file()
    config = files.config
    config.merge(command.config)
    return SizedKernelSpecManager(config=config)
