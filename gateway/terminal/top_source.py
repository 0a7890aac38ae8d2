"""Whence `aliquot top` has what it shows: the gateway, or this machine's node agent where none can be asked."""

from __future__ import annotations

import time
from dataclasses import dataclass

from jupyter_aliquot.gateway.auth.identity import operating_system_user
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.status.report import Report, Scene, status_report
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query, read_status

from .rest_client import GatewayRefusal, Gateways, NoGatewayHere

_ANSWER_SECONDS = 3.0


@dataclass(frozen=True)
class Look:
    """One answer, in the form of GET /aliquot/api/v1/status. ``at``: seconds of a clock that only goes forward.

    ``report`` None: nobody answered. ``problem``: what is wrong with who should have; empty when nothing is.
    """

    at: float
    report: Report | None
    origin: str = ""
    problem: str = ""


class TopSource:
    """Asks anew each time, so that who comes back is found. Blocks for as long as an answer takes."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways
        self._had_gateway = False

    def look(self) -> Look:
        """Never raises for what does not answer."""
        try:
            gateway, report = self._gateways.ask("status", _ANSWER_SECONDS)
            if not isinstance(report, dict) or "node" not in report:
                raise NoGatewayHere(f"what answers at {gateway.url} is no gateway")
        except GatewayRefusal as error:
            return self._look_at_agent(f"the gateway refuses to say: {error}")
        except NoGatewayHere as error:
            is_missed = self._had_gateway or self._gateways.elsewhere
            return self._look_at_agent(f"trying again: {error}" if is_missed else "")
        self._had_gateway = True
        return Look(time.monotonic(), report, f"gateway {gateway.url}")

    def _look_at_agent(self, problem: str) -> Look:
        try:
            status = read_status(query("status", runtime_dir=self._gateways.runtime.path, seconds=_ANSWER_SECONDS))
        except AgentClientError as error:
            return Look(time.monotonic(), None, problem="; ".join(filter(None, (problem, str(error)))))
        report = status_report(Scene("", node=NodeView(status)), operating_system_user())
        return Look(time.monotonic(), report, "node agent", problem)
