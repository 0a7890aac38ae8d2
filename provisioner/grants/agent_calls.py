"""What the agent's client raises, as our exception tree: the one place where agent codes become exceptions.

Also bounds every question to the agent in time, so that one that hangs is an agent that is not there.
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
    """The same message, in the class that callers of ours know."""
    if isinstance(error, AgentRefused):
        return _BY_CODE.get(error.code, AgentProtocolError)(str(error))
    if isinstance(error, AgentUnreachable):
        return AgentUnavailableError(str(error))
    return AgentProtocolError(str(error))


async def connect(runtime_dir: Path) -> AgentClient:
    """A connection to the agent. Raises AgentUnavailableError.

    Not within a wait_for beside the client's own: cancelled at the wrong moment, it would drop the connection.
    """
    try:
        return await AgentClient.connect(runtime_dir)
    except AgentClientError as error:
        raise agent_error(error) from error


async def greet(runtime_dir: Path, name: str) -> AgentClient:
    """A connection to an agent that speaks our version, and knows our name. Raises AgentError."""
    return (await meet(runtime_dir, name))[0]


async def meet(runtime_dir: Path, name: str) -> tuple[AgentClient, AgentHello]:
    """The same, and what the agent told of itself."""
    client = await connect(runtime_dir)
    try:
        return client, await answered(client.hello(name))
    except BaseException:
        await client.close()
        raise


async def answered(question: Awaitable[T], seconds: float = _ANSWER_SECONDS) -> T:
    """The agent's answer. Raises AliquotError, also when none came in time."""
    try:
        return await within(question, seconds)
    except asyncio.TimeoutError:
        raise AgentUnavailableError(
            f"the node agent did not answer within {seconds:g} s; see its agent.log, and aliquot doctor"
        ) from None
    except AgentClientError as error:
        raise agent_error(error) from error
