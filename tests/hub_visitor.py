"""A user with a browser's cookies and no browser.

The visitor follows redirections, logs in to the Hub, and confirms its question.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from typing import NamedTuple

_NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin", "User-Agent": "a visitor"}


class Page(NamedTuple):
    """A response, with its address after all redirections."""

    status: int
    url: str
    text: str


class Visitor:
    """One browser."""

    def __init__(self) -> None:
        self.cookies = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def go(self, url: str, form: dict[str, str] | None = None, **headers: str) -> Page:
        """Open a page, or send a form."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        told = {**_NAVIGATION, **{name.replace("_", "-"): value for name, value in headers.items()}}
        request = urllib.request.Request(url, data=data, headers=told)
        try:
            with self._opener.open(request, timeout=90) as answer:
                return Page(answer.status, answer.url, answer.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:
            return Page(error.code, error.url or url, error.read().decode(errors="replace"))

    def log_in(self, url: str, user: str, password: str) -> Page:
        """Open a page of a service of the Hub, and follow the Hub's log-in on the way."""
        page = self.go(url)
        if "/hub/login" in page.url:
            page = self.go(page.url, {"username": user, "password": password, "_xsrf": _xsrf(page)})
        if "/oauth2/authorize" in page.url:
            scopes = re.findall(r'name="scopes"[^>]*value="([^"]+)"', page.text)
            page = self.go(page.url, {"_xsrf": _xsrf(page), **({"scopes": scopes[0]} if scopes else {})})
        return page

    def cookie(self, name: str, path: str) -> str:
        """Return the cookie's value; empty if there is none."""
        return next((c.value or "" for c in self.cookies if c.name == name and c.path == path), "")


class HubUser:
    """A user who is logged in to the Hub itself, and fills in forms of its pages."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url
        self._visitor = Visitor()
        page = self._visitor.log_in(f"{url}/hub/home", user, password)
        assert page.status == 200, page

    def get(self, path: str) -> tuple[int, str]:
        page = self._visitor.go(f"{self._url}/{path}")
        return page.status, page.text

    def post(self, path: str, **fields: str) -> tuple[int, str]:
        """Post a form with the token against forged requests, which the page has in a hidden field."""
        page = self._visitor.go(f"{self._url}/{path}", {**fields, "_xsrf": self._visitor.cookie("_xsrf", "/hub/")})
        return page.status, page.text


def _xsrf(page: Page) -> str:
    found = re.search(r'name="_xsrf"\s+value="([^"]+)"', page.text) or re.search(r"_xsrf=([^\"&]+)", page.text)
    assert found is not None, page
    return urllib.parse.unquote(found[1].replace("&amp;", "&"))
