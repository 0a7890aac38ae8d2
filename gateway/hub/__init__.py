"""What a JupyterHub's configuration file calls: the gateway as a service, and the GPU size on the spawn page.

Runs in the Hub's process, so it imports nothing of a Jupyter server; it starts nothing itself.
"""

from __future__ import annotations

from .configure import configure
from .settings import HubConfigError, HubSettings

__all__ = ["HubConfigError", "HubSettings", "configure"]
