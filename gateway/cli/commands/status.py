"""The command `aliquot status`: the kernels and their GPUs, as the node agent reports them.

Needs no gateway, no token and no browser.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.text import Text
from traitlets import Bool, Float, Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.terminal.gateway_tables import (
    doubt_lines,
    doubtful_kernels,
    ended_kernels,
    ended_rows,
    gateway_view,
    lowered_by_teams,
    message_lines,
    nodes_lines,
    overcommit_lines,
    queue_rows,
    speed_lines,
    waiting_kernels,
)
from jupyter_aliquot.gateway.terminal.node_table import cordon_lines
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere, OwnGateway
from jupyter_aliquot.gateway.terminal.tables import console, ended_table, status_view
from jupyter_aliquot.gateway.terminal.watch import watch_view
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query, read_status
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus, UnreadableReportError
from jupyter_aliquot.provisioner.addresses import shown_address
from jupyter_aliquot.provisioner.listener import is_this_machine

from .base import JSON_FLAG, Command

_ANSWER_SECONDS = 3.0
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 3600.0
_Answer = dict[str, Any]


class StatusCommand(Command):
    """Print tables, or JSON for programs."""

    name = "aliquot status"
    description = """Show the devices of this machine, the kernels that hold a part of them, where their memory is, and
    how much of the GPU's time they get. Show also the kernels that are queued, and the last that ended.

    The node agent tells it; a gateway of this machine adds the queue, the ended kernels and the nodes on other
    machines. Where no agent answers, or JUPYTER_GATEWAY_URL names a gateway of another machine, that gateway alone
    tells all, and --json prints its GET /aliquot/api/v1/status; the first line, and the JSON's "source", say which.
    --runtime-dir asks the agent of that folder. A narrow terminal shows the most useful columns."""
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
    only_with: ClassVar[Mapping[str, tuple[str, ...]]] = {"interval": ("watch",)}

    watch = Bool(False, help="Show it live; q or Ctrl-C ends it.").tag(config=True)
    interval = Float(2.0, help="With --watch: seconds between two views (default 2).").tag(config=True)
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        if self.watch and self.json_output:
            raise UsageError(
                "Requested --watch and --json. Use one of them: --watch is for people, --json for programs"
            )
        if not _LEAST_SECONDS <= self.interval <= _MOST_SECONDS:
            raise UsageError(
                f"Requested --interval {self.interval:g}, which is out of range. "
                f"Use a number from {_LEAST_SECONDS:g} to {_MOST_SECONDS:g}"
            )
        gateways, screen = Gateways.of(self.runtime_dir), console()
        if self.watch:
            watch_view(partial(self._view, gateways), screen, self.interval)
        elif self.json_output:
            print(json.dumps(self._report(gateways), indent=2, ensure_ascii=False))
        else:
            screen.print(self._view(gateways))

    def _view(self, gateways: Gateways) -> RenderableType:
        found = self._look(gateways)
        if isinstance(found, _Elsewhere):
            return found.view()
        told = found.told
        status = _named_by(told.kernels or (), found.status)
        ended = ended_kernels(told.kernels or ())
        return Group(
            *message_lines(told.message),
            status_view(status, None if told.kernels is None else queue_rows(waiting_kernels(told.kernels))),
            *(Text(line) for line in overcommit_lines(lowered_by_teams(told.devices))),
            *(Text(line) for line in speed_lines(told.devices)),
            *(Text(line, style="red") for line in cordon_lines(status.node, told.cordon)),
            *nodes_lines(told.nodes or ()),
            *(Text(line, style="red") for line in doubt_lines(doubtful_kernels(told.kernels or ()))),
            *([ended_table(ended_rows(ended))] if ended else []),
            *([Text(told.problem, style="red")] if told.problem else []),
        )

    def _report(self, gateways: Gateways) -> _Answer:
        """Return the agent's answer without its envelope, with what only a gateway knows; or a gateway's report."""
        found = self._look(gateways)
        if isinstance(found, _Elsewhere):
            return {"source": {"kind": "gateway", "url": found.url}, **found.report}
        answer, told = found.answer, found.told
        labels = _labels(told.kernels or ())
        kernels = [{**one, "label": labels.get(one["kernel_id"], one["label"])} for one in answer["kernels"]]
        return {
            "source": {"kind": "agent", "url": None},
            **{name: value for name, value in answer.items() if name not in {"id", "ok"}},
            "kernels": kernels,
            "queue": None if told.kernels is None else waiting_kernels(told.kernels),
            "doubtful": doubtful_kernels(told.kernels or ()),
            "ended": ended_kernels(told.kernels or ()),
            "nodes": told.nodes,
            "cordon": told.cordon,
            "lowered_by_teams": [
                {name: one[name] for name in ("uuid", "index", "overcommit", "overcommit_reason")}
                for one in lowered_by_teams(told.devices)
            ],
            "message": told.message,
            "gateway_problem": told.problem or None,
        }

    def _look(self, gateways: Gateways) -> _Here | _Elsewhere:
        """Ask this machine's agent and its gateway, or a gateway elsewhere alone. Raises CommandError."""
        try:
            answer = self._asked_of_agent()
            status = read_status(answer)
        except (AgentClientError, UnreadableReportError) as error:
            return _asked_elsewhere(gateways, str(error))
        told = _asked_of(gateways, status)
        return told if isinstance(told, _Elsewhere) else _Here(answer, status, told)

    def _asked_of_agent(self) -> _Answer:
        answer: _Answer = query("status", runtime_dir=self.runtime_dir or None)
        return answer


@dataclass(frozen=True)
class _OfGateway:
    """The facts of the gateway that the agent does not have; ``kernels`` is None where no gateway answers.

    ``problem``: why the gateway that Jupyter's variables name gave no answer.
    """

    kernels: list[_Answer] | None = None
    nodes: list[_Answer] | None = None
    cordon: _Answer | None = None
    devices: Sequence[Mapping[str, Any]] = ()
    message: str | None = None
    problem: str = ""


@dataclass(frozen=True)
class _Here:
    """The answer of this machine's agent, and what a gateway of this machine adds."""

    answer: _Answer
    status: NodeStatus
    told: _OfGateway


@dataclass(frozen=True)
class _Elsewhere:
    """The status of another machine. ``own_folder``: that of an agent which answers on this one; empty for none."""

    url: str
    report: _Answer
    own_folder: str = ""

    def view(self) -> RenderableType:
        """Draw it, with the command for this machine's agent."""
        own = f"This machine has a node agent of its own: aliquot status --runtime-dir {self.own_folder} shows it."
        return Group(gateway_view(self.report, self.url), *([Text(own)] if self.own_folder else []))


def _asked_of(gateways: Gateways, here: NodeStatus) -> _OfGateway | _Elsewhere:
    """Return what the gateway adds to the agent's status, or all that a gateway of another machine tells."""
    try:
        gateway, told = gateways.ask("status", _ANSWER_SECONDS)
        if gateways.elsewhere and not _is_of(told, here, gateway.url):
            return _elsewhere(gateway, told, str(gateways.runtime.path))
        # The status leaves out the kernels that the user ended.
        kernels = gateways.ask("kernels", _ANSWER_SECONDS)[1]["kernels"]
        # An earlier gateway has no nodes on other machines and no cordons.
        nodes, own = told.get("nodes", []), told["node"]
        return _OfGateway(kernels, nodes, own.get("cordon"), told["devices"], own["message"])
    except (NoGatewayHere, GatewayRefusal) as error:
        return _OfGateway(problem=str(error) if gateways.elsewhere else "")
    except (AttributeError, KeyError, TypeError, ValueError):
        return _OfGateway(problem=_no_aliquot(gateways) if gateways.elsewhere else "")


def _is_of(report: _Answer, here: NodeStatus, url: str) -> bool:
    """Return whether a gateway's own node is this machine; machines may have the same name, but not the same GPUs.

    A gateway that its agent does not answer knows neither: then its address decides.
    """
    own = report["node"]
    if not own["name"] and own.get("agent") == "unavailable":
        return is_this_machine(urlsplit(url).hostname or "")
    known, there = {one.uuid for one in here.devices}, {one["uuid"] for one in report["devices"]}
    return bool(own["name"] == here.node and (known & there or not known or not there))


def _labels(kernels: Iterable[_Answer]) -> dict[str, str]:
    return {kernel["id"]: kernel["label"] for kernel in kernels if kernel["label"]}


def _named_by(kernels: Iterable[_Answer], status: NodeStatus) -> NodeStatus:
    """Return the agent's status with the gateway's names, which follow renames: the agent has those at the start."""
    labels = _labels(kernels)
    named = tuple(replace(one, label=labels.get(one.kernel_id, one.label)) for one in status.kernels)
    return replace(status, kernels=named)


def _no_aliquot(gateways: Gateways) -> str:
    return f"What answers at {shown_address(gateways.elsewhere[-1].url)} is not an Aliquot gateway"


def _asked_elsewhere(gateways: Gateways, problem: str) -> _Elsewhere:
    """Ask the gateway that Jupyter's variables name. Raises CommandError, also where they name none."""
    if not gateways.elsewhere:
        raise CommandError(problem)
    try:
        return _elsewhere(*gateways.ask("status", _ANSWER_SECONDS))
    except (NoGatewayHere, GatewayRefusal) as error:
        raise CommandError(str(error)) from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CommandError(_no_aliquot(gateways)) from None


def _elsewhere(gateway: OwnGateway, report: _Answer, own_folder: str = "") -> _Elsewhere:
    """Return a gateway's report, once it is known to be one: drawing it reads all that a report has."""
    gateway_view(report, gateway.url)
    return _Elsewhere(gateway.url, report, own_folder)
