"""Browsers: a token in the address becomes a login cookie.

A cookie without its XSRF token changes nothing.
"""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Any

from .conftest import TOKENS, Ask


def cookies_of(answer: Any) -> dict[str, str]:
    jar = SimpleCookie()
    for line in answer.headers.get_list("Set-Cookie"):
        jar.load(line)
    return {name: morsel.coded_value for name, morsel in jar.items()}


def sent(cookies: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


async def test_a_token_in_the_address_logs_a_browser_in(ask: Ask) -> None:
    first = await ask("nobody", "GET", "api/me", params={"token": TOKENS["bob"]})
    assert first.json["identity"]["username"] == "bob"
    cookies = cookies_of(first)
    second = await ask("nobody", "GET", "api/me", headers={"Cookie": sent(cookies)})
    assert second.json["identity"]["username"] == "bob"
    assert TOKENS["bob"] not in sent(cookies)


async def test_a_cookie_alone_starts_nothing(ask: Ask) -> None:
    cookies = cookies_of(await ask("nobody", "GET", "api/me", params={"token": TOKENS["bob"]}))
    without = await ask("nobody", "POST", "api/kernels", body={"name": "python3"}, headers={"Cookie": sent(cookies)})
    assert without.status == 403
    assert "_xsrf" in without.json["message"]
    assert (await ask("ada", "GET", "api/kernels")).json == []


async def test_a_forged_cookie_is_nobody(ask: Ask) -> None:
    cookies = cookies_of(await ask("nobody", "GET", "api/me", params={"token": TOKENS["bob"]}))
    forged = {name: value.replace("2|1:0", "2|1:1") for name, value in cookies.items()}
    assert (await ask("nobody", "GET", "api/me", headers={"Cookie": sent(forged)})).status == 403


async def test_another_site_reads_nothing_with_a_cookie(ask: Ask) -> None:
    cookies = cookies_of(await ask("nobody", "GET", "api/me", params={"token": TOKENS["ada"]}))
    headers = {"Cookie": sent(cookies), "Origin": "https://elsewhere.example", "Host": "127.0.0.1"}
    assert (await ask("nobody", "GET", "aliquot/api/v1/status", headers=headers)).status == 404
