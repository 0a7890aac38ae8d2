"""The gateway in a JupyterHub's configuration: as a service, and as the GPU size on the spawn page.

This package runs in the Hub's process, so it imports no Jupyter server. It starts nothing itself.
"""

from __future__ import annotations

from .configure import configure, configure_part
from .settings import HubConfigError, HubSettings

__all__ = ["HubConfigError", "HubSettings", "configure", "configure_part"]
