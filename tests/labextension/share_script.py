"""The server's answers about shares, inside the browser: kept in a list, as the server does."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

_SHARES_URL = re.compile(r"/aliquot/api/v1/kernels/([^/?]+)/shares(?:/(user|team)s/([^/?]+))?(\?|$)")


class ShareScript:
    """Answers the paths of shares; tests read ``asked`` and ``shares``, and set ``refusal``."""

    def __init__(self, page: Page) -> None:
        self.shares: list[dict[str, str]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.refusal: tuple[int, str] | None = None
        page.route(_SHARES_URL, self._answer)

    def _answer(self, route: Route) -> None:
        found = _SHARES_URL.search(route.request.url)
        assert found is not None
        method = route.request.method
        if method == "GET":
            route.fulfill(json={"shares": self.shares})
            return
        body = route.request.post_data_json if method == "PUT" else None
        self.asked.append((method, f"{found[2]} {found[3]}", body))
        if self.refusal is not None:
            code, message = self.refusal
            route.fulfill(status=code, content_type="application/json", body=json.dumps({"message": message}))
            return
        who = {"kind": found[2], "name": found[3]}
        self.shares = [share for share in self.shares if (share["kind"], share["name"]) != tuple(who.values())]
        if body is not None:
            self.shares.append({**who, "access": body["access"]})
        route.fulfill(status=204) if method == "DELETE" else route.fulfill(json={"shares": self.shares})
