"""The start of a node agent by a server: the command's options, from the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gpu_hook.client.agent_process import AgentStartError, start_agent
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir
from jupyter_aliquot.provisioner.errors import AgentUnavailableError


def agent_starter(runtime: RuntimeDir, settings: Aliquot) -> Callable[[], Awaitable[None]]:
    """Return a function that starts a node agent where none runs."""

    async def start() -> None:
        try:
            # In a thread: it blocks until the agent answers.
            await asyncio.to_thread(
                start_agent, runtime.path, arguments=agent_arguments(settings), seconds=settings.agent_wait_seconds
            )
        except (AgentStartError, PathError) as error:
            raise AgentUnavailableError(str(error)) from error

    return start


def agent_arguments(settings: Aliquot) -> list[str]:
    """Return the options of `aliquot agent` that the configuration sets.

    The agent decides about the others.
    """
    options = {
        "--driver": settings.driver,
        "--softgpu-devices": f"{settings.softgpu_devices or ''}",
        "--softgpu-memory": f"{int(settings.softgpu_bytes() or 0) or ''}",
        "--softgpu-sm-count": f"{settings.softgpu_sm_count or ''}",
        "--softgpu-link-gbps": f"{settings.softgpu_link_gbps or ''}",
    }
    words = [word for option, value in options.items() if value for word in (option, value)]
    return [*words, *settings.agent_options]
