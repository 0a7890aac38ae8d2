"""The command `aliquot share`: show a running kernel to other users, or let them run code in it."""

from __future__ import annotations

from typing import Any

from traitlets import Bool, Unicode

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.terminal.tables import printable

from .base import WHICH_GATEWAY
from .kernel_command import KernelCommand


class ShareCommand(KernelCommand):
    """Send the share to the gateway: the node agent knows no users."""

    name = "aliquot share"
    usage = "aliquot share KERNEL [--user NAME | --team NAME] [--write | --stop]"
    description = (
        """Share a running kernel with a user or a team, or stop that. Without a name, list its collaborators.

    KERNEL is its id, the first letters of it, or its notebook's name. Collaborators see it and its output; with
    --write they run code in it, too. Only its owner can end it and change its size.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot share train.ipynb --user bob
    aliquot share train.ipynb --team vision --write
    aliquot share train.ipynb --user bob --stop
    aliquot share train.ipynb
    """
    flags = {
        **KernelCommand.flags,
        "write": ({"ShareCommand": {"write": True}}, "Allow to run code, interrupt and restart."),
        "stop": ({"ShareCommand": {"stop": True}}, "Stop sharing with this user or team."),
    }
    aliases = {**KernelCommand.aliases, "user": "ShareCommand.user", "team": "ShareCommand.team"}
    user = Unicode("", help="A user of the gateway, by name.").tag(config=True)
    team = Unicode("", help="A team, by name.").tag(config=True)
    write = Bool(False, help="Allow to run code, interrupt and restart.").tag(config=True)
    stop = Bool(False, help="Stop sharing with this user or team.").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        word = self.words(1, 1)[0]
        if (self.user and self.team) or (self.write and self.stop):
            raise UsageError(
                f"Name a user or a team, not both, and use --write or --stop, not both. Usage: {self.usage}"
            )
        if (self.write or self.stop) and not (self.user or self.team):
            raise UsageError(f"Name a collaborator with --user NAME or --team NAME. Usage: {self.usage}")
        kernel = self.kernel(word, takes_ids=True)
        kind, name = ("teams", self.team) if self.team else ("users", self.user)
        access = None if self.stop else "write" if self.write else "read"
        report = kernel.share(kind, name, access) if name else kernel.shares()
        self.tell(report, _text(printable(word), report["shares"]))


def _text(kernel: str, shares: list[dict[str, Any]]) -> str:
    with_whom = ", ".join(f"{share['kind']} {printable(share['name'])} ({share['access']})" for share in shares)
    return f"{kernel} is shared with {with_whom or 'no other user'}"
