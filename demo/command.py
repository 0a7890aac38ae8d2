"""The command `aliquot demo`: runs the demo in a stack of its own.

The exit code is 0 only if every claim held.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from traitlets import Unicode, validate

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.cli.commands.base import Command
from jupyter_aliquot.provisioner.resources import Bytes

if TYPE_CHECKING:
    from rich.console import Console

    from .runner import Result

_NEEDED = {"nbclient": "nbclient", "cuda.bindings": "cuda-bindings", "cuda.core": "cuda-core", "ipykernel": "ipykernel"}
_SMALLEST_BYTES = 64 << 20
NOTEBOOK = "quickstart.ipynb"


def busy_words(load: float, processors: int) -> str:
    """Return what to add to a failure: the software GPU's launches wait for processors that other work has."""
    if load <= 2 * processors:
        return ""
    return f". This machine is busy (load {load:.0f} on {processors} processors): run the demo again when it is at rest"


class DemoCommand(Command):
    """Run the demo: three kernels, one GPU."""

    name = "aliquot demo"
    description = """Run three notebooks of different sizes on one GPU: NVIDIA's if there is one, else the software GPU.

    One notebook requests more than its share and gets CUDA's out-of-memory error. One is killed with SIGKILL in the
    middle of a cell, and its memory is free at once; the others are not affected. Then a low-priority notebook fills
    the pauses of a normal-priority one, which is not slowed. Then two notebooks have the whole GPU each, hold more than
    it has together, and take turns. The demo checks each of these claims. It runs an agent and a gateway of its own,
    touches no other, and removes them at the end."""
    examples = """
    aliquot demo
    aliquot demo --driver softgpu
    """
    aliases = {
        "driver": "DemoCommand.driver",
        "softgpu-memory": "DemoCommand.softgpu_memory",
        "notebook": "DemoCommand.notebook",
    }

    driver = Unicode("auto", help="nvidia, softgpu, or auto: nvidia where there is one (the default).").tag(config=True)
    softgpu_memory = Unicode("1GiB", help="Memory of the software GPU (default 1GiB).").tag(config=True)
    notebook = Unicode("", help="The notebook to run, with the quickstart's cell ids (default: the quickstart).").tag(
        config=True
    )

    def start(self) -> None:
        """Called by Application.start."""
        for module, distribution in _NEEDED.items():
            if not _is_installed(module):
                raise CommandError(f"The demo needs {distribution}. Run pip install {distribution}")
        notebook = Path(self.notebook) if self.notebook else find_notebook()
        if not notebook.is_file():
            raise CommandError(f"Requested the notebook {notebook}, which does not exist. Name an existing file")
        from jupyter_aliquot.gateway.terminal.tables import console

        from .view import print_result

        screen = console()
        result = asyncio.run(self._run(notebook, screen))
        print_result(screen, result)
        failed = [claim for claim in result.claims if not claim.holds]
        if failed:
            busy = busy_words(os.getloadavg()[0], os.cpu_count() or 1)
            raise CommandError(f"{len(failed)} of {len(result.claims)} claims do not hold: {failed[0].text}{busy}")
        screen.print(f"all {len(result.claims)} claims hold, in {result.seconds:.0f} s")

    async def _run(self, notebook: Path, screen: Console) -> Result:
        from jupyter_aliquot.gateway.serverapp.ephemeral_stack import EphemeralStack, StackSettings

        from .oversubscription import AGENT_OPTIONS
        from .runner import hold_demo, provide_kernelspecs
        from .view import DemoView

        with DemoView(screen) as view:
            _cancel_on_signals(view.say)
            stack = EphemeralStack(StackSettings(self.driver, self.softgpu_memory, AGENT_OPTIONS))
            # The kernels are started from this process: it must find this stack and no other.
            os.environ.update(stack.environment)
            view.say("starting a node agent and a gateway")
            try:
                async with stack:
                    provide_kernelspecs(stack)
                    view.say(f"the gateway listens at {stack.gateway_address()}; starting three kernels")
                    more = None if self.notebook else find_notebook().parent
                    return await hold_demo(stack, notebook, more, view.report, view.say)
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None

    @validate("driver")
    def _driver_is_known(self, proposal: dict[str, str]) -> str:
        if proposal["value"] not in ("auto", "nvidia", "softgpu"):
            raise UsageError(
                f"Requested --driver {proposal['value']!r}, which is no driver. Use auto, nvidia or softgpu"
            )
        return proposal["value"]

    @validate("softgpu_memory")
    def _memory_is_an_amount(self, proposal: dict[str, str]) -> str:
        try:
            if Bytes.parse(proposal["value"]) >= _SMALLEST_BYTES:
                return proposal["value"]
        except ValueError as error:
            raise UsageError(f"--softgpu-memory {error}") from None
        problem = f"which is too small. Use {Bytes(_SMALLEST_BYTES)} or more"
        raise UsageError(f"Requested --softgpu-memory {proposal['value']!r}, {problem}")


def find_notebook() -> Path:
    """Return the quickstart of this checkout, else the installed one."""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        return checkout / "examples" / NOTEBOOK
    return Path(sys.prefix) / "share" / "aliquot" / "examples" / NOTEBOOK


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _cancel_on_signals(say: Callable[[str], None]) -> None:
    """End the demo in order at the first SIGINT or SIGTERM; ignore further ones while it cleans up."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    pending = [task]

    def cancel() -> None:
        if pending:
            say("interrupted: ending what was started")
            pending.pop().cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, cancel)
