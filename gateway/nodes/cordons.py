"""The cordons of nodes, in a file that outlives the gateway."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gpu_hook.base.files import replace_file, set_aside
from jupyter_aliquot.provisioner.errors import RequestError, StateError

LONGEST_REASON = 200
# More than the gateway takes nodes; a file with more was not written by it.
_MOST = 10_000

# Called with the node, its cordon before and after, and the user who changed it; empty for the gateway itself.
CordonObserver = Callable[[str, "Cordon | None", "Cordon | None", str], None]


class Cordons:
    """The cordoned nodes, by name. ``path`` None: a restart forgets them.

    A change is in force when it is on disk. ``problem`` is why cordons of an earlier run may be
    missing; empty where none are. A file that cannot be read is left alone, and read again before a change.
    """

    def __init__(self, path: Path | None, clock: Clock, log: logging.Logger) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self.problem = ""
        self._is_unread = False
        self._nodes: dict[str, Cordon] = self._read()
        self._observers: list[CordonObserver] = []
        self._changing = asyncio.Lock()

    def observe(self, observer: CordonObserver) -> None:
        """Call *observer* after each change."""
        self._observers.append(observer)

    def of(self, node: str) -> Cordon | None:
        """Return the cordon of a node; None for one that is not cordoned."""
        return self._nodes.get(node)

    @property
    def all(self) -> Mapping[str, Cordon]:
        """The cordoned nodes. A change makes another mapping."""
        return self._nodes

    async def cordon(self, node: str, by: str, reason: str = "", *, is_draining: bool = False) -> Cordon:
        """Cordon a node, or drain it. Raises RequestError, and StateError where that cannot be saved.

        Again it keeps its time, and without a reason its user and reason, too. A drained node that is
        cordoned is drained no more: its kernels return.
        """
        if len(reason) > LONGEST_REASON:
            raise RequestError(f"The reason has {len(reason)} characters, and may have {LONGEST_REASON}")
        told = " ".join(reason.split())

        def cordoned(before: Cordon | None) -> Cordon:
            if before is None or before.is_draining != is_draining:
                return Cordon(by, self._clock.wall(), told or ("" if before is None else before.reason), is_draining)
            return before if told in ("", before.reason) else replace(before, by=by, reason=told)

        await self._change(node, cordoned, by)
        return self._nodes[node]

    async def uncordon(self, node: str, by: str) -> None:
        """Let kernels start on a node again. Idempotent. Raises StateError."""
        await self._change(node, lambda _: None, by)

    async def _change(self, node: str, change: Callable[[Cordon | None], Cordon | None], by: str) -> None:
        async with self._changing:
            if self._is_unread:
                self._nodes = await asyncio.to_thread(self._read)
            if self._is_unread:
                raise StateError(f"{self.problem}. Nothing changed")
            before = self._nodes.get(node)
            cordon = change(before)
            nodes = {name: one for name, one in self._nodes.items() if name != node}
            if cordon is not None:
                nodes[node] = cordon
            if nodes == self._nodes:
                return
            await asyncio.to_thread(self._write, nodes)
            self._nodes = nodes
            self.problem = ""  # an administrator has looked at the nodes
        for observer in self._observers:
            observer(node, before, cordon, by)

    def _write(self, nodes: Mapping[str, Cordon]) -> None:
        if self._path is None:
            return
        text = json.dumps({"version": 1, "nodes": {name: asdict(one) for name, one in nodes.items()}})
        try:
            replace_file(self._path, text)
        except OSError as error:
            why = f"The cordon cannot be saved in {self._path}: {error.strerror}. Nothing changed"
            raise StateError(why) from error

    def _read(self) -> dict[str, Cordon]:
        self.problem, self._is_unread = "", False
        if self._path is None:
            return {}
        try:
            told = json.loads(self._path.read_bytes())["nodes"]
            return {str(name): _cordon(one) for name, one in list(told.items())[:_MOST]}
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._is_unread = True
            self.problem = (
                f"The cordons of nodes in {self._path} cannot be read ({error.strerror}), and no node is cordoned. "
                "Make the file readable, and restart the gateway"
            )
            self._log.error("cordons=unreadable path=%s reason=%r; no node is cordoned", self._path, error)
            return {}
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            self.problem = (
                f"The cordons of nodes in {self._path} were damaged, and no node is cordoned. "
                "Cordon again those on which nothing is to start"
            )
            self._log.error("cordons=damaged path=%s reason=%r; no node is cordoned", self._path, error)
        try:
            set_aside(self._path)
        except OSError as error:
            self._log.error("cordons=not_set_aside path=%s reason=%s", self._path, error)
        return {}


def _cordon(record: Mapping[str, Any]) -> Cordon:
    since = float(record["since"])
    if not 0 <= since < 1e12:
        raise ValueError(f"since {since}")
    return Cordon(str(record["by"]), since, str(record["reason"])[:LONGEST_REASON], record["is_draining"] is True)
