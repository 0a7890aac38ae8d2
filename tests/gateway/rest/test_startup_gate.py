"""Requests that come before the gateway has recovered the kernels of its last run.

They wait for the recovery, and see no gap.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server import CallContext
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError
from traitlets.config import Config

from jupyter_aliquot.gateway.base.startup_gate import recovered_event, until_recovered

from .test_extension import HubIdentityProvider, as_me, users

__all__ = ["as_me", "users"]
KERNEL = "3d5b8a4e-0000-0000-0000-000000000000"


async def settle() -> None:
    """Let all tasks run until each waits for something."""
    for _ in range(200):
        await asyncio.sleep(0)


def recovered_of(server: ServerApp) -> asyncio.Event:
    [extension] = server.extension_manager.extension_apps["jupyter_aliquot.gateway"]
    found: asyncio.Event = extension._recovered
    return found


REQUESTS = (
    ("GET", "api/sessions", 200),
    ("GET", "api/kernels", 200),
    ("GET", f"api/kernels/{KERNEL}", 404),
    ("DELETE", f"api/sessions/{KERNEL}", 404),
    ("GET", "aliquot/api/v1/status", 200),
    ("WEBSOCKET", f"api/kernels/{KERNEL}/channels", 404),
    ("WEBSOCKET", "aliquot/api/v1/events", 101),
)


@pytest.mark.parametrize("provider", ["ours", "another"])
class TestRequestsBeforeRecovery:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config, provider: str) -> Config:
        if provider == "another":
            jp_server_config.ServerApp.identity_provider_class = HubIdentityProvider
        return jp_server_config

    async def test_each_waits_and_is_then_answered(self, as_me: Any, a_server: ServerApp) -> None:
        await as_me("GET", "api")
        for method, path, want in REQUESTS:
            assert await waited(as_me, a_server, method, path) == want, (method, path)


async def test_while_the_server_stops_no_page_is_told_that_its_kernels_are_gone(
    as_me: Any, a_server: ServerApp
) -> None:
    """A browser's open connection is served to the end of the process."""
    await as_me("GET", "api")
    [extension] = a_server.extension_manager.extension_apps["jupyter_aliquot.gateway"]
    await extension.stop_extension()
    late = [asyncio.ensure_future(as_me("GET", path)) for path in ("api/kernels", "api/sessions")]
    await settle()
    assert not any(one.done() for one in late)
    for one in late:
        one.cancel()


async def waited(as_me: Any, server: ServerApp, method: str, path: str) -> int:
    """Request before the recovery is over; return the status of the answer after it."""
    recovered_of(server).clear()
    early = asyncio.ensure_future(as_me(method, path))
    await settle()
    assert not early.done(), (method, path)
    recovered_of(server).set()
    return int((await asyncio.wait_for(early, 60)).status)


async def test_other_paths_wait_at_the_identity_provider(as_me: Any, a_server: ServerApp) -> None:
    await as_me("GET", "api")
    for path in ("api", "api/contents", "api/status", "login"):
        assert await waited(as_me, a_server, "GET", path) in (200, 302), path


async def test_a_client_that_leaves_while_it_waits_disturbs_no_other(
    as_me: Any, a_server: ServerApp, jp_base_url: str, jp_auth_header: dict[str, str]
) -> None:
    await as_me("GET", "api")
    recovered_of(a_server).clear()
    _, writer = await asyncio.open_connection("127.0.0.1", a_server.port)
    where, token = url_path_join(jp_base_url, "api/sessions"), jp_auth_header["Authorization"]
    writer.write(f"GET {where} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n".encode())
    await writer.drain()
    await settle()
    writer.close()
    early = asyncio.ensure_future(as_me("POST", "api/sessions", body=b"x" * 100_000))
    await settle()
    assert not early.done()
    recovered_of(a_server).set()
    assert (await asyncio.wait_for(early, 60)).status == 400, "its body was read"


class Loop:
    """The part of a Jupyter server that the event needs."""

    started = 0

    def start_ioloop(self) -> None:
        self.started += 1


def test_requests_wait_from_the_start_of_the_servers_own_loop() -> None:
    server: Any = Loop()
    recovered = recovered_event(server)
    assert recovered.is_set(), "a server in another program's loop may never call the hook that recovers"
    server.start_ioloop()
    assert (server.started, recovered.is_set()) == (1, False)


def test_outside_of_requests_nothing_waits() -> None:
    asyncio.run(asyncio.wait_for(until_recovered(None), 5))


async def test_sessions_are_looked_up_after_recovery_whatever_handler_asks(as_me: Any, a_server: ServerApp) -> None:
    await as_me("GET", "api")
    recovered_of(a_server).clear()
    handler = SimpleNamespace(settings=a_server.web_app.settings, _jupyter_current_user=None)
    CallContext.set(CallContext.JUPYTER_HANDLER, handler)
    manager = a_server.session_manager
    lookups = [manager.list_sessions(), manager.session_exists("a.ipynb"), manager.get_session(path="a.ipynb")]
    early = [asyncio.ensure_future(lookup) for lookup in lookups]
    await settle()
    assert not any(one.done() for one in early)
    recovered_of(a_server).set()
    listed, exists, found = await asyncio.gather(*early, return_exceptions=True)
    assert (listed, exists, isinstance(found, HTTPError)) == ([], False, True)
