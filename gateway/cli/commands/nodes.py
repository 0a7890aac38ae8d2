"""The commands `aliquot node`, `cordon`, `uncordon` and `drain`: look at a node, let nothing start on it, empty it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from traitlets import Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.terminal.node_table import node_table
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere
from jupyter_aliquot.gateway.terminal.tables import console

from .base import JSON_FLAG, WHICH_GATEWAY, Command


class NodeCommand(Command):
    """The part that the commands share: they take a node's name, and print its kernels.

    Without a verb they only look.
    """

    flags = {**Command.flags, **JSON_FLAG}
    accepts_arguments = True
    verb = ""
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)
    reason = Unicode("", help="Why, for those who wait and for the audit.").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        if len(self.extra_args) != 1:
            raise UsageError(f"{len(self.extra_args)} nodes were named, and one is needed. Usage: {self.usage}")
        path = f"nodes/{quote(self.extra_args[0], safe='')}" + (f"/{self.verb}" if self.verb else "")
        method, body = "POST" if self.verb else "GET", {"reason": self.reason} if self.reason else None
        try:
            text = Gateways.of(self.runtime_dir).text(path, method, body)
        except (NoGatewayHere, GatewayRefusal) as error:
            raise CommandError(str(error)) from None
        report: dict[str, Any] = json.loads(text)
        if self.json_output:
            print(json.dumps(report, indent=2, ensure_ascii=False))
        else:
            console().print(node_table(report))


_RUNTIME = {"runtime-dir": "NodeCommand.runtime_dir"}
_REASON = {"reason": "NodeCommand.reason"}


class ShowNodeCommand(NodeCommand):
    """Show whether kernels start on a node, and its kernels."""

    name = "aliquot node"
    usage = "aliquot node NODE [options]"
    aliases = _RUNTIME
    description = (
        """Show whether kernels start on a node, since when not, and which kernels are there: first those that a drain
    leaves, and why. It changes nothing. For administrators.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot node gpu-1
    """


class CordonCommand(NodeCommand):
    """Let nothing new start on a node."""

    name = "aliquot cordon"
    usage = "aliquot cordon NODE [options]"
    verb = "cordon"
    aliases = {**_RUNTIME, **_REASON}
    description = (
        """Let nothing new start on a node, or on one GPU that its UUID names. Kernels that run there go on; requests
    wait, and their users read why. The cordon outlives the gateway. It ends a drain: kernels that were swapped out
    return. For administrators.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot cordon gpu-1 --reason "new driver on Friday"
    aliquot cordon GPU-1b2c3d4e-0000-0000-0000-000000000000 --reason "ECC errors"
    """


class UncordonCommand(NodeCommand):
    """Let kernels start on a node again."""

    name = "aliquot uncordon"
    usage = "aliquot uncordon NODE [options]"
    verb = "uncordon"
    aliases = _RUNTIME
    description = (
        """Let kernels start on a node again. Those that a drain swapped out get their GPU again as it is free.
    For administrators.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot uncordon gpu-1
    """


class DrainCommand(NodeCommand):
    """Cordon a node, and swap its kernels out."""

    name = "aliquot drain"
    usage = "aliquot drain NODE [options]"
    verb = "drain"
    aliases = {**_RUNTIME, **_REASON}
    description = (
        """Cordon a node, and swap the memory of its kernels out to the host. No kernel ends: processes and variables
    stay, and cells that use the GPU wait. The table has the kernels that stay, and why; `aliquot node` shows
    later what has left since. For administrators.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot drain gpu-1 --reason "new driver on Friday"
    """
