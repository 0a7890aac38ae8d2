"""A browser without a screen: cookies, the login form and the forms of the Hub's pages."""

from __future__ import annotations

import http.cookiejar
import urllib.error
import urllib.parse
import urllib.request


class Visitor:
    """Logs in at once."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url
        self._cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._cookies))
        self.get("hub/login")
        status, page = self.post("hub/login", username=user, password=password)
        assert status == 200, page

    def get(self, path: str) -> tuple[int, str]:
        return self._ask(urllib.request.Request(f"{self._url}/{path}"))

    def post(self, path: str, **fields: str) -> tuple[int, str]:
        """A form with the token against forged requests, which the page has in a hidden field."""
        told = {cookie.name: cookie.value or "" for cookie in self._cookies if cookie.path == "/hub/"}
        form = urllib.parse.urlencode({**fields, "_xsrf": told["_xsrf"]}).encode()
        return self._ask(urllib.request.Request(f"{self._url}/{path}", data=form, method="POST"))

    def _ask(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with self._opener.open(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
