"""The node agent's first word on what the node has. Until then nobody knows which sizes never fit: starts wait for it.

For a moment at most, and not where the agent was looked for and is not there: that may take as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Protocol

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from tornado.web import HTTPError

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.grants.codec import stanza_request

_SECONDS = 10.0


class Agent(Protocol):
    """The node agent, as agent_link.AgentLink gives it."""

    unavailable_since: float | None

    def listen(self, listener: Callable[[], None]) -> None: ...


class Admission(Protocol):
    """Whose cycles ask the agent."""

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]: ...

    def snapshot(self) -> AdmissionSnapshot: ...


class FirstWord:
    """Waited for by who starts kernels, ``seconds`` after it was made at the latest."""

    def __init__(self, agent: Agent, admission: Admission, clock: Clock, seconds: float = _SECONDS) -> None:
        self._agent = agent
        self._admission = admission
        self._clock = clock
        self._until = clock.now() + seconds
        self._has_looked = False
        self._is_over = asyncio.Event()
        agent.listen(self._looked)
        self._stop_observing = admission.observe(self._hear)

    def _looked(self) -> None:
        """The agent came, or was not found."""
        self._has_looked = True

    def _hear(self) -> None:
        """After a cycle: the agent told what there is, or was looked for and does not answer."""
        is_missed = self._has_looked and self._agent.unavailable_since is not None
        if not self._is_over.is_set() and (is_missed or self._admission.snapshot().node.name):
            self._is_over.set()
            self._stop_observing()

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._is_over.is_set() or self._clock.now() >= self._until

    async def wait(self) -> None:
        """Until it was heard, or is not to be expected, or the moment is over."""
        if self.is_over:
            return
        left = self._until - self._clock.now()
        waits = [asyncio.ensure_future(self._is_over.wait()), asyncio.ensure_future(self._clock.sleep(left))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                await end_task(wait)


class StartsKernels(Protocol):
    """The kernel manager."""

    first_word: FirstWord | None
    kernel_spec_manager: KernelSpecManager
    default_kernel_name: str

    def __contains__(self, kernel_id: str) -> bool: ...

    def with_requested_size(self, kernel_name: str | None) -> str | None: ...


def after_first_word(start: Callable[..., Coroutine[Any, Any, str]]) -> Callable[..., Coroutine[Any, Any, str]]:
    """While the server is only just up: the agent says which sizes never fit, and these are refused, not queued."""

    @wraps(start)
    async def started(manager: StartsKernels, *, kernel_id: str | None = None, **kwargs: Any) -> str:
        word = manager.first_word
        is_new = kernel_id is None or kernel_id not in manager
        if word is not None and is_new and not word.is_over and _asks_for_a_grant(manager, kwargs.get("kernel_name")):
            await word.wait()
        return await start(manager, kernel_id=kernel_id, **kwargs)

    return started


def _asks_for_a_grant(manager: StartsKernels, kernel_name: str | None) -> bool:
    """What is wrong with the name is for the start to say."""
    try:
        name = manager.with_requested_size(kernel_name or None) or manager.default_kernel_name
        return stanza_request(manager.kernel_spec_manager.get_kernel_spec(name).metadata) is not None
    except (AliquotError, HTTPError, NoSuchKernel):
        return False
