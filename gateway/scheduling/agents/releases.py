"""Kernels whose grant has ended, until their node's agent knows. Admission alone writes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError


class ReleasingAgent(Protocol):
    """The part of an agent's link that releases reservations."""

    async def release(self, kernel_id: str) -> None:
        """Release the kernel's reservation. Raises AliquotError."""
        ...


@dataclass
class _Ended:
    """The node of an ended grant, and a future that is done when the ledger has forgotten the kernel."""

    node: str
    done: asyncio.Future[None] | None = None


class Releases:
    """The ended grants, in the order in which they ended."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._asked: dict[str, _Ended] = {}

    def __contains__(self, kernel_id: object) -> bool:
        return kernel_id in self._asked

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._asked))

    def ask(self, kernel_id: str, node: str) -> asyncio.Future[None]:
        """Release a kernel of a node.

        Return a future that is done when the ledger has forgotten it; the same one each time.
        """
        ended = self._asked.setdefault(kernel_id, _Ended(node))
        if ended.done is None:
            ended.done = asyncio.get_running_loop().create_future()
        return ended.done

    def add(self, kernel_id: str, node: str) -> None:
        """Release a kernel without a future."""
        self._asked.setdefault(kernel_id, _Ended(node))

    def take(self, is_there: Callable[[str], bool]) -> list[tuple[str, str, asyncio.Future[None] | None]]:
        """Take out the kernels of such nodes; return each with its node and its future."""
        found = [(kernel_id, one.node, one.done) for kernel_id, one in self._asked.items() if is_there(one.node)]
        for kernel_id, *_ in found:
            del self._asked[kernel_id]
        return found

    def has(self, is_there: Callable[[str], bool], *, is_awaited: bool = False) -> bool:
        """Return whether a kernel of such a node is to be released, of those *is_awaited* if so."""
        return any(is_there(one.node) and not (is_awaited and one.done is None) for one in self._asked.values())

    async def tell(self, agent: ReleasingAgent, is_there: Callable[[str], bool]) -> list[asyncio.Future[None]]:
        """Tell a node's agent, after the ledger forgot them; return the futures of those that it knows of.

        An agent that is away is told first of all when it is back.
        """
        told = []
        for kernel_id, ended in list(self._asked.items()):
            if not is_there(ended.node):
                continue
            done = ended.done
            try:
                await agent.release(kernel_id)
            except AgentUnavailableError as error:
                ended.done = None
                self._log.info("kernel=%s release=later reason=%s", kernel_id, error)
            except AliquotError as error:
                self._asked.pop(kernel_id, None)
                self._log.error("kernel=%s release=refused reason=%s", kernel_id, error)
            else:
                self._asked.pop(kernel_id, None)
            if done is not None:
                told.append(done)
        return told


def resolve(futures: list[asyncio.Future[None]]) -> None:
    """Tell the callers of releases that the ledger has forgotten their kernels."""
    for future in futures:
        if not future.done():
            future.set_result(None)
