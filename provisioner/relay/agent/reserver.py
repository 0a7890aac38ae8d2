"""Keep a kernel's reservation with the node agent while its relay runs it: an agent that lost its
record of the kernel, or that was away when it started, is asked for the same again.
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
    """Run by the relay's loop: it reserves when a kernel begins, and on each new connection while
    it runs.
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
        """``reserve`` makes the connection a holder; ``bind`` the process, which outlives the
        connection.

        The agent refuses the first for a kernel that was resized without our knowledge; it has it
        then, and the second counts. A kernel in a container was started by its engine, and its
        process is not known here.
        """
        if self._forwarder.started_at:
            with contextlib.suppress(KeyError, TypeError):  # facts of a starter of another version
                yield self._reserve()
                if (kernel := self._own.kernel) is not None:
                    yield {"op": "bind", **vars(kernel)}

    def _reserve(self) -> Mapping[str, Any]:
        """Return the request to reserve. Raises KeyError and TypeError for a missing or unreadable
        grant.
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
