"""The command line: one traitlets application with subcommands. Starts nothing by itself; each command has its file."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from traitlets import TraitError
from traitlets.config import Application
from traitlets.utils.importstring import import_item

import jupyter_aliquot.gateway.serverapp.lazy_rfc3987  # noqa: F401 (before any command imports Jupyter's server)
from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.cli.commands.base import Command, nearest
from jupyter_aliquot.provisioner.errors import AliquotError

COMMANDS = {
    "lab": ("lab.LabCommand", "JupyterLab with Aliquot"),
    "serve": ("serve.ServeCommand", "the gateway only: kernels, sessions, kernelspecs and /aliquot/api/v1"),
    "agent": ("agent.AgentCommand", "the node agent, in the foreground"),
    "relay": ("relay.RelayCommand", "the relay host, which keeps kernels while no gateway runs; in the foreground"),
    "demo": ("demo.DemoCommand", "three notebooks share one GPU; each claim is checked"),
    "status": ("status.StatusCommand", "the devices and kernels of this machine; --watch shows them live"),
    "history": ("history.HistoryCommand", "who used what, over the last hour, day or week"),
    "resize": ("resize.ResizeCommand", "another size or class for a kernel that runs"),
    "swap": ("swap.SwapCommand", "a kernel's memory leaves its GPU, until its next cell"),
    "restore": ("swap.RestoreCommand", "it comes back, ahead of its next cell"),
    "share": ("share.ShareCommand", "show a running kernel to other users, or let them use it"),
    "sizes": ("sizes.SizesCommand", "the sizes that kernels can have; --install writes them as kernelspecs"),
    "doctor": ("doctor.DoctorCommand", "what is found here, and what to do about what is missing"),
}


def _factory(path: str) -> Callable[[Application], Application]:
    """Import a command when it is asked for; no singleton, for `lab` and `serve` start applications of their own."""

    def make(parent: Application) -> Application:
        command: type[Application] = import_item(f"jupyter_aliquot.gateway.cli.commands.{path}")
        return command(parent=parent)

    return make


class AliquotApp(Command):
    """`aliquot`: dispatches to the subcommand."""

    name = "aliquot"
    usage = "aliquot COMMAND [options]"
    description = """Elastic fractional GPU kernels for Jupyter.

    aliquot COMMAND --help tells more about a command; aliquot doctor tells what is found on this machine."""
    examples = """
    aliquot lab             # JupyterLab; pick "Python 3 · 0.25 GPU"
    aliquot demo            # watch three notebooks share one GPU
    aliquot status          # who holds what
    """
    subcommands: dict[str, Any] = {name: (_factory(path), text) for name, (path, text) in COMMANDS.items()}

    def refuse_unknown(self, argv: list[str]) -> None:
        """Also refuse a command that does not exist."""
        if argv and argv[0] == "help":
            return
        if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
            hint = nearest(argv[0], list(COMMANDS)) or f"; there are {', '.join(COMMANDS)}"
            raise UsageError(f"no command {argv[0]!r}{hint}")
        if not argv or argv[0] not in COMMANDS:
            super().refuse_unknown(argv)

    def start(self) -> None:
        """Called by main: run the subcommand, or say which there are."""
        super().start()
        if self.subapp is None:
            self.print_help()


def main(argv: list[str] | None = None) -> None:
    """The entry point `aliquot`. Ends the process with an exit code; a user never sees a traceback of ours."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without our ticks and dots shows a question mark, and no traceback.
        sys.stdout.reconfigure(errors="replace")
    app = AliquotApp()
    try:
        app.initialize(words)
        app.start()
        sys.stdout.flush()
    except UsageError as error:
        sys.exit(_report(error, 2))
    except (AliquotError, TraitError) as error:
        if isinstance(app.subapp, Command) and app.subapp.json_output:
            print(json.dumps({"message": str(error)}, ensure_ascii=False))
        sys.exit(_report(error, 1))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader went away (`aliquot status | head`): nothing is left to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        sys.exit(_report(error, 1))


def _report(error: Exception, code: int) -> int:
    print(f"aliquot: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
