"""The time from a pod's creation until its kernel runs, with the cluster's reasons for the user who waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_aliquot.provisioner.errors import GrantLostError, LaunchError
from jupyter_aliquot.provisioner.kubernetes.client import Object
from jupyter_aliquot.provisioner.kubernetes.states import PodPhase, PodState, pod_state

from .store import PodStore

OVER = (PodPhase.ENDED, PodPhase.EVICTED)
DELETED = "its pod was deleted by another program than the gateway"
_LOOK_SECONDS = 5.0


class StartingPod:
    """A pod that is to run on *node* before *until*, on the monotonic clock: *seconds* after its start was asked for.

    *note* is called with what it waits for.
    """

    def __init__(
        self,
        store: PodStore,
        metadata: Mapping[str, Any],
        node: str,
        until: float,
        seconds: float,
        note: Callable[[str], None],
    ) -> None:
        self._node = node
        self._store = store
        self._name, self._uid = str(metadata["name"]), str(metadata["uid"])
        self._until, self._seconds = until, seconds
        self._note = note
        self._state = PodState(PodPhase.SCHEDULING)
        self._warning = ""

    async def until_running(self) -> Object:
        """Return the pod once its kernel's container runs. Raises LaunchError, and GrantLostError without the node."""
        while True:
            changed = self._store.next_change()
            if (running := self._look()) is not None:
                return running
            self._note(self._store.problem or self._warning or self._state.reason)
            left = self._until - time.monotonic()
            if left <= 0:
                raise LaunchError(
                    f"The kernel's pod does not run after {self._seconds:g} s. "
                    f"{self._warning or self._state.reason or 'The cluster tells no reason'}"
                )
            done, _ = await asyncio.wait({changed}, timeout=min(left, _LOOK_SECONDS))
            if not done and not self._store.problem:
                # What holds a pod up is told by events alone, where its status says nothing.
                self._warning = await self._store.warning(self._uid)
                if self._state.phase is PodPhase.SCHEDULING and await self._store.is_node_gone(self._node):
                    raise GrantLostError(
                        f"The kernel's GPU is on the node {self._node}, which the cluster has no more. The kernel gets "
                        "another one"
                    )

    def _look(self) -> Object | None:
        """Return the pod if it runs. Raises LaunchError for one that will not."""
        found = self._store.pod(self._name, self._uid)
        if found is not None:
            state = pod_state(found)
            if state.phase is PodPhase.RUNNING and (found.get("status") or {}).get("podIP"):
                return found
            if state.phase in OVER:
                raise LaunchError(f"The kernel's pod did not start: {state.reason}")
            if state != self._state:
                self._state, self._warning = state, ""
        elif self._store.is_gone(self._uid):
            raise LaunchError(f"The kernel did not start: {DELETED}")
        else:
            self._store.look_for(self._name, self._uid)
        return None
