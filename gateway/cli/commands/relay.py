"""`aliquot relay`: the relay host in the foreground, for a service or a container. Its arguments are the host's own."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator

from jupyter_aliquot.provisioner.relay.host.settings import add_arguments, read_arguments

from .base import PassThroughCommand


class RelayCommand(PassThroughCommand):
    """Becomes the relay host, which ends by SIGTERM or SIGINT; relays go on."""

    name = "aliquot relay"
    description = """The relay host: one per machine. It forks a small relay beside each kernel, which keeps the kernel
    and its output while no gateway runs. Gateways start one when none runs; a service or a container starts this."""
    examples = """
    aliquot relay
    aliquot relay --runtime-dir /run/aliquot
    """

    def emit_help(self, classes: bool = False) -> Generator[str, None, None]:
        """Called by Application.print_help. The options are those of the relay host itself."""
        parser = argparse.ArgumentParser(prog=self.name, add_help=False, formatter_class=_formatter)
        add_arguments(parser)
        yield parser.format_usage().rstrip()
        help_text = parser.format_help().split("options:", 1)[-1].strip("\n")
        lines = list(super().emit_help(classes))
        start = lines.index("\noptions:") + 1
        end = lines.index("\nexamples:")
        yield from (*lines[1:start], help_text, *lines[end:])

    def start(self) -> None:
        """Called by Application.start: another program in our place, for what relays share must be small."""
        read_arguments(self.extra_args)  # what is wrong is said by this command
        os.execv(sys.executable, [sys.executable, "-m", "jupyter_aliquot.provisioner.relay", *self.extra_args])


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=30, width=110)
