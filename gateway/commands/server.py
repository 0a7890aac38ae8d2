"""Jupyter's server application with our classes as defaults, so that `lab` and `serve` need no configuration file.

Whatever the user configures (files or options) still wins. Keeps no list of what an installed Aliquot switches on
but this one; a test compares it with jupyter-config/server-config/aliquot.json.
"""

from __future__ import annotations

import importlib
from typing import Any

from jupyter_server.serverapp import ServerApp
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from traitlets import default

EXTENSION = "aliquot.gateway"
SERVER_CLASSES = {
    "kernel_manager_class": "aliquot.gateway.kernel_manager.AliquotKernelManager",
    "kernel_spec_manager_class": "aliquot.gateway.sizes.SizedKernelSpecManager",
    "session_manager_class": "aliquot.gateway.sessions.OwnedSessionManager",
    "identity_provider_class": "aliquot.gateway.auth.AliquotIdentityProvider",
    "authorizer_class": "aliquot.gateway.auth.AliquotAuthorizer",
}


def _named_class(trait: str) -> Any:
    module, _, name = SERVER_CLASSES[trait].rpartition(".")
    return getattr(importlib.import_module(module), name)


class AliquotServerApp(ServerApp):
    """A Jupyter server that manages kernels, sizes, sessions and users our way."""

    @default("kernel_manager_class")
    def _default_kernel_manager_class(self) -> Any:
        return _named_class("kernel_manager_class")

    @default("kernel_spec_manager_class")
    def _default_kernel_spec_manager_class(self) -> Any:
        return _named_class("kernel_spec_manager_class")

    @default("session_manager_class")
    def _default_session_manager_class(self) -> Any:
        return _named_class("session_manager_class")

    @default("identity_provider_class")
    def _default_identity_provider_class(self) -> Any:
        return _named_class("identity_provider_class")

    @default("authorizer_class")
    def _default_authorizer_class(self) -> Any:
        return _named_class("authorizer_class")

    def find_server_extensions(self) -> None:
        """Called by ServerApp.initialize. Ours is on, as if its configuration file were installed."""
        self.jpserver_extensions = {**self.jpserver_extensions, EXTENSION: True}
        super().find_server_extensions()


class KernelFolders(AsyncLargeFileManager):
    """Tells sessions in which folder a kernel starts, and serves no file: the stock manager adds a route of its own."""

    def get_extra_handlers(self) -> list[Any]:
        """Called by ServerWebApplication."""
        return []


class GatewayServerApp(AliquotServerApp):
    """Kernels, sessions, kernelspecs and our API. No files, no terminals, no browser application."""

    name = "aliquot serve"
    description = "The Aliquot gateway."
    subcommands: dict[str, Any] = {}
    # jupyter_server fixes the tuple's length by its type, yet says that subclasses may shorten it.
    default_services = ("api", "auth", "kernels", "kernelspecs", "sessions", "security")  # type: ignore[assignment]

    @default("contents_manager_class")
    def _default_contents_manager_class(self) -> Any:
        return KernelFolders

    @default("open_browser")
    def _default_open_browser(self) -> bool:
        return False

    @default("terminals_enabled")
    def _default_terminals_enabled(self) -> bool:
        return False

    @default("default_url")
    def _default_default_url(self) -> str:
        return "/api"

    def find_server_extensions(self) -> None:
        """Called by ServerApp.initialize. Only what the command line or a ServerApp setting names, and ours."""
        self.jpserver_extensions = {**self.jpserver_extensions, EXTENSION: True}
