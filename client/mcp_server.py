"""The program `jupyter-aliquot-mcp`: the tools for agents by the Model Context Protocol, over stdio.

Its extra is ``jupyter-aliquot[mcp]``, the protocol's official SDK. The server to ask and the token
come from Jupyter's own variables, as for `aliquot status`: an agent never sees the token.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from .agent_tools import AgentTools
from .aio import AsyncClient
from .errors import ClientError
from .server import find_server

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
except ImportError as error:  # the extra is left out
    sys.exit(f"jupyter-aliquot-mcp needs the extra mcp ({error}): pip install '.[mcp]' in a checkout of Aliquot")

_Result = TypeVar("_Result")
_INSTRUCTIONS = (
    "GPUs of this Jupyter server are shared: each kernel has a share of GPU time and a memory limit. Look at "
    "gpu_status before you change a kernel, and ask for the smallest size that the work needs."
)


def make_server(tools: AgentTools, *, may_start_and_end: bool) -> MCPServer:
    """Return the server with the tools that its user allows."""
    server = MCPServer("jupyter-aliquot", instructions=_INSTRUCTIONS, version=version("jupyter-aliquot"))
    reads = ToolAnnotations(read_only_hint=True)
    changes = ToolAnnotations(read_only_hint=False, destructive_hint=False)
    ends = ToolAnnotations(read_only_hint=False, destructive_hint=True)
    for tool in (tools.gpu_status, tools.gpu_sizes, tools.gpu_wait_estimate):
        server.add_tool(_in_words(tool), annotations=reads)
    server.add_tool(_in_words(tools.gpu_resize), annotations=changes)
    if may_start_and_end:
        server.add_tool(_in_words(tools.gpu_start_kernel), annotations=changes)
        server.add_tool(_in_words(tools.gpu_end_kernel), annotations=ends)
    return server


def _in_words(tool: Callable[..., Awaitable[_Result]]) -> Callable[..., Awaitable[_Result]]:
    """Return the tool with the client's errors as the protocol's, which the agent reads."""

    @functools.wraps(tool)
    async def told(*args: Any, **kwargs: Any) -> _Result:
        try:
            return await tool(*args, **kwargs)
        except ClientError as error:
            raise ToolError(str(error)) from error

    return told


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one agent over standard input and output until it leaves."""
    parser = argparse.ArgumentParser(prog="jupyter-aliquot-mcp", description="GPU tools for agents in notebooks.")
    parser.add_argument(
        "--start-and-end", action="store_true", help="let the agent start kernels, and end the user's kernels"
    )
    chosen = parser.parse_args(arguments)
    try:
        client = AsyncClient(find_server(os.environ))
    except ClientError as error:
        sys.exit(f"jupyter-aliquot-mcp: {error}")
    make_server(AgentTools(client), may_start_and_end=chosen.start_and_end).run("stdio")


if __name__ == "__main__":
    main()
