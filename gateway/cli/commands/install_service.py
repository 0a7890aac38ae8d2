"""The command `aliquot install-service`: units, account and folders on this machine, and their removal."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import ClassVar

from traitlets import Bool, Unicode

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.doctor.deployment import check_deployment
from jupyter_aliquot.gateway.doctor.nvidia import nvidia_devices
from jupyter_aliquot.gateway.doctor.runner import all_well
from jupyter_aliquot.gateway.installation.commands import System
from jupyter_aliquot.gateway.installation.files import Installation
from jupyter_aliquot.gateway.installation.install import install, remaining_steps
from jupyter_aliquot.gateway.installation.refusals import check_machine, check_rights
from jupyter_aliquot.gateway.installation.uninstall import uninstall
from jupyter_aliquot.gpu_hook.paths import nvidia_driver

from .base import Command
from .doctor import print_findings

_START_SECONDS = 60.0
_DRIVERS = ("auto", "nvidia", "softgpu")


class InstallServiceCommand(Command):
    """Install, or with --uninstall remove. The exit code is 0 when each step was done."""

    name = "aliquot install-service"
    description = """Install Aliquot as a service of this machine, as root: the system account, systemd units of the
    node agent and the relay host, and of a gateway or, with --hub, what a JupyterHub needs. It says each step, checks
    the result as aliquot doctor --hub does, and says what remains to do. It sets up the gateway of this machine alone:
    of several GPU servers behind one Hub, each has an installation of its own.

    Run it again after an upgrade: it replaces its own files and restarts agent and relay host, which ends no kernel.
    With --uninstall all of that goes, and kernels end."""
    examples = """
    aliquot install-service --hub
    aliquot install-service --hub --dry-run
    aliquot install-service --hub --uninstall
    """
    flags = {
        **Command.flags,
        "hub": (
            {"InstallServiceCommand": {"with_hub": True}},
            "For a JupyterHub, which starts the gateway; without, the gateway has a unit of its own.",
        ),
        "dry-run": ({"InstallServiceCommand": {"is_dry": True}}, "Say the steps, and do none."),
        "uninstall": ({"InstallServiceCommand": {"removes": True}}, "Remove units, files, account and its folders."),
    }
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = (("driver", "uninstall"),)
    aliases = {
        "user": "InstallServiceCommand.user",
        "driver": "InstallServiceCommand.driver",
        "root": "InstallServiceCommand.root_dir",
    }

    with_hub = Bool(False, help="Install what a JupyterHub needs.").tag(config=True)
    is_dry = Bool(False, help="Say the steps, and do none.").tag(config=True)
    removes = Bool(False, help="Remove what was installed.").tag(config=True)
    user = Unicode("aliquot", help="The system account of agent, relay host and gateway.").tag(config=True)
    driver = Unicode("auto", help="nvidia or softgpu; auto takes nvidia where the machine has such a device.").tag(
        config=True
    )
    root_dir = Unicode("/", help="Write the files below this folder, start nothing and make no account.").tag(
        config=True
    )

    def start(self) -> None:
        """Called by Application.start."""
        wanted = self._installation()
        is_live = wanted.root == Path("/")
        system = System(functools.partial(print, flush=True), self.is_dry)
        if self.removes:
            if is_live and not self.is_dry:
                check_rights()
            uninstall(wanted, system)
            return
        warn = (lambda reason: system.say(f"would be refused: {reason}")) if self.is_dry else None
        check_machine(wanted, is_live, warn)
        install(wanted, system)
        is_well = True
        if is_live and not self.is_dry:
            print()
            findings = check_deployment(wanted.user, with_hub=wanted.with_hub, patience_seconds=_START_SECONDS)
            print_findings(findings)
            is_well = all_well(findings)
        print("\nWhat remains to do:")
        for step in remaining_steps(wanted):
            print(f"- {step}")
        self.exit(0 if is_well else 1)

    def _installation(self) -> Installation:
        if self.driver not in _DRIVERS:
            raise UsageError(f"--driver {self.driver!r} is not valid. Use one of {', '.join(_DRIVERS)}")
        driver = self.driver
        if driver == "auto":
            driver = "nvidia" if nvidia_devices() or nvidia_driver() else "softgpu"
            if driver == "softgpu" and not self.removes:
                print("This machine has no NVIDIA device: kernels get the software GPU. With a device, run this again")
        programs = Path(os.path.abspath(sys.executable)).parent
        return Installation(self.user, programs, driver, self.with_hub, Path(os.path.abspath(self.root_dir)))
