"""`aliquot serve`: the gateway without a browser application. Its arguments are Jupyter Server's own."""

from __future__ import annotations

import os

from jupyter_aliquot.gateway.base.errors import CommandError

from .base import PassThroughCommand


class ServeCommand(PassThroughCommand):
    """Starts the gateway in this process."""

    name = "aliquot serve"
    usage = "aliquot serve [options of jupyter server]"
    description = """The gateway only: kernels, sessions, kernelspecs and /aliquot/api/v1, for JupyterLab's gateway mode
    (jupyter lab --gateway-url=...), curl, and clients of its own. It serves no files, no terminals, no JupyterLab.

    All further arguments go to Jupyter Server; aliquot serve --help-all lists them. A node agent is started when none
    runs. With --hub it is a service of JupyterHub, whose environment says where to listen, and which alone says who
    asks."""
    flags = {
        **PassThroughCommand.flags,
        "hub": ({}, "Be a service of JupyterHub: its variables say the rest (needs jupyterhub)."),
    }
    examples = """
    aliquot serve --port 8890
    aliquot serve --ip 127.0.0.1 --port 0 --IdentityProvider.token=SECRET
    aliquot serve --hub     # in c.JupyterHub.services
    """

    def start(self) -> None:
        """Called by Application.start: becomes the server, and returns when that ends."""
        if "--hub" in self.extra_args:
            _serve_hub([word for word in self.extra_args if word != "--hub"])
            return
        from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp

        GatewayServerApp.launch_instance(argv=self.extra_args)


def _serve_hub(arguments: list[str]) -> None:
    from jupyter_aliquot.gateway.hub_service.environment import read_hub_service

    service = read_hub_service(os.environ)
    try:
        from jupyter_aliquot.gateway.serverapp.hub_app import HubGatewayServerApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "jupyterhub":
            raise
        raise CommandError(
            "--hub: found no jupyterhub beside this aliquot; install it with pip install jupyterhub"
        ) from error
    HubGatewayServerApp.launch_instance(argv=arguments, hub=service)
