"""Private names of Jupyter and tornado that the gateway overrides or calls.

The tests check that the allowed releases have them. `tools/check-jupyter-releases` runs them with
the oldest and the newest.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest
from jupyter_client._version import version_info
from jupyter_client.ioloop import AsyncIOLoopKernelManager
from jupyter_client.manager import KernelManager
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine
from tornado.web import Application

from jupyter_aliquot.provisioner.relay.client.connection_info import _CURVE_OVER_IPC

NAMES = {
    "jupyter_client._version": "version_info",
    "jupyter_client.kernelspec:KernelSpecManager": "_find_spec_directory",
    "jupyter_client.manager:KernelManager": "_async_cleanup_resources _async_is_alive _async_kill_kernel "
    "_async_launch_kernel _async_post_start_kernel _async_pre_start_kernel _close_control_socket "
    "_async_start_kernel",
    "jupyter_client.multikernelmanager:AsyncMultiKernelManager": "_context_default",
    "jupyter_client.multikernelmanager:MultiKernelManager": "_add_kernel_when_ready _async_shutdown_all "
    "_check_kernel_id _pending_kernels",
    "jupyter_client.restarter:KernelRestarter": "_initial_startup",
    "jupyter_server._tz": "isoformat utcnow",
    "jupyter_server.base.handlers:APIHandler": "_track_activity",
    "jupyter_server.serverapp:ServerApp": "_signal_stop",
    "jupyter_server.services.kernels.connection.channels:ZMQChannelsWebsocketConnection": "_limit_rate "
    "_open_sockets _register_session",
    "jupyter_server.services.kernels.kernelmanager:MappingKernelManager": "_async_restart_kernel "
    "_async_shutdown_kernel _async_start_kernel _finish_kernel_start _handle_kernel_died",
    "jupyterhub.services.auth:HubAuth": "_api_request",
    "jupyterhub.services.auth:HubOAuth": "_get_token_cookie _get_token_url _oauth_states",
    "jupyterhub.spawner:Spawner": "_apply_user_options_dict _validate_options_from_form",
    "tornado.web:RequestHandler": "_log",
    "traitlets.config.application:Application": "_classes_with_config_traits",
    "traitlets.config.loader:LazyConfigValue": "_extend _prepend _update",
    "tornado.websocket:WebSocketProtocol": "_abort",
}


GATEWAY = Path(__file__).parents[2] / "gateway"
MANY = ("_kernel_connections", "_kernels", "_pending_kernel_tasks", "_pending_kernels")


@pytest.mark.parametrize("owner", NAMES)
def test_each_private_name_is_there(owner: str) -> None:
    module, _, name = owner.partition(":")
    found = getattr(import_module(module), name) if name else import_module(module)
    assert [one for one in NAMES[owner].split() if not hasattr(found, one)] == []


@pytest.mark.skipif(
    version_info[:2] < _CURVE_OVER_IPC, reason="clients of this jupyter_client encrypt nothing; they are not called"
)
@pytest.mark.parametrize("name", ["_transport_encryption_policy", "_kernel_supports_curve_encryption"])
def test_the_private_names_of_encrypting_clients_are_there(name: str) -> None:
    assert hasattr(KernelManager, name)


def test_each_private_attribute_of_an_instance_is_there() -> None:
    one, many = AsyncIOLoopKernelManager(), AsyncMappingKernelManager()
    assert [name for name in ("_connection_file_written", "_restarter") if not hasattr(one, name)] == []
    assert [
        name
        for name in ("_kernel_connections", "_pending_kernels", "_pending_kernel_tasks", "_kernels")
        if not hasattr(many, name)
    ] == []


def test_the_user_of_a_handler_is_the_one_that_is_put_in() -> None:
    start_line = RequestStartLine("GET", "/", "HTTP/1.1")
    headers = HTTPHeaders({"Host": "localhost"})
    request = HTTPServerRequest(start_line=start_line, headers=headers, connection=_Connection())
    handler = JupyterHandler(Application(), request)
    handler._jupyter_current_user = want_user = object()
    assert handler.current_user is want_user


class _Connection:
    """The part of a connection that a handler asks for when it is made."""

    def set_close_callback(self, callback: object) -> None:
        pass


def test_private_names_of_others_objects_stand_in_one_module() -> None:
    """Use each on objects other than `self` through its function in jupyter_private.py."""
    [module] = GATEWAY.glob("base/jupyter_private.py")
    names = {one.attr for one in private_attributes(module)} | {"_jupyter_current_user"}
    elsewhere = [
        f"{path.relative_to(GATEWAY)}:{one.lineno} {one.attr}"
        for path in sorted(GATEWAY.rglob("*.py"))
        for one in private_attributes(path)
        if path != module and one.attr in names and not is_own(one.value)
    ]
    assert (len(names) > 10, elsewhere) == (True, [])


def private_attributes(path: Path) -> list[ast.Attribute]:
    tree = ast.parse(path.read_text())
    return [one for one in ast.walk(tree) if isinstance(one, ast.Attribute) and one.attr.startswith("_")]


def is_own(value: ast.expr) -> bool:
    """Return whether it is `self`, `cls` or `super()`, whose names our class overrides or calls."""
    if isinstance(value, ast.Call):
        value = value.func
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "super")
