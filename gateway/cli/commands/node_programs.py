"""The commands `aliquot agent` and `aliquot relay`: the programs of a node, in the foreground.

A service unit or a container starts them. Their arguments belong to the programs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator
from types import ModuleType
from typing import ClassVar

from jupyter_aliquot.gpu_hook.agent import settings as agent_settings
from jupyter_aliquot.provisioner.relay.host import settings as relay_settings

from .base import PassThroughCommand


class NodeProgramCommand(PassThroughCommand):
    """A command with the options of the program that it starts."""

    program: ClassVar[ModuleType]  # the settings of the program, with its options

    def emit_help(self, classes: bool = False) -> Generator[str, None, None]:
        """Yield the help, with the program's options. Called by Application.print_help."""
        parser = argparse.ArgumentParser(prog=self.name, add_help=False, formatter_class=_formatter)
        self.program.add_arguments(parser)
        yield parser.format_usage().rstrip()
        help_text = parser.format_help().split("options:", 1)[-1].strip("\n")
        lines = list(super().emit_help(classes))
        start = lines.index("\noptions:") + 1
        end = lines.index("\nexamples:")
        yield from (*lines[1:start], help_text, *lines[end:])


class AgentCommand(NodeProgramCommand):
    """Run the agent until SIGTERM or SIGINT."""

    name = "aliquot agent"
    description = """Run the node agent, one per machine. It owns the ledger of GPU memory, and each kernel's processes
    connect to it at a socket of their own. aliquot lab and serve start one when none runs; a service unit starts
    this."""
    examples = """
    aliquot agent
    aliquot agent --driver softgpu --softgpu-memory 8GiB
    """
    program: ClassVar[ModuleType] = agent_settings

    def start(self) -> None:
        """Become the agent, and return when it ends. Called by Application.start."""
        from jupyter_aliquot.gpu_hook.agent.base.precedence import take_precedence

        take_precedence()
        from jupyter_aliquot.gpu_hook.agent.main import run_agent

        self.exit(run_agent(agent_settings.read_arguments(self.extra_args)))


class RelayCommand(NodeProgramCommand):
    """Become the relay host, which ends by SIGTERM or SIGINT; its relays go on."""

    name = "aliquot relay"
    description = """Run the relay host, one per machine. It forks a small relay beside each kernel, which keeps the
    kernel and its output while no gateway runs. Gateways start one when none runs; a service or a container starts
    this."""
    examples = """
    aliquot relay
    aliquot relay --runtime-dir /run/aliquot
    """
    program: ClassVar[ModuleType] = relay_settings

    def start(self) -> None:
        """Replace this process by another program. Called by Application.start.

        Relays share the process's memory, which must be small.
        """
        relay_settings.read_arguments(self.extra_args)  # so that this command reports errors in them
        os.execv(sys.executable, [sys.executable, "-m", "jupyter_aliquot.provisioner.relay", *self.extra_args])


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=30, width=110)
