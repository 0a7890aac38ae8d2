"""`aliquot agent`: the node agent in the foreground, as a service unit runs it. Its arguments are the agent's own."""

from __future__ import annotations

import argparse
from collections.abc import Generator

from jupyter_aliquot.gpu_hook.agent.settings import add_arguments, read_arguments

from .base import PassThroughCommand


class AgentCommand(PassThroughCommand):
    """Runs the agent until SIGTERM or SIGINT."""

    name = "aliquot agent"
    description = """The node agent: one per machine. It owns the ledger of GPU memory and meets every kernel's
    processes at a socket of their own. aliquot lab and serve start one when none runs; a service unit starts this."""
    examples = """
    aliquot agent
    aliquot agent --driver softgpu --softgpu-memory 8GiB
    """

    def emit_help(self, classes: bool = False) -> Generator[str, None, None]:
        """Called by Application.print_help. The options are those of the agent itself."""
        parser = argparse.ArgumentParser(prog=self.name, add_help=False, formatter_class=_formatter)
        add_arguments(parser)
        yield parser.format_usage().rstrip()
        help_text = parser.format_help().split("options:", 1)[-1].strip("\n")
        lines = list(super().emit_help(classes))
        start = lines.index("\noptions:") + 1
        end = lines.index("\nexamples:")
        yield from (*lines[1:start], help_text, *lines[end:])

    def start(self) -> None:
        """Called by Application.start: becomes the agent, and returns when that ends."""
        from jupyter_aliquot.gpu_hook.agent.base.precedence import take_precedence

        take_precedence()
        from jupyter_aliquot.gpu_hook.agent.main import run_agent

        self.exit(run_agent(read_arguments(self.extra_args)))


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=30, width=110)
