"""The commands `aliquot lab` and `aliquot serve`: Jupyter servers with Aliquot, in this process.

Their arguments belong to JupyterLab and Jupyter Server.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any

from jupyter_aliquot.gateway.base.errors import CommandError

from .base import PassThroughCommand

_ENDS_WITH_PARENT = "--end-with-parent"
_PR_SET_PDEATHSIG = 1
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4


class LabCommand(PassThroughCommand):
    """Start JupyterLab."""

    name = "aliquot lab"
    usage = "aliquot lab [options of jupyter lab] [folder or notebook]"
    description = """Start JupyterLab with Aliquot: GPU sizes in the kernel picker, and a sidebar of kernels.

    All further arguments go to JupyterLab; aliquot lab --help-all lists them. A node agent is started when
    none runs."""
    examples = """
    aliquot lab
    aliquot lab --no-browser --port 9000 notebooks/
    """

    def start(self) -> None:
        """Become JupyterLab, and return when that ends. Called by Application.start."""
        lab_application().launch_instance(argv=self.extra_args)


def lab_application() -> Any:
    """Return JupyterLab's application on the server application of Aliquot."""
    try:
        from jupyterlab.labapp import LabApp  # type: ignore[import-untyped]  # jupyterlab ships no types
    except ImportError:
        raise CommandError(
            "JupyterLab is not installed in this environment. Run pip install jupyterlab "
            "(aliquot serve needs no JupyterLab)"
        ) from None
    from jupyter_aliquot.gateway.serverapp.app import AliquotServerApp

    class AliquotLabApp(LabApp):  # type: ignore[misc]  # jupyterlab ships no types
        """JupyterLab, unchanged, on a server that starts sized kernels."""

        serverapp_class = AliquotServerApp

        @classmethod
        def get_extension_package(cls) -> str:
            """Name JupyterLab's own package as the extension to load. Called by ExtensionApp."""
            return "jupyterlab"

    return AliquotLabApp


class ServeCommand(PassThroughCommand):
    """Start the gateway."""

    name = "aliquot serve"
    usage = "aliquot serve [options of jupyter server]"
    description = """Start the gateway only: kernels, sessions, kernelspecs and /aliquot/api/v1, for the gateway mode
    of JupyterLab (jupyter lab --gateway-url=...), curl, and other clients. It serves no files and no terminals.

    All further arguments go to Jupyter Server; aliquot serve --help-all lists them. A node agent is started when none
    runs. With --hub it is a service of JupyterHub: its environment names the address to listen at, and the Hub alone
    knows the users."""
    flags = {
        **PassThroughCommand.flags,
        "hub": ({}, "Be a service of JupyterHub, with the settings of its environment (needs jupyterhub)."),
        "end-with-parent": ({}, "With --hub: end when the Hub that started it does, also where that is killed."),
    }
    examples = """
    aliquot serve --port 8890
    aliquot serve --ip 127.0.0.1 --port 0 --IdentityProvider.token=SECRET
    aliquot serve --hub     # in c.JupyterHub.services
    """

    def start(self) -> None:
        """Become the server, and return when that ends. Called by Application.start."""
        keep_rights_from_children()
        if "--hub" in self.extra_args:
            ends = [word for word in self.extra_args if word.partition("=")[0] == _ENDS_WITH_PARENT]
            if ends:
                _end_with_parent(ends[-1].partition("=")[2])
            _serve_hub([word for word in self.extra_args if word not in ("--hub", *ends)])
            return
        from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp

        GatewayServerApp.launch_instance(argv=self.extra_args)


def keep_rights_from_children() -> None:
    """Have programs that this process starts get none of its rights, such as to listen below 1024.

    Kernels could else take the gateway's port. This process keeps its own.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def _end_with_parent(parent: str) -> None:
    """Have the system send this process SIGTERM when its parent ends, also where that is killed.

    *parent* is the pid of the one that started it, which may have ended since; empty: the one that
    it has now. A process that it starts does not inherit that: kernels and their relays live on.
    """
    parent = parent or str(os.getppid())
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if str(os.getppid()) != parent:  # it ended before the system was told
        os.kill(os.getpid(), signal.SIGTERM)


def _serve_hub(arguments: list[str]) -> None:
    from jupyter_aliquot.gateway.hub_service.environment import read_hub_service

    service = read_hub_service(os.environ)
    try:
        from jupyter_aliquot.gateway.serverapp.hub_app import HubGatewayServerApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "jupyterhub":
            raise
        raise CommandError(
            "--hub needs the package jupyterhub, which is not installed here. Run pip install jupyterhub"
        ) from error
    HubGatewayServerApp.launch_instance(argv=arguments, hub=service)
