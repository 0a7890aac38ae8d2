"""Tries what start.py promises, as users would: log in, start a server with a size, stop it, look for the kernel.

It prints one line for each claim; the first that does not hold ends it.
"""

from __future__ import annotations

import http.cookiejar
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

SECONDS = 180.0


class Person:
    """A user who logged in, and asks with a token of their own."""

    def __init__(self, url: str, name: str, password: str) -> None:
        self._url, self.name = url, name
        cookies = http.cookiejar.CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
        opener.open(f"{url}/hub/login", timeout=SECONDS).close()
        form = {"username": name, "password": password, "_xsrf": _forgery_token(cookies)}
        opener.open(f"{url}/hub/login", data=urllib.parse.urlencode(form).encode(), timeout=SECONDS).close()
        headers = {"X-XSRFToken": _forgery_token(cookies), "Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/hub/api/users/{name}/tokens", b"{}", headers, method="POST")
        with opener.open(request, timeout=SECONDS) as answer:
            self._token = json.load(answer)["token"]

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def refusal(self, path: str, body: Any) -> str:
        try:
            self.ask(path, "POST", body)
        except urllib.error.HTTPError as error:
            return error.read().decode()
        raise SystemExit(f"hub: not refused: {path} {body}")

    def start(self, **options: Any) -> None:
        self.ask(f"hub/api/users/{self.name}/server", "POST", options or None)
        self._until(lambda servers: servers.get("", {}).get("ready"))

    def stop(self) -> None:
        self.ask(f"hub/api/users/{self.name}/server", "DELETE")
        self._until(lambda servers: not servers.get(""))

    def _until(self, claim: Any) -> None:
        deadline = time.monotonic() + SECONDS
        while not claim(self.ask(f"hub/api/users/{self.name}")["servers"]):
            if time.monotonic() > deadline:
                raise SystemExit(f"hub: waited {SECONDS:.0f} s for the server of {self.name}")
            time.sleep(0.2)


def check(url: str, password: str) -> int:
    """0 when all holds."""
    alice, bob = Person(url, "alice", password), Person(url, "bob", password)
    said = bob.refusal("hub/api/users/bob/server", {"gpu": "1"})
    tell("bob asks for 1 GPU and is told what he may have", "bob may have 0.5" in said, said)
    alice.start(gpu="0.5")
    made = alice.ask("user/alice/api/kernels", "POST", {"name": "python3"})
    tell("a kernel of alice's server has the size of the spawn page", made["name"] == "python3.gpu-0.5", made)
    said = alice.refusal("user/alice/api/kernels", {"name": "python3"})
    tell("a second one is more than her team may have", "vision" in said, said)
    tell("bob does not see it", bob.ask("services/aliquot/api/kernels") == [], "")
    alice.stop()
    kept = [kernel["id"] for kernel in alice.ask("services/aliquot/api/kernels")]
    tell("after her server was stopped her kernel is there", kept == [made["id"]], kept)
    return 0


def tell(claim: str, holds: bool, found: Any) -> None:
    print(f"  {'ok ' if holds else 'NOT'} {claim}", flush=True)
    if not holds:
        raise SystemExit(f"hub: found {found}")


def _forgery_token(cookies: http.cookiejar.CookieJar) -> str:
    return next(cookie.value or "" for cookie in cookies if cookie.name == "_xsrf" and cookie.path == "/hub/")
