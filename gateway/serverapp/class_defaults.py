"""Replacement of Jupyter Server's classes by ours, where the configuration names no others.

Jupyter Server reads nothing but the list of extensions from jupyter_server_config.d, and links
extensions before it makes its managers: the extension replaces the classes at that moment. A class
that a user, JupyterHub or gateway mode has chosen stays.
"""

from __future__ import annotations

import os
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.auth.identity import AliquotIdentityProvider
from jupyter_aliquot.gateway.channels.connection import KernelWebsocketConnection
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.kernels.sessions import OwnedSessionManager
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.remote.channels import RemoteWebsocketConnection
from jupyter_aliquot.gateway.remote.kernels import AliquotRemoteKernelManager
from jupyter_aliquot.gateway.remote.mixed_kernels import MixedKernelManager, MixedWebsocketConnection
from jupyter_aliquot.gateway.remote.mixed_kernelspecs import MixedKernelSpecManager
from jupyter_aliquot.gateway.remote.sessions import RemoteSessionManager
from jupyter_aliquot.gateway.sharing.authorizer import AliquotAuthorizer
from jupyter_aliquot.provisioner.grants.codec import PROVISIONER_NAME

KERNEL_CLASSES: dict[str, type] = {
    "kernel_manager_class": AliquotKernelManager,
    "kernel_spec_manager_class": SizedKernelSpecManager,
    "session_manager_class": OwnedSessionManager,
    "kernel_websocket_connection_class": KernelWebsocketConnection,
}
REMOTE_CLASSES: dict[str, type] = {
    "kernel_manager_class": AliquotRemoteKernelManager,
    "session_manager_class": RemoteSessionManager,
    "kernel_websocket_connection_class": RemoteWebsocketConnection,
}
# The classes for kernels of the server's own beside the gateway's. All of them are put in place, or
# none.
MIXED_CLASSES: dict[str, type] = {
    "kernel_manager_class": MixedKernelManager,
    "kernel_spec_manager_class": MixedKernelSpecManager,
    "kernel_websocket_connection_class": MixedWebsocketConnection,
}
ACCESS_CLASSES: dict[str, type] = {
    "identity_provider_class": AliquotIdentityProvider,
    "authorizer_class": AliquotAuthorizer,
}


def replace_stock_classes(server: ServerApp, *, has_own_kernels: bool) -> None:
    """Put our classes in, except where the configuration names others.

    Called before the server makes its managers.

    *has_own_kernels*: a server in gateway mode has kernels of its own beside the gateway's.
    """
    classes = dict(ACCESS_CLASSES)
    # A server in gateway mode has its kernels elsewhere: the gateway sets their sizes.
    is_remote = GatewayClient.instance(parent=server).gateway_enabled
    classes |= REMOTE_CLASSES if is_remote else KERNEL_CLASSES
    if is_remote and has_own_kernels and all(_is_free(server, trait) for trait in MIXED_CLASSES):
        classes |= MIXED_CLASSES
    for trait, ours in classes.items():
        if _is_free(server, trait):
            setattr(server, trait, ours)
    if server.kernel_manager_class is AliquotKernelManager:
        _replace_default_provisioner(server)


def _is_free(server: ServerApp, trait: str) -> bool:
    """Return whether the configuration names no class for this trait."""
    configured: Any = server.config.get("ServerApp", {})
    return trait not in configured and not server.trait_has_value(trait)


def _replace_default_provisioner(server: ServerApp) -> None:
    """Make ours the default provisioner, for kernelspecs that name none.

    Their kernels get relays, and outlive this server, too.
    """
    factory = KernelProvisionerFactory.instance(parent=server)
    configured = "default_provisioner_name" in server.config.get("KernelProvisionerFactory", {})
    if not configured and not os.environ.get(factory.default_provisioner_name_env):
        factory.default_provisioner_name = PROVISIONER_NAME
