"""The command `aliquot history`: the use of GPUs over the last hour, day or week, from the gateway."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from traitlets import Bool, Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.history.buckets import RANGES
from jupyter_aliquot.gateway.terminal.history_table import history_table
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere
from jupyter_aliquot.gateway.terminal.tables import console

from .base import JSON_FLAG, WHICH_GATEWAY, Command


class HistoryCommand(Command):
    """Print a table, CSV for other programs, or the gateway's JSON."""

    name = "aliquot history"
    description = (
        """Show the use of devices, and of kernels that run or ended, over the last hour, day or week.

    The gateway records it (see docs/how-to/usage-history.md).
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot history
    aliquot history --range week --csv > week.csv
    """
    flags = {
        **Command.flags,
        **JSON_FLAG,
        "csv": ({"HistoryCommand": {"csv_output": True}}, "Print every step as CSV."),
    }
    aliases = {"range": "HistoryCommand.asked_range", "runtime-dir": "HistoryCommand.runtime_dir"}
    asked_range = Unicode("hour", help="hour, day or week.").tag(config=True)
    csv_output = Bool(False, help="Print every step as CSV.").tag(config=True)
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        if self.asked_range not in RANGES:
            raise UsageError(
                f"Requested --range {self.asked_range!r}, which is no range. Use one of {', '.join(RANGES)}"
            )
        query = urlencode({"range": self.asked_range, "format": "csv" if self.csv_output else "json"})
        try:
            text = Gateways.of(self.runtime_dir).text(f"history?{query}")
        except (NoGatewayHere, GatewayRefusal) as error:
            raise CommandError(str(error)) from None
        if self.csv_output:
            print(text, end="")
            return
        report: dict[str, Any] = json.loads(text)
        if self.json_output:
            print(json.dumps(report, indent=2, ensure_ascii=False))
            return
        console().print(history_table(report))
