"""`aliquot serve`: the gateway without a browser application. Its arguments are Jupyter Server's own."""

from __future__ import annotations

from aliquot.gateway.commands.command import PassThroughCommand


class ServeCommand(PassThroughCommand):
    """Starts the gateway in this process."""

    name = "aliquot serve"
    usage = "aliquot serve [options of jupyter server]"
    description = """The gateway only: kernels, sessions, kernelspecs and /aliquot/api, for JupyterLab's gateway mode
    (jupyter lab --gateway-url=...), curl, and clients of its own. It serves no files, no terminals, no JupyterLab.

    All further arguments go to Jupyter Server; aliquot serve --help-all lists them. A node agent is started when none
    runs."""
    examples = """
    aliquot serve --port 8890
    aliquot serve --ip 127.0.0.1 --port 0 --IdentityProvider.token=SECRET
    """

    def start(self) -> None:
        """Called by Application.start: becomes the server, and returns when that ends."""
        from aliquot.gateway.commands.server import GatewayServerApp

        GatewayServerApp.launch_instance(argv=self.extra_args)
