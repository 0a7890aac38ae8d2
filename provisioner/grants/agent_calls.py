"""Call the node agent, and translate its error codes into our exceptions, only here.

Every call has a time limit, so that an agent that hangs counts as unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from jupyter_aliquot.gpu_hook.client.client import (
    AgentClient,
    AgentClientError,
    AgentHello,
    AgentRefused,
    AgentUnreachable,
)
from jupyter_aliquot.gpu_hook.waiting import within
from jupyter_aliquot.provisioner.errors import (
    AgentError,
    AgentProtocolError,
    AgentUnavailableError,
    AliquotError,
    DeviceLostError,
    GrantError,
    GrantLostError,
    LimitError,
    NeverFitsError,
    NoRoomError,
    RequestError,
)

T = TypeVar("T")
_ANSWER_SECONDS = 10.0

_BY_CODE: dict[str, type[AliquotError]] = {
    "bad_request": RequestError,
    "never_fits": NeverFitsError,
    "no_room": NoRoomError,
    "over_limit": LimitError,
    "device_lost": DeviceLostError,
    "conflict": GrantError,
    "not_found": GrantLostError,
    "version": AgentProtocolError,
    "internal": AgentError,
}


def agent_error(error: AgentClientError) -> AliquotError:
    """Return the error as one of our exceptions, with the same message."""
    if isinstance(error, AgentRefused):
        return _BY_CODE.get(error.code, AgentProtocolError)(str(error))
    if isinstance(error, AgentUnreachable):
        return AgentUnavailableError(str(error))
    return AgentProtocolError(str(error))


async def connect(runtime_dir: Path) -> AgentClient:
    """Return a connection to the agent. Raises AgentUnavailableError.

    This does not run within a wait_for around the client's own: cancelled at the wrong moment, it
    would drop the connection.
    """
    try:
        return await AgentClient.connect(runtime_dir)
    except AgentClientError as error:
        raise agent_error(error) from error


async def greet(runtime_dir: Path, name: str) -> AgentClient:
    """Return a connection to an agent that speaks our version, and tell it our name.

    Raises AgentError.
    """
    return (await meet(runtime_dir, name))[0]


async def meet(runtime_dir: Path, name: str) -> tuple[AgentClient, AgentHello]:
    """Return a connection as `greet` does, and the agent's description of itself."""
    client = await connect(runtime_dir)
    try:
        return client, await answered(client.hello(name))
    except BaseException:
        await client.close()
        raise


async def answered(question: Awaitable[T], seconds: float = _ANSWER_SECONDS) -> T:
    """Return the agent's answer. Raises AliquotError, also when none came in time."""
    try:
        return await within(question, seconds)
    except asyncio.TimeoutError:
        raise AgentUnavailableError(
            f"the node agent did not answer within {seconds:g} s; see its agent.log, and aliquot doctor"
        ) from None
    except AgentClientError as error:
        raise agent_error(error) from error
