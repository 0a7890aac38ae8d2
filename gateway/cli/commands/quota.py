"""The commands `aliquot quota` and `aliquot queue`: teams' quotas, and the requests that wait."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from rich.console import RenderableType
from traitlets import Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.terminal.quota_table import queue_table, quota_table
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere
from jupyter_aliquot.gateway.terminal.tables import console

from .base import JSON_FLAG, WHICH_GATEWAY, Command

_RELOAD = "reload"


class _ReportCommand(Command):
    """A command that prints one report of the gateway."""

    flags = {**Command.flags, **JSON_FLAG}
    aliases = {"runtime-dir": "_ReportCommand.runtime_dir"}
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def ask(self, path: str, method: str = "GET") -> dict[str, Any]:
        """Return the gateway's answer. Raises CommandError."""
        try:
            text = Gateways.of(self.runtime_dir).text(path, method)
        except (NoGatewayHere, GatewayRefusal) as error:
            raise CommandError(str(error)) from None
        found: dict[str, Any] = json.loads(text)
        return found

    def tell(self, report: dict[str, Any], table: RenderableType) -> None:
        if self.json_output:
            print(json.dumps(report, indent=2, ensure_ascii=False))
        else:
            console().print(table)


class QuotaCommand(_ReportCommand):
    """Print the teams, or have the quota file read again."""

    name = "aliquot quota"
    usage = "aliquot quota [reload] [options]"
    accepts_arguments = True
    description = (
        """Show the teams' quotas: what each is owed, holds, borrows, and could take now. A team above others borrows
    what all of them together hold beyond their quotas: less than the sum of its rows where they lend each other.

    `aliquot quota reload` has the gateway read the quota file again now, and prints what is wrong in it. The
    gateway does so by itself within seconds of a change (see docs/how-to/teams-and-quotas.md).
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot quota
    aliquot quota reload
    """

    def start(self) -> None:
        """Called by Application.start."""
        if self.extra_args not in ([], [_RELOAD]):
            (word, *_) = self.extra_args[1:] if self.extra_args[0] == _RELOAD else self.extra_args
            raise UsageError(f"{word!r} was not expected. Usage: {self.usage}")
        report = self.ask("quota/reload", "POST") if self.extra_args else self.ask("quota")
        self.tell(report, quota_table(report))


class QueueCommand(_ReportCommand):
    """Print the requests that wait."""

    name = "aliquot queue"
    usage = "aliquot queue [options]"
    description = (
        """Show the requests that wait for a GPU, in the order in which they are served: their position, reason and
    team, and when they start if that is known. Users see their own.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot queue
    aliquot queue --json
    """

    def start(self) -> None:
        """Called by Application.start."""
        report = self.ask("queue")
        self.tell(report, queue_table(report, datetime.now(timezone.utc)))
