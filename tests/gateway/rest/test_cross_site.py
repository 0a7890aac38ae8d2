"""Another site in a logged-in browser: it has the cookie, but reads, changes and hears nothing."""

from __future__ import annotations

import itertools
import json
from http.cookies import SimpleCookie
from typing import Any

from .conftest import TOKENS, Answer, Ask
from .test_logins import cookies_of, sent

HOST = {"Host": "127.0.0.1:8888"}
OWN = {**HOST, "Origin": "http://127.0.0.1:8888"}
FOREIGN = ("https://elsewhere.example", "http://127.0.0.1:9999", "http://127.0.0.1:8888.elsewhere.example", "null")
# Requests with these types may go from a page to any site without a preflight.
SIMPLE = ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "")
CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "api/kernels", {"name": "python3"}),
    ("DELETE", "api/kernels/{k}", None),
    ("POST", "api/kernels/{k}/restart", {}),
    ("POST", "api/kernels/{k}/interrupt", {}),
    ("POST", "api/sessions", {"path": "x", "type": "notebook", "kernel": {"name": "python3"}}),
    ("DELETE", "api/sessions/{s}", None),
    ("PATCH", "api/sessions/{s}", {"name": "theirs"}),
    ("POST", "aliquot/api/v1/kernels/{k}/postpone-culling", {}),
    ("PATCH", "aliquot/api/v1/kernels/{k}", {"priority": "low"}),
    ("POST", "aliquot/api/v1/kernels/{k}/swap-out", {}),
    ("POST", "aliquot/api/v1/kernels/{k}/prefetch", {}),
    ("PUT", "aliquot/api/v1/folders/theirs", {}),
    ("POST", "aliquot/api/v1/invitations", {"path": "~/x", "kind": "user", "invited": "theirs"}),
    ("POST", "login", {}),
)


async def browser(ask: Ask, who: str) -> dict[str, str]:
    """Return the cookies of a user who logged in."""
    return cookies_of(await ask("nobody", "GET", "login", params={"token": TOKENS[who]}, headers=HOST))


async def a_session(ask: Ask) -> Any:
    body = {"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"name": "python3"}}
    return (await ask("alice", "POST", "api/sessions", body=body)).json


async def test_no_request_of_another_site_changes_anything(ask: Ask) -> None:
    session = await a_session(ask)
    cookies = await browser(ask, "alice")
    before = (await ask("ada", "GET", "api/sessions")).json
    names = {"k": session["kernel"]["id"], "s": session["id"]}
    wrong = {
        "a foreign page": [{**HOST, "Origin": origin, "Cookie": sent(cookies)} for origin in FOREIGN],
        "no token of this page": [{**OWN, "Cookie": sent({**cookies, "_xsrf": "2|00|00|1"})}],
        "another page's token": [{**OWN, "Cookie": sent(cookies), "X-XSRFToken": "2|11111111|22222222|1"}],
        "a simple request": [{**HOST, "Cookie": sent(cookies), "Content-Type": kind} for kind in SIMPLE],
    }
    let_through = []
    for method, path, body in CHANGES:
        for why, all_of_them in wrong.items():
            for headers in all_of_them:
                data = None if body is None else json.dumps(body).encode()
                answer = await ask("nobody", method, path.format(**names), body=data, headers=headers)
                if answer.status not in (400, 403, 404):  # 400: a form that is none
                    let_through.append((method, path, why, headers.get("Origin"), answer.status))
    assert let_through == []
    after = (await ask("ada", "GET", "api/sessions")).json
    assert [one["id"] for one in after] == [one["id"] for one in before]
    assert [one["name"] for one in after] == ["a"]


async def test_its_own_page_changes_things_with_its_token(ask: Ask) -> None:
    """Change things from the server's own page: the refusals above have their stated causes."""
    session = await a_session(ask)
    cookies = await browser(ask, "alice")
    page = await ask("nobody", "GET", "no/such/page", headers={"Cookie": sent(cookies), **HOST})
    token = cookies_of(page).get("_xsrf") or cookies.get("_xsrf")
    assert token
    headers = {**OWN, "Cookie": sent({**cookies, "_xsrf": token}), "X-XSRFToken": token}
    answer = await ask("nobody", "PATCH", "api/sessions", session["id"], body={"name": "mine"}, headers=headers)
    assert (answer.status, answer.json["name"]) == (200, "mine")


async def test_another_site_opens_no_websocket_with_a_cookie(ask: Ask) -> None:
    session = await a_session(ask)
    cookie = {"Cookie": sent(await browser(ask, "alice"))}
    for path in (f"api/kernels/{session['kernel']['id']}/channels", "aliquot/api/v1/events"):
        for origin in FOREIGN:
            assert (await ask("nobody", "WEBSOCKET", path, headers={**cookie, **HOST, "Origin": origin})).status == 403
        assert (await ask("nobody", "WEBSOCKET", path, headers={**cookie, **OWN})).status == 101
        assert (await ask("nobody", "WEBSOCKET", path, headers=OWN)).status == 403


async def test_another_site_reads_nothing_and_is_allowed_nothing(ask: Ask) -> None:
    cookie = {"Cookie": sent(await browser(ask, "ada"))}
    paths = ("api/kernels", "api/sessions", "aliquot/api/v1/status", "aliquot/api/v1/kernels", "api/me")
    for path, origin in itertools.product(paths, FOREIGN):
        answer: Answer = await ask("nobody", "GET", path, headers={**cookie, **HOST, "Origin": origin})
        assert answer.status == 404
        assert "Access-Control-Allow-Origin" not in answer.headers
        asked_first = await ask("nobody", "OPTIONS", path, headers={**cookie, **HOST, "Origin": origin})
        assert "Access-Control-Allow-Origin" not in asked_first.headers


async def test_the_login_cookie_is_no_scripts_and_of_this_site_alone(ask: Ask) -> None:
    answer = await ask("nobody", "GET", "login", params={"token": TOKENS["alice"]})
    jar = SimpleCookie()
    for line in answer.headers.get_list("Set-Cookie"):
        jar.load(line)
    (login,) = [morsel for name, morsel in jar.items() if name != "_xsrf"]
    assert (login["httponly"], login["samesite"]) == (True, "Lax")


async def test_a_login_leads_nowhere_else(ask: Ask, jp_base_url: str) -> None:
    elsewhere = (
        "https://elsewhere.example/",
        "//elsewhere.example/",
        "/\\elsewhere.example",
        "https:///elsewhere.example",
    )
    for target in elsewhere:
        answer = await ask("nobody", "GET", "login", params={"token": TOKENS["alice"], "next": target})
        assert answer.status == 302
        assert answer.headers["Location"].startswith(jp_base_url), target
