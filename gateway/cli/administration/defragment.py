"""The command `aliquot defragment`: a plan of moves between GPUs, shown before it runs."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import urlencode

from traitlets import Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.cli.commands.base import JSON_FLAG, WHICH_GATEWAY, Command
from jupyter_aliquot.gateway.sizes.grammar import parse_size
from jupyter_aliquot.gateway.terminal.moves_table import moves_table, run_table
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere
from jupyter_aliquot.gateway.terminal.tables import console
from jupyter_aliquot.provisioner.errors import SizeNameError

_LOOK_SECONDS = 0.5


class DefragmentCommand(Command):
    """Show a plan, or run the one that was shown."""

    name = "aliquot defragment"
    usage = "aliquot defragment [options]"
    description = (
        """Show the fewest moves of idle kernels between the GPUs of a node after which a size fits: --size, or else
    that of the first request that waits, or else moves after which larger sizes fit. It changes nothing. The last
    line names the plan: --apply with that name runs it, and refuses if the cluster has changed since. A kernel keeps
    its memory and its processes. For administrators; see docs/how-to/defragment.md.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot defragment --size 1
    aliquot defragment --size 1 --apply 3f9c1b52a077
    """
    flags = {**Command.flags, **JSON_FLAG}
    aliases = {
        "runtime-dir": "DefragmentCommand.runtime_dir",
        "size": "DefragmentCommand.size",
        "node": "DefragmentCommand.node",
        "apply": "DefragmentCommand.apply",
    }
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)
    size = Unicode("", help="The size that is to fit, such as 1 or 0.5-8g.").tag(config=True)
    node = Unicode("", help="Only on this node (default: any).").tag(config=True)
    apply = Unicode("", help="Run the plan of this name, with the same --size and --node.").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        try:
            if self.size:
                parse_size(self.size.lower().removeprefix("gpu-"))
        except SizeNameError as error:
            raise UsageError(f"--size: {error}") from None
        gateways = Gateways.of(self.runtime_dir)
        if not self.apply:
            report = self._ask(gateways)
            self._tell(report, moves_table(report, self._options()))
            return
        report = self._ask(gateways, {"digest": self.apply, **self._asked()})
        began = _began(report)
        while report["run"]["state"] == "running":
            time.sleep(_LOOK_SECONDS)
            report = self._ask(gateways)
            if _began(report) != began:
                raise CommandError(
                    "The gateway does not know this run any more: it restarted, or runs another plan. A move that had "
                    "begun goes on; `aliquot status` shows where the kernels are"
                )
        self._tell(report["run"], run_table(report["run"]))
        if any(move["outcome"] != "done" for move in report["run"]["moves"]):
            raise CommandError("The plan did not run to its end; the table has the reason")

    def _asked(self) -> dict[str, str]:
        return {name: text for name, text in (("size", self.size), ("node", self.node)) if text}

    def _options(self) -> str:
        return "".join(f" --{name} {text}" for name, text in self._asked().items())

    def _ask(self, gateways: Gateways, body: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the gateway's report; with a *body*, after it was sent. Raises CommandError."""
        path = "moves" if body else f"moves?{urlencode(self._asked())}"
        try:
            report: dict[str, Any] = json.loads(gateways.text(path, "POST" if body else "GET", body))
        except (NoGatewayHere, GatewayRefusal) as error:
            raise CommandError(str(error)) from None
        return report

    def _tell(self, report: dict[str, Any], table: Any) -> None:
        if self.json_output:
            print(json.dumps(report, indent=2, ensure_ascii=False))
        else:
            console().print(table)


def _began(report: dict[str, Any]) -> tuple[str, str] | None:
    """Return who began the run of a report, and when; None for none."""
    run = report["run"]
    return None if run is None else (run["by"], run["since"])
