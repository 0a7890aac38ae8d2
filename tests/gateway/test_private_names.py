"""Private names of Jupyter and tornado that the gateway overrides or calls are there in the versions that it allows."""

from __future__ import annotations

from importlib import import_module

import pytest
from jupyter_client.ioloop import AsyncIOLoopKernelManager
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import Application

NAMES = {
    "jupyter_client._version": "version_info",
    "jupyter_client.kernelspec:KernelSpecManager": "_find_spec_directory",
    "jupyter_client.manager:KernelManager": "_async_cleanup_resources _async_is_alive _async_post_start_kernel "
    "_async_start_kernel _transport_encryption_policy _kernel_supports_curve_encryption",
    "jupyter_client.multikernelmanager:AsyncMultiKernelManager": "_context_default",
    "jupyter_client.multikernelmanager:MultiKernelManager": "_add_kernel_when_ready _async_shutdown_all",
    "jupyter_client.restarter:KernelRestarter": "_initial_startup",
    "jupyter_server._tz": "isoformat utcnow",
    "jupyter_server.base.handlers:APIHandler": "_track_activity",
    "jupyter_server.serverapp:ServerApp": "_signal_stop",
    "jupyter_server.services.kernels.connection.channels:ZMQChannelsWebsocketConnection": "_limit_rate "
    "_open_sockets _register_session",
    "jupyter_server.services.kernels.kernelmanager:MappingKernelManager": "_async_restart_kernel "
    "_async_shutdown_kernel _async_start_kernel _finish_kernel_start _handle_kernel_died",
    "jupyterhub.services.auth:HubAuth": "_api_request",
    "jupyterhub.services.auth:HubOAuth": "_get_token_cookie _get_token_url",
    "tornado.httpserver:HTTPServer": "start_request",
    "tornado.web:RequestHandler": "_log",
    "tornado.websocket:WebSocketProtocol": "_abort",
}


@pytest.mark.parametrize("owner", NAMES)
def test_each_private_name_is_there(owner: str) -> None:
    module, _, name = owner.partition(":")
    found = getattr(import_module(module), name) if name else import_module(module)
    assert [one for one in NAMES[owner].split() if not hasattr(found, one)] == []


def test_each_private_attribute_of_an_instance_is_there() -> None:
    one, many = AsyncIOLoopKernelManager(), AsyncMappingKernelManager()
    assert [name for name in ("_connection_file_written", "_restarter") if not hasattr(one, name)] == []
    assert [name for name in ("_kernel_connections", "_pending_kernels") if not hasattr(many, name)] == []


def test_the_server_hands_requests_to_the_delegate_that_is_put_in() -> None:
    application = Application()
    server = HTTPServer(application)
    assert server.request_callback is application


def test_the_user_of_a_handler_is_the_one_that_is_put_in() -> None:
    request = HTTPServerRequest("GET", "/", headers=HTTPHeaders(), connection=_Connection())
    handler = JupyterHandler(Application(), request)
    handler._jupyter_current_user = want_user = object()
    assert handler.current_user is want_user


class _Connection:
    """The part of a connection that a handler asks for when it is made."""

    def set_close_callback(self, callback: object) -> None:
        pass
