"""Keep a kernel's reservation with the node agent while its relay runs it.

The relay repeats the reservation to an agent that lost its record of the kernel, or that was away
when the kernel started.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from jupyter_aliquot.provisioner.relay.server.agent_notifier import AgentNotifier
from jupyter_aliquot.provisioner.relay.server.forwarder import Forwarder
from jupyter_aliquot.provisioner.relay.server.own_record import OwnRecord

_SIZE = ("owner", "hundredths", "memory_limit", "workload_class")


class Reserver:
    """The reservation of one kernel, run by the relay's loop.

    It reserves when a kernel begins, and on each new connection while the kernel runs.
    """

    def __init__(self, forwarder: Forwarder, own: OwnRecord, notifier: AgentNotifier) -> None:
        self._forwarder = forwarder
        self._own = own
        self._notifier = notifier
        self._began = 0.0
        notifier.introduce(self._requests)

    def turn(self) -> None:
        """Called once per turn of the loop."""
        began, self._began = self._began, self._forwarder.started_at
        if self._began not in (0.0, began) and any(self._requests()):
            self._notifier.introduce_now(time.monotonic())

    def due_in(self) -> float | None:
        """Return None: no turn is needed."""
        return None

    def _requests(self) -> Iterator[Mapping[str, Any]]:
        """Return the requests: ``reserve``, then ``bind``.

        ``reserve`` makes the connection a holder; ``bind`` names the process, which outlives the
        connection. For a kernel that was resized without our knowledge, the agent refuses the
        first: it has the reservation then, and the second counts. A kernel in a container was
        started by its engine, and its process is not known here.
        """
        if self._forwarder.started_at:
            with contextlib.suppress(KeyError, TypeError):  # the starter was another version, with other facts
                yield self._reserve()
                if (kernel := self._own.kernel) is not None:
                    yield {"op": "bind", **vars(kernel)}

    def _reserve(self) -> Mapping[str, Any]:
        """Return the request to reserve.

        Raises KeyError and TypeError for a missing or unreadable grant.
        """
        facts, grant = self._own.facts, self._own.facts["grant"]
        return {
            "op": "reserve",
            **{name: grant[name] for name in _SIZE},
            **({"residency": grant["residency"]} if grant["residency"] else {}),
            "placement": [{"uuid": one["uuid"], "hundredths": one["hundredths"]} for one in grant["devices"]],
            "label": str(facts.get("label", "")),
            "attributes": {"kernelspec": str(facts.get("kernelspec", ""))},
        }
