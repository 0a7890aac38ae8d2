"""`aliquot status`: asks the node agent who holds what. Needs no gateway, no token and no browser."""

from __future__ import annotations

import json
from typing import Any

from rich.text import Text
from traitlets import Bool, Float, Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.terminal.kernel_rows import (
    doubt_lines,
    doubtful_kernels,
    ended_kernels,
    ended_rows,
    queue_rows,
    waiting_kernels,
)
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere
from jupyter_aliquot.gateway.terminal.tables import console, ended_table, status_view
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query, read_status
from jupyter_aliquot.gpu_hook.client.reports import UnreadableReportError

from .base import JSON_FLAG, Command
from .top import show_live

_ANSWER_SECONDS = 3.0


class StatusCommand(Command):
    """Prints a table, or JSON for programs."""

    name = "aliquot status"
    description = """The devices of this machine, the kernels that hold a part of them and where their memory is, the
    kernels that wait, and the last that ended.

    It asks the node agent, and the gateway for those that wait or ended; it works without a gateway. A narrow terminal
    shows the most useful columns. --watch shows who uses the GPUs' time, live, as aliquot top does."""
    examples = """
    aliquot status
    aliquot status --json
    aliquot status --watch
    """
    flags = {
        **Command.flags,
        **JSON_FLAG,
        "watch": ({"StatusCommand": {"watch": True}}, "Show it live; q or Ctrl-C ends it."),
    }
    aliases = {"runtime-dir": "StatusCommand.runtime_dir", "interval": "StatusCommand.interval"}

    watch = Bool(False, help="Show it live; q or Ctrl-C ends it.").tag(config=True)
    interval = Float(2.0, help="With --watch: seconds between two looks.").tag(config=True)
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        if self.watch and self.json_output:
            raise UsageError("--watch is for people and --json for programs: choose one")
        if self.watch:
            show_live(Gateways.of(self.runtime_dir), self.interval)
            return
        gateways = Gateways.of(self.runtime_dir)
        try:
            answer = query("status", runtime_dir=self.runtime_dir or None)
            status = read_status(answer)
        except (AgentClientError, UnreadableReportError) as error:
            elsewhere = gateways.elsewhere and f". The GPUs of {gateways.elsewhere[-1].url} are shown by aliquot top"
            raise CommandError(f"{error}{elsewhere or ''}") from None
        kernels = known_to_gateway(gateways)
        waiting = None if kernels is None else waiting_kernels(kernels)
        ended, doubtful = ended_kernels(kernels or ()), doubtful_kernels(kernels or ())
        if self.json_output:
            told = {"queue": waiting, "doubtful": doubtful, "ended": ended}
            print(json.dumps({**_payload(answer), **told}, indent=2, ensure_ascii=False))
            return
        screen = console()
        screen.print(status_view(status, None if waiting is None else queue_rows(waiting)))
        for line in doubt_lines(doubtful):
            screen.print(Text(line, style="red"))
        if ended:
            screen.print(ended_table(ended_rows(ended)))


def known_to_gateway(gateways: Gateways) -> list[dict[str, Any]] | None:
    """The kernels that the gateway tells of; None where none can be asked."""
    try:
        kernels: list[dict[str, Any]] = gateways.ask("kernels", _ANSWER_SECONDS)[1]["kernels"]
    except (NoGatewayHere, GatewayRefusal, KeyError, TypeError):
        return None
    return kernels


def _payload(answer: dict[str, Any]) -> dict[str, Any]:
    """The agent's answer without the envelope."""
    return {name: value for name, value in answer.items() if name not in {"id", "ok"}}
