"""Every route of a server with all of JupyterLab: a user gets kernels, and nothing else."""

from __future__ import annotations

import re

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from .conftest import Ask
from .routes import KERNELS, routes, sample

# Routes that are open to all users, or ours.
OPEN = re.compile(r"/(aliquot/.*|login|logout|static/.*|favicon.ico|custom/.*|metrics)")
# Refused, too, but jupyterlab_server's handler of licenses cannot send an error: it never answers.
NEVER_ANSWERS = re.compile(r"/lab/api/licenses/.*")


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    """Return the same settings, with JupyterLab's extensions."""
    jp_server_config.ServerApp.jpserver_extensions = {
        "jupyter_aliquot.gateway": True,
        "jupyterlab": True,
        "jupyter_lsp": True,
    }
    return jp_server_config


async def test_a_user_reaches_no_route_but_those_of_kernels(a_server: ServerApp, ask: Ask, jp_base_url: str) -> None:
    open_routes, asked = [], 0
    for pattern, handler in routes(a_server.web_app.default_router.rules):
        path = sample(pattern).removeprefix(jp_base_url.rstrip("/"))
        if any(skipped.fullmatch(path) for skipped in (KERNELS, OPEN, NEVER_ANSWERS)):
            continue
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            answer = await ask("bob", method, path, body={} if method != "GET" else None)
            asked += 1
            if answer.status not in (403, 404, 405):
                open_routes.append((method, path, handler.__name__, answer.status))
    assert asked > 200
    assert open_routes == []
