"""The command `aliquot holders`: users and the most idle kernels, with what they hold and use."""

from __future__ import annotations

import json
from typing import Any

from traitlets import Unicode

from jupyter_aliquot.gateway.base.errors import CommandError
from jupyter_aliquot.gateway.cli.commands.base import JSON_FLAG, WHICH_GATEWAY, Command
from jupyter_aliquot.gateway.terminal.holders_table import holders_tables
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere
from jupyter_aliquot.gateway.terminal.tables import console


class HoldersCommand(Command):
    """Print one report of the gateway."""

    name = "aliquot holders"
    usage = "aliquot holders [options]"
    description = (
        """Show the users that hold GPUs, what they use of them, and the ten kernels that hold most without use.
    For administrators. CPUs and memory of the host stand beside the GPU; CPUs are known from the second look on.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot holders
    aliquot holders --json
    """
    flags = {**Command.flags, **JSON_FLAG}
    aliases = {"runtime-dir": "HoldersCommand.runtime_dir"}
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        try:
            text = Gateways.of(self.runtime_dir).text("holders")
        except (NoGatewayHere, GatewayRefusal) as error:
            raise CommandError(str(error)) from None
        report: dict[str, Any] = json.loads(text)
        if self.json_output:
            print(json.dumps(report, indent=2, ensure_ascii=False))
        else:
            console().print(holders_tables(report))
