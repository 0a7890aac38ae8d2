"""The calls of the node double to an API server: plain HTTP, independent of Aliquot's own client."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
_CALL_SECONDS = 20.0
_WATCH_SECONDS = 60


class Refused(Exception):
    """The server answered an error, or not at all (code 0)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ApiClient:
    """The server at an address. ``is_cut`` True: nothing goes through, as with a cut cable."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._token = token
        self.is_cut = False

    def call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """Return an answer. Raises Refused."""
        with self._open(method, path, body, kind, _CALL_SECONDS) as answer:
            text = answer.read()
        found = json.loads(text) if text else {}
        return found if isinstance(found, dict) else {}

    def watch(self, path: str, version: str, ended: threading.Event) -> Iterator[Object]:
        """Yield events until the server or *ended* ends it. Raises Refused."""
        query = f"watch=true&resourceVersion={version}&timeoutSeconds={_WATCH_SECONDS}"
        with self._open("GET", f"{path}{'&' if '?' in path else '?'}{query}", None, "", _WATCH_SECONDS + 30) as answer:
            for line in answer:
                if ended.is_set() or self.is_cut:
                    return
                yield json.loads(line)

    @contextlib.contextmanager
    def _open(self, method: str, path: str, body: Object | None, kind: str, seconds: float) -> Iterator[Any]:
        if self.is_cut:
            raise Refused(0, "the cable is cut")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, method=method)
        request.add_header("Content-Type", kind)
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode(errors="replace")) from error
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise Refused(0, str(error)) from error
        except Exception as error:  # http.client's errors of a connection that ended
            if type(error).__module__ != "http.client":
                raise
            raise Refused(0, str(error)) from error


def follow(
    api: ApiClient, path: str, told: Callable[[str, Object], None], ended: threading.Event, pause: float = 0.05
) -> None:
    """List and watch for ever: call *told* with ADDED, MODIFIED or DELETED and the object."""
    known: dict[str, Object] = {}
    while not ended.is_set():
        try:
            listed = api.call("GET", path)
            found = {one["metadata"]["uid"]: one for one in listed.get("items") or ()}
            for uid in known.keys() - found.keys():
                told("DELETED", known.pop(uid))
            for uid, one in found.items():
                told("MODIFIED" if uid in known else "ADDED", one)
                known[uid] = one
            for event in api.watch(path, listed["metadata"]["resourceVersion"], ended):
                if event["type"] == "ERROR":
                    break
                if event["type"] == "BOOKMARK":
                    continue
                one = event["object"]
                if event["type"] == "DELETED":
                    known.pop(one["metadata"]["uid"], None)
                else:
                    known[one["metadata"]["uid"]] = one
                told(event["type"], one)
        except Refused:
            ended.wait(pause)
