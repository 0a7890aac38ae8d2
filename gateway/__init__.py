"""The gateway: a Jupyter Server extension that gives kernels fractions of GPUs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

__version__ = version("jupyter-aliquot")


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Called by Jupyter Server to find the extension.

    It is imported here, for the command line needs no server.
    """
    from .extension import AliquotExtension

    return [{"module": "jupyter_aliquot.gateway.extension", "app": AliquotExtension}]
