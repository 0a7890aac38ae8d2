"""An interrupt that a kernel does not take fails for the user that asked for it, and holds up no end."""

from __future__ import annotations

import asyncio
import signal
from typing import cast

import pytest
from jupyter_client.manager import KernelManager

from jupyter_aliquot.provisioner.errors import EngineUnavailableError
from jupyter_aliquot.provisioner.provisioner import AliquotProvisioner
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.runtime.base import Runtime


class Busy:
    """A runtime whose kernel takes no signal."""

    async def signal(self, process: KernelProcess, signal_number: int) -> None:
        raise EngineUnavailableError("it did not take it")


@pytest.mark.parametrize(
    ("number", "is_ending", "is_refused"),
    [(signal.SIGINT, False, True), (signal.SIGINT, True, False), (signal.SIGKILL, True, True)],
)
def test_a_missed_interrupt_ends_no_shutdown(number: int, is_ending: bool, is_refused: bool) -> None:
    manager = KernelManager()
    manager.shutting_down = is_ending
    provisioner = AliquotProvisioner(parent=manager, kernel_id="k")
    provisioner._kernel, provisioner._runtime = KernelProcess("k", 1, 1, 1), cast(Runtime, Busy())
    sending = provisioner.send_signal(number)
    if is_refused:
        with pytest.raises(EngineUnavailableError):
            asyncio.run(sending)
    else:
        asyncio.run(sending)
