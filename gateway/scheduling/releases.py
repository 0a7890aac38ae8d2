"""Kernels whose grant has ended, until the node agent knows. Admission alone writes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol

from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError


class ReleasingAgent(Protocol):
    """The part of the agent's link that releases reservations."""

    async def release(self, kernel_id: str) -> None:
        """Release the kernel's reservation. Raises AliquotError."""
        ...


class Releases:
    """The ended grants, in the order in which they ended."""

    def __init__(self, agent: ReleasingAgent, log: logging.Logger) -> None:
        self._agent = agent
        self._log = log
        # The future, if any, is done when the ledger has forgotten the kernel.
        self._asked: dict[str, asyncio.Future[None] | None] = {}

    def __contains__(self, kernel_id: object) -> bool:
        return kernel_id in self._asked

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._asked))

    def ask(self, kernel_id: str) -> asyncio.Future[None]:
        """Release a kernel.

        Return a future that is done when the ledger has forgotten it; the same one each time.
        """
        done = self._asked.get(kernel_id)
        if done is None:
            done = self._asked[kernel_id] = asyncio.get_running_loop().create_future()
        return done

    def add(self, kernel_id: str) -> None:
        """Release a kernel without a future."""
        self._asked.setdefault(kernel_id, None)

    async def tell_agent(self) -> list[asyncio.Future[None]]:
        """Tell the agent, after the ledger forgot them; return the futures of those that it knows of.

        An agent that is away is told first of all when it is back.
        """
        told = []
        for kernel_id, done in list(self._asked.items()):
            try:
                await self._agent.release(kernel_id)
            except AgentUnavailableError as error:
                self._asked[kernel_id] = None
                self._log.info("kernel=%s release=later reason=%s", kernel_id, error)
            except AliquotError as error:
                self._asked.pop(kernel_id, None)
                self._log.error("kernel=%s release=refused reason=%s", kernel_id, error)
            else:
                self._asked.pop(kernel_id, None)
            if done is not None:
                told.append(done)
        return told
