"""The command line: one traitlets application with subcommands, each in a file of its own."""

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

_HERE = "jupyter_aliquot.gateway.cli.commands"
_ADMIN = "jupyter_aliquot.gateway.cli.administration"
COMMANDS = {
    "lab": (f"{_HERE}.servers.LabCommand", "JupyterLab with Aliquot"),
    "serve": (f"{_HERE}.servers.ServeCommand", "the gateway only: kernels, sessions, kernelspecs and /aliquot/api/v1"),
    "agent": (f"{_HERE}.node_programs.AgentCommand", "the node agent, in the foreground"),
    "relay": (
        f"{_HERE}.node_programs.RelayCommand",
        "the relay host, which keeps kernels while no gateway runs, in the foreground",
    ),
    "demo": ("jupyter_aliquot.demo.command.DemoCommand", "three notebooks share one GPU; each claim is checked"),
    "status": (f"{_HERE}.status.StatusCommand", "the devices and kernels of this machine; --watch shows them live"),
    "history": (f"{_HERE}.history.HistoryCommand", "the GPU use of the last hour, day or week"),
    "usage": (f"{_HERE}.history.UsageCommand", "the GPU-hours of a month by user, team and so on, and budgets"),
    "resize": (f"{_HERE}.resize.ResizeCommand", "change the size or the priority of a running kernel"),
    "swap": (f"{_HERE}.swap.SwapCommand", "move a kernel's memory from its GPU to the host, until its next cell"),
    "restore": (f"{_HERE}.swap.RestoreCommand", "move it back, ahead of the next cell"),
    "share": (f"{_HERE}.share.ShareCommand", "show a running kernel to other users, or let them run code in it"),
    "quota": (f"{_HERE}.quota.QuotaCommand", "the teams' quotas; reload reads the quota file again"),
    "queue": (f"{_HERE}.quota.QueueCommand", "the requests that wait for a GPU, and why"),
    "holders": (f"{_ADMIN}.holders.HoldersCommand", "users and idle kernels: what they hold, and what they use of it"),
    "message": (f"{_ADMIN}.owners.MessageCommand", "write to the owner of a kernel; JupyterLab shows it"),
    "end": (f"{_ADMIN}.owners.EndCommand", "end a kernel; its variables are lost"),
    "node": (f"{_HERE}.nodes.ShowNodeCommand", "whether kernels start on a node, and which are there"),
    "cordon": (f"{_HERE}.nodes.CordonCommand", "let nothing new start on a node"),
    "uncordon": (f"{_HERE}.nodes.UncordonCommand", "let kernels start on a node again"),
    "drain": (f"{_HERE}.nodes.DrainCommand", "cordon a node, and swap its kernels out"),
    "sizes": (f"{_HERE}.sizes.SizesCommand", "the sizes that kernels can have; --install writes them as kernelspecs"),
    "simulate": (f"{_HERE}.simulate.SimulateCommand", "a trace of jobs on a cluster, under several queue orders"),
    "capacity": (
        f"{_ADMIN}.capacity.CapacityCommand",
        "how many kernels a server carries, and the host memory for more",
    ),
    "install-service": (
        f"{_HERE}.install_service.InstallServiceCommand",
        "systemd units, an account and folders for this machine; --hub for a JupyterHub",
    ),
    "defragment": (
        f"{_ADMIN}.defragment.DefragmentCommand",
        "the moves of idle kernels between GPUs after which a size fits; --apply runs them",
    ),
    "doctor": (f"{_HERE}.doctor.DoctorCommand", "checks of this machine, each with a remedy"),
}


def _factory(path: str) -> Callable[[Application], Application]:
    """Import a command when it is started.

    It is no singleton: `lab` and `serve` start applications of their own.
    """

    def make(parent: Application) -> Application:
        command: type[Application] = import_item(path)
        return command(parent=parent)

    return make


class AliquotApp(Command):
    """The command `aliquot`, which starts a subcommand."""

    name = "aliquot"
    usage = "aliquot COMMAND [options]"
    description = """Elastic fractional GPU kernels for Jupyter.

    aliquot COMMAND --help describes a command; aliquot doctor checks this machine."""
    examples = """
    aliquot lab             # JupyterLab; pick "Python 3 · 0.25 GPU"
    aliquot demo            # watch three notebooks share one GPU
    aliquot status          # who holds what
    """
    subcommands: dict[str, Any] = {name: (_factory(path), text) for name, (path, text) in COMMANDS.items()}

    def refuse_unknown(self, argv: list[str]) -> None:
        """Raise UsageError for an unknown command or option."""
        if argv and argv[0] == "help":
            return
        if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
            hint = nearest(argv[0], list(COMMANDS)) or f"; the commands are {', '.join(COMMANDS)}"
            raise UsageError(f"no command {argv[0]!r}{hint}")
        if not argv or argv[0] not in COMMANDS:
            super().refuse_unknown(argv)

    def start(self) -> None:
        """Run the subcommand, or print the help. Called by main."""
        super().start()
        if self.subapp is None:
            self.print_help()


def main(argv: list[str] | None = None) -> None:
    """Run `aliquot`: the entry point.

    Ends the process with an exit code, and prints errors without a traceback.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot encode ticks and dots shows question marks instead of a traceback.
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
        # The reader of the output has ended, as in `aliquot status | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        sys.exit(_report(error, 1))


def _report(error: Exception, code: int) -> int:
    print(f"aliquot: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
