"""Every route of a server with all that a JupyterLab installation brings: a user gets kernels, and nothing else."""

from __future__ import annotations

import re

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.routing import PathMatches, Rule
from traitlets.config import Config

from .conftest import Ask

NOTHING = "00000000-0000-0000-0000-000000000000"
# Held to their own table in test_access_table.py.
KERNELS = re.compile(r"/(api/?|api/(status|me|spec.yaml|security/.*|(kernels|sessions|kernelspecs).*)|kernelspecs/.*)")
# Open to everybody, or ours.
OPEN = re.compile(r"/(aliquot/.*|login|logout|static/.*|favicon.ico|custom/.*|metrics)")
# Refused, too, but jupyterlab_server's handler of licences cannot send an error: its answer never comes.
NEVER_ANSWERS = re.compile(r"/lab/api/licenses/.*")


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    """The same, with JupyterLab's extensions."""
    jp_server_config.ServerApp.jpserver_extensions = {"aliquot.gateway": True, "jupyterlab": True, "jupyter_lsp": True}
    return jp_server_config


def sample(pattern: str) -> str:
    """Some path that this route matches."""
    for name, value in {"kernel_id": NOTHING, "session_id": NOTHING, "action": "restart"}.items():
        pattern = re.sub(rf"\(\?P<{name}>[^()]*\)", value, pattern)
    while "(" in pattern:
        pattern = re.sub(r"\((?:\?P<\w+>|\?:)?[^()]*\)[?*+]?", "x", pattern)
    return re.sub(r"\\(.)|[$?^]|\.\*|[+*]", lambda match: match.group(1) or "", pattern)


def routes(rules: list[Rule]) -> list[tuple[str, type]]:
    found = []
    for rule in rules:
        if isinstance(rule.matcher, PathMatches):
            found.append((rule.matcher.regex.pattern, rule.target))
        elif hasattr(rule.target, "rules"):
            found += routes(rule.target.rules)
    return found


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
