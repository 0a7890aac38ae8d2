"""Hostile names, paths and guesses.

Names are text everywhere, a path stays in its folder, and guesses find nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from .conftest import TOKENS, USERS, Answer, Ask, write_light_spec
from .test_ownership import NOTHING

MARKUP = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>"
IN_PATH = MARKUP.replace("/", "|")
UP = ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "....//", "%252e%252e%252f", "..%c0%af", "/")
REPEATING: tuple[tuple[str, str, Any], ...] = (
    ("GET", "api/kernels/{x}", None),
    ("GET", "api/sessions/{x}", None),
    ("GET", "api/kernelspecs/{x}", None),
    ("GET", "aliquot/api/v1/kernels/{x}", None),
    ("POST", "api/kernels", {"name": "{x}"}),
    ("POST", "api/kernels", {"name": "python3.gpu-{x}"}),
    ("POST", "api/kernels", {"kernel_id": "{x}"}),
    ("PUT", "aliquot/api/v1/folders/{x}", {}),
    ("PATCH", "aliquot/api/v1/kernels/{n}", {"gpus": "{x}"}),
)
PATHS = ("../../../../etc", "/etc/x.ipynb", "a/../../../../../etc/x.ipynb", "x\0y", "~root/x")
# The user's own name and names that look like it: Cyrillic, full width, another case, accents.
TWINS = ("alice", "\u0430lice", "\uff41\uff4c\uff49\uff43\uff45", "Alice", "alic\u00e9", "alice\u0301")


@pytest.fixture
def jp_server_config(jp_server_config: Config, jp_data_dir: Path) -> Config:
    """Add a kernel that starts at once, and an image with a hostile description."""
    write_light_spec(jp_data_dir / "kernels")
    image = {"name": "hostile", "display_name": MARKUP, "description": MARKUP, "image": "registry.example/x:1"}
    jp_server_config.ImageCatalogue.images = [image]
    return jp_server_config


def folder_of(pid: int) -> str:
    return os.path.realpath(f"/proc/{pid}/cwd")


async def raw(port: int, path: str, who: str) -> tuple[int, bytes]:
    """Return the status and the whole answer to a path that no client of ours has rewritten."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    token = f"Authorization: token {TOKENS[who]}\r\n" if TOKENS[who] else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}Connection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer


def as_text(answer: Answer) -> bool:
    """Return whether no browser takes the answer for a page.

    It has its media type, which browsers must believe, and may load nothing.
    """
    policy = answer.headers.get("Content-Security-Policy", "")
    is_json = answer.media_type == "application/json" and json.loads(answer.body or b"null") is not Ellipsis
    return is_json and answer.headers.get("X-Content-Type-Options") == "nosniff" and "default-src 'none'" in policy


async def test_markup_in_names_is_text_in_every_answer(ask: Ask) -> None:
    body = {"path": f"{MARKUP}.ipynb", "name": MARKUP, "type": MARKUP, "kernel": {"name": "light"}}
    session = await ask("alice", "POST", "api/sessions", body=body)
    assert (session.status, session.json["name"]) == (201, MARKUP), "it is a name like any other"
    for who in ("alice", "ada"):
        for path in ("api/sessions", "api/kernels", "api/kernelspecs", "aliquot/api/v1/status", "aliquot/api/v1/sizes"):
            answer = await ask(who, "GET", path)
            assert (answer.status, as_text(answer)) == (200, True), path


async def test_markup_in_the_name_of_a_share_is_text(ask: Ask) -> None:
    kernel = (await ask("alice", "POST", "api/kernels", body={"name": "light"})).json["id"]
    shares = f"aliquot/api/v1/kernels/{kernel}/shares"
    named = [IN_PATH, "bob\r\nSet-Cookie: a=b", "bob\0", "b\u200bob"]
    for name in named:
        answer = await ask("alice", "PUT", f"{shares}/users/{name}", body={"access": "read"})
        assert answer.status in (200, 400, 404), (name, answer)
        assert as_text(answer) or answer.status == 404, name
        assert "Set-Cookie: a=b" not in str(answer.headers)
    told = await ask("alice", "GET", shares)
    assert as_text(told)
    assert {share["name"] for share in told.json["shares"]} <= {named[0]}, "names that can be printed"
    assert (await ask("bob", "GET", "api/kernels", kernel)).status == 404


async def test_an_error_that_repeats_markup_is_no_page_of_it(ask: Ask) -> None:
    for method, path, body in REPEATING:
        filled = None if body is None else {name: value.format(x=MARKUP) for name, value in body.items()}
        answer = await ask("ada", method, path.format(x=IN_PATH, n=NOTHING), body=filled)
        assert 400 <= answer.status < 500, (path, answer)
        assert as_text(answer) or b"<img src=x" not in answer.body, path


async def test_a_page_of_an_error_shows_markup_as_text(ask: Ask, jp_http_port: int, jp_base_url: str) -> None:
    await ask("nobody", "GET", "api")
    for path in ("no/{x}", "kernelspecs/{x}/logo.png", "kernelspecs/python3/{x}", "login?next={x}"):
        for who in ("nobody", "alice"):
            _, answer = await raw(jp_http_port, jp_base_url + path.format(x=quote(MARKUP, safe="")), who)
            assert b"<img src=x" not in answer, path
            assert b"<script>alert" not in answer, path


async def test_every_answer_says_its_type_and_frames_nowhere_else(ask: Ask) -> None:
    paths = ("api", "api/kernels", "api/kernels/none", "aliquot/api/v1/status", "aliquot/api/none", "login", "no/page")
    for path in (*paths, "kernelspecs/python3/logo-64x64.png", "static/favicon.ico", "api/spec.yaml", "metrics"):
        for who in ("nobody", "alice", "ada"):
            headers = (await ask(who, "GET", path)).headers
            assert headers["X-Content-Type-Options"] == "nosniff", path
            assert "frame-ancestors 'self'" in headers["Content-Security-Policy"], path
            assert "Content-Type" in headers, path


async def test_no_path_leads_out_of_its_folder(ask: Ask, jp_http_port: int, jp_base_url: str) -> None:
    await ask("nobody", "GET", "api")
    places = ("kernelspecs/python3/{}", "kernelspecs/{}", "static/{}", "custom/{}", "aliquot/api/v1/{}", "api/{}")
    asked = [place.format("".join([up] * 12) + "etc/passwd") for up in UP for place in places]
    for path in asked:
        for who in ("nobody", "alice"):
            status, answer = await raw(jp_http_port, jp_base_url + path, who)
            assert status in (301, 302, 400, 403, 404), (path, status)
            assert b"root:" not in answer, path


async def test_a_sessions_path_opens_no_folder(ask: Ask, a_server: ServerApp) -> None:
    for path in PATHS:
        body = {"path": path, "name": "x.ipynb", "type": "notebook", "kernel": {"name": "light"}}
        answer = await ask("alice", "POST", "api/sessions", body=body)
        if answer.status == 201:
            provisioner = a_server.kernel_manager.get_kernel(answer.json["kernel"]["id"]).provisioner
            assert folder_of(provisioner.pid) == a_server.root_dir, path
        else:
            assert 400 <= answer.status < 500, (path, answer)


async def test_guessed_ids_tell_nothing_whatever_they_look_like(ask: Ask) -> None:
    kernel = (await ask("alice", "POST", "api/kernels", body={"name": "light"})).json["id"]
    near = [kernel[:-1], kernel.upper(), f"{kernel}%00", f"{kernel}/", f"{kernel}%20", f"../kernels/{kernel}", "*", "%"]
    for guess in (kernel, *near, NOTHING):
        for path in (f"api/kernels/{guess}", f"aliquot/api/v1/kernels/{guess}"):
            answer = await ask("bob", "GET", path)
            assert answer.status in (302, 404), path
            assert b"alice" not in answer.body
            assert b"light" not in answer.body
    ids = {(await ask("alice", "POST", "api/kernels", body={"name": "light"})).json["id"] for _ in range(3)}
    assert len({one[:8] for one in ids}) == 3, "drawn by chance"
    assert all(len(one) == 36 for one in ids)


class TestTwins:
    @pytest.fixture
    def users(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
        for number, name in enumerate(TWINS):
            monkeypatch.setitem(TOKENS, name, f"a token of twin {number}")
        return {**USERS, **{name: {"token": TOKENS[name]} for name in TWINS}}

    async def test_names_that_look_alike_are_different_people(self, ask: Ask) -> None:
        kernels = {name: (await ask(name, "POST", "api/kernels", body={"name": "light"})).json["id"] for name in TWINS}
        for name in TWINS:
            assert [one["id"] for one in (await ask(name, "GET", "api/kernels")).json] == [kernels[name]]
            others = {
                (await ask(name, "GET", "api/kernels", kernels[other])).status for other in TWINS if other != name
            }
            assert others == {404}


async def test_a_percent_sign_in_a_name_comes_back_once(ask: Ask) -> None:
    for name in ("python3.gpu-0.25%2f", "100%", "%s%d", "a%%b"):
        answer = await ask("alice", "POST", "api/kernels", body={"name": name})
        assert answer.status in (400, 404), name
        assert repr(name) in answer.json["message"] or f"{name!s}" in answer.json["message"], name
        assert name.replace("%", "%%") not in answer.json["message"], name


PATHS_OF_NOTHING = ("aliquot/api/v1/kernels/nothing", "api/kernels/nothing", "api/kernels/nothing/channels")
# A token's name as browsers and proxies write it.
NAMES_OF_TOKENS = (
    *("x=1&token=", "x=1&%74oken=", "x=1&T%4fk%65n="),
    *("next=%2Flab%3Ftoken%3D", "next=%252Flab%253Fto%256Ben%253D"),
)


@pytest.mark.usefixtures("ask")
async def test_no_line_of_the_log_shows_a_token(
    jp_serverapp: ServerApp, jp_http_port: int, jp_base_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    loggers = [
        jp_serverapp.log,
        *(logging.getLogger(f"tornado.{name}") for name in ("access", "application", "general")),
    ]
    for logger in loggers:
        logger.addHandler(caplog.handler)
    try:
        for path, name in itertools.product(PATHS_OF_NOTHING, NAMES_OF_TOKENS):
            caplog.clear()
            status, _ = await raw(jp_http_port, f"{jp_base_url}{path}?{name}{TOKENS['alice']}", "nobody")
            assert status in (400, 403, 404), (path, name)
            assert f"{path}?{name}[secret]" in caplog.text, "the line is there"
            assert TOKENS["alice"] not in caplog.text, (path, name)
    finally:
        for logger in loggers:
            logger.removeHandler(caplog.handler)
