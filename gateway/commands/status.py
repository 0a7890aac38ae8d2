"""`aliquot status`: asks the node agent who holds what. Needs no gateway, no token and no browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aliquot.gateway.commands.command import JSON_FLAG, Command, CommandError
from aliquot.gateway.tables import console, status_view
from aliquot.gateway.waiting import ask_gateway, queue_rows
from aliquot.gpu_hook.client import AgentClientError, query, read_status
from aliquot.gpu_hook.paths import RuntimeDir, find_runtime_dir
from traitlets import Unicode


class StatusCommand(Command):
    """Prints a table, or JSON for programs."""

    name = "aliquot status"
    description = """The devices of this machine, the kernels that hold a part of them, and the kernels that wait.

    It asks the node agent, and the gateway for those that wait; it works without a gateway."""
    examples = """
    aliquot status
    aliquot status --json
    """
    flags = {**Command.flags, **JSON_FLAG}
    aliases = {"runtime-dir": "StatusCommand.runtime_dir"}

    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        try:
            answer = query("status", runtime_dir=self.runtime_dir or None)
            status = read_status(answer)
        except AgentClientError as error:
            raise CommandError(str(error)) from None
        runtime = RuntimeDir(Path(self.runtime_dir).absolute()) if self.runtime_dir else find_runtime_dir()
        waiting = ask_gateway(runtime)
        if self.json_output:
            print(json.dumps({**_payload(answer), "queue": waiting}, indent=2, ensure_ascii=False))
        else:
            console().print(status_view(status, None if waiting is None else queue_rows(waiting)))


def _payload(answer: dict[str, Any]) -> dict[str, Any]:
    """The agent's answer without the envelope."""
    return {name: value for name, value in answer.items() if name not in {"id", "ok"}}
