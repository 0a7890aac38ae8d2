"""`aliquot lab`: JupyterLab with Aliquot. Its arguments are JupyterLab's own."""

from __future__ import annotations

from typing import Any

from jupyter_aliquot.gateway.base.errors import CommandError

from .base import PassThroughCommand


class LabCommand(PassThroughCommand):
    """Starts JupyterLab in this process."""

    name = "aliquot lab"
    usage = "aliquot lab [options of jupyter lab] [folder or notebook]"
    description = """JupyterLab with Aliquot: GPU sizes in the kernel picker, and a sidebar of who holds what.

    All further arguments go to JupyterLab; aliquot lab --help-all lists them. A node agent is started when
    none runs."""
    examples = """
    aliquot lab
    aliquot lab --no-browser --port 9000 notebooks/
    """

    def start(self) -> None:
        """Called by Application.start: becomes JupyterLab, and returns when that ends."""
        lab_application().launch_instance(argv=self.extra_args)


def lab_application() -> Any:
    """JupyterLab's application, running on our server application."""
    try:
        from jupyterlab.labapp import LabApp  # type: ignore[import-untyped]  # jupyterlab ships no types
    except ImportError:
        raise CommandError(
            "JupyterLab is not installed in this environment: pip install jupyterlab "
            "(aliquot serve needs no JupyterLab)"
        ) from None
    from jupyter_aliquot.gateway.serverapp.app import AliquotServerApp

    class AliquotLabApp(LabApp):  # type: ignore[misc]  # jupyterlab ships no types
        """JupyterLab, unchanged, on a server that starts sized kernels."""

        serverapp_class = AliquotServerApp

        @classmethod
        def get_extension_package(cls) -> str:
            """Called by ExtensionApp. The extension that is loaded is JupyterLab's own package."""
            return "jupyterlab"

    return AliquotLabApp
