"""The commands `aliquot history` and `aliquot usage`: the use of GPUs over a week, and the GPU-hours of a month."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import urlencode

from rich.console import RenderableType
from traitlets import Bool, Unicode

from jupyter_aliquot.gateway.accounting.days import Calendar, find_zone
from jupyter_aliquot.gateway.accounting.query import GROUPS
from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.history.buckets import RANGES
from jupyter_aliquot.gateway.terminal.history_table import history_table
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere
from jupyter_aliquot.gateway.terminal.tables import console, printable
from jupyter_aliquot.gateway.terminal.usage_table import usage_table
from jupyter_aliquot.provisioner.errors import RequestError

from .base import JSON_FLAG, WHICH_GATEWAY, Command, nearest

# The gateway's own time zone decides where a day begins; which texts are days is the same in all.
_CALENDAR = Calendar(find_zone("UTC"), "UTC")


_MOST_NAMES = 5


def _ask(gateways: Gateways, path: str) -> str:
    """Return the gateway's answer at a path. Raises CommandError."""
    try:
        return gateways.text(path)
    except (NoGatewayHere, GatewayRefusal) as error:
        raise CommandError(str(error)) from None


def _show(command: HistoryCommand | UsageCommand, text: str, table: Callable[[Any], RenderableType]) -> None:
    """Print the gateway's answer as CSV, JSON or a table, as the user asked."""
    if command.csv_output:
        print(text, end="")
        return
    report: dict[str, Any] = json.loads(text)
    if command.json_output:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    console().print(table(report))


def _hint(gateways: Gateways, word: str, name: str) -> str:
    """Return what `_unknown_name` does; empty where the gateway does not tell: the answer to the user is complete."""
    try:
        return _unknown_name(gateways, word, name)
    except (CommandError, AttributeError, KeyError, TypeError, ValueError):
        return ""


def _unknown_name(gateways: Gateways, word: str, name: str) -> str:
    """Return that the accounting has no such user or team, with some that it has; empty where it has. May raise.

    Users see their own GPU time alone: to them it tells nothing of what others used.
    """
    present: dict[str, Any] = json.loads(_ask(gateways, f"usage?{urlencode({'by': word})}"))
    since, until = present["kept_since"], present["end"][:10]
    if since is None:
        return f"the accounting has no {word} {name!r}: it has counted no GPU time yet"
    all_days: dict[str, Any] = json.loads(
        _ask(gateways, f"usage?{urlencode({'by': word, 'from': since, 'to': until})}")
    )
    known = [str(row[word]) for row in all_days["rows"] if row[word]]
    if name in known:
        return ""
    is_admin = json.loads(_ask(gateways, "status"))["user"]["role"] == "admin"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    some = ", ".join(map(printable, known[:_MOST_NAMES])) or "none"
    if not is_admin:
        yours = f"; it has yours for: {some}{more}" if known else ""
        return (
            f"the accounting has no GPU time of yours for the {word} {name!r} since {since}"
            f"{nearest(name, known)}{yours}"
        )
    return f"the accounting has no {word} {name!r} since {since}{nearest(name, known)}; it has: {some}{more}"


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
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = (("csv", "json"),)
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
        _show(self, _ask(Gateways.of(self.runtime_dir), f"history?{query}"), history_table)


class UsageCommand(Command):
    """Print a table, CSV for other programs, or the gateway's JSON."""

    name = "aliquot usage"
    description = (
        """Show the GPU-hours of a month, or of other days: working, idle, swapped out, waiting, and what is charged.

    Users see their own, administrators all. Budgets follow, with what is left of them now
    (see docs/how-to/usage-and-budgets.md).
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot usage --month 2026-11 --by team
    aliquot usage --by team,day --csv > usage.csv
    aliquot usage --from 2026-11-01 --to 2026-11-08
    """
    flags = {
        **Command.flags,
        **JSON_FLAG,
        "csv": ({"UsageCommand": {"csv_output": True}}, "Print the rows as CSV."),
    }
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = (("csv", "json"), ("month", "from"), ("month", "to"))
    aliases = {
        "month": "UsageCommand.month",
        "from": "UsageCommand.begin",
        "to": "UsageCommand.end",
        "by": "UsageCommand.by",
        "user": "UsageCommand.user",
        "team": "UsageCommand.team",
        "runtime-dir": "UsageCommand.runtime_dir",
    }
    month = Unicode("", help="A month such as 2026-11 (default: the present one).").tag(config=True)
    begin = Unicode("", help="The first day, such as 2026-11-01, in the place of a month.").tag(config=True)
    end = Unicode("", help="The day after the last one.").tag(config=True)
    by = Unicode("user", help="user, team, size, priority, model or day; several with commas.").tag(config=True)
    user = Unicode("", help="Only this user.").tag(config=True)
    team = Unicode("", help="Only this team.").tag(config=True)
    csv_output = Bool(False, help="Print the rows as CSV.").tag(config=True)
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        self._check()
        chosen = {"month": self.month, "from": self.begin, "to": self.end, "user": self.user, "team": self.team}
        query = {name: value for name, value in chosen.items() if value}
        query |= {"by": self.by, "format": "csv" if self.csv_output else "json"}
        gateways = Gateways.of(self.runtime_dir)
        text = _ask(gateways, f"usage?{urlencode(query)}")
        _show(self, text, usage_table)
        is_empty = len(text.splitlines()) < 2 if self.csv_output else not json.loads(text)["rows"]
        for word, name in (("user", self.user), ("team", self.team)):
            # On standard error: a program that reads the rows of each of its users gets none of this one.
            if name and is_empty and (problem := _hint(gateways, word, name)):
                print(f"aliquot: {problem}", file=sys.stderr)

    def _check(self) -> None:
        """Refuse days and names that no gateway knows. Raises UsageError."""
        if unknown := [name for name in map(str.strip, self.by.split(",")) if name not in GROUPS]:
            raise UsageError(f"--by {unknown[0]!r} is none of {', '.join(GROUPS)}")
        if bool(self.begin) != bool(self.end):
            there, lacking = ("--to", "--from") if self.end else ("--from", "--to")
            raise UsageError(f"Requested {there} without {lacking}. Add {lacking}, or use --month")
        try:
            if self.month:
                _CALENDAR.month(self.month)
        except RequestError as error:
            raise UsageError(str(error)) from None
        for option, text in (("--from", self.begin), ("--to", self.end)):
            try:
                if text:
                    _CALENDAR.day(text, option)
            except RequestError:
                raise UsageError(f"{option} {text!r} is no day. Use one such as 2026-11-01") from None
        try:
            if self.begin:
                _CALENDAR.span(self.begin, self.end)
        except RequestError:
            raise UsageError(
                f"--to {self.end} is not after --from {self.begin}. It is the day after the last one: November is "
                "--from 2026-11-01 --to 2026-12-01"
            ) from None
