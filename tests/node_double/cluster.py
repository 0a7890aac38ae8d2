"""The calls of the node double to an API server: plain HTTP, independent of Aliquot's own client."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
_CALL_SECONDS = 20.0
_WATCH_SECONDS = 60
_KEPT_SECONDS = 2.0  # a server may close a connection that is idle for longer


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
        self._kept = threading.local()  # each thread's connection, and when it was used last
        self.is_cut = False

    def call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """Return an answer, by the connection that this thread's calls share. Raises Refused."""
        if self.is_cut:
            raise Refused(0, "the cable is cut")
        headers = {"User-Agent": "Python-urllib", "Content-Type": kind}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            answer, text = self._asked(method, path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            raise Refused(0, str(error)) from error
        self._kept.used = time.monotonic()
        if answer.status >= 400:
            raise Refused(answer.status, text.decode(errors="replace"))
        found = json.loads(text) if text else {}
        return found if isinstance(found, dict) else {}

    def _asked(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[Any, bytes]:
        """Return an answer and its text. A read is asked for anew where the server had ended a kept connection."""
        connection = self._connection()
        is_kept = connection.sock is not None
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()  # the next call connects again
            if not is_kept or method != "GET" or self.is_cut:
                raise
            return self._asked(method, path, data, headers)

    def _connection(self) -> http.client.HTTPConnection:
        """Return this thread's connection, which connects with its next request if it was idle for long."""
        if getattr(self._kept, "connection", None) is None:
            to = urlsplit(self._url)
            is_secure = to.scheme == "https"
            kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
            self._kept.connection = kind(to.netloc, timeout=_CALL_SECONDS)
            self._kept.used = time.monotonic()
        connection: http.client.HTTPConnection = self._kept.connection
        if time.monotonic() - self._kept.used > _KEPT_SECONDS:
            connection.close()
        return connection

    def watch(self, path: str, version: str, ended: threading.Event) -> Iterator[Object]:
        """Yield events until the server or *ended* ends it. Raises Refused."""
        query = f"watch=true&resourceVersion={version}&timeoutSeconds={_WATCH_SECONDS}"
        with self._open(f"{path}{'&' if '?' in path else '?'}{query}", _WATCH_SECONDS + 30) as answer:
            for line in answer:
                if ended.is_set() or self.is_cut:
                    return
                yield json.loads(line)

    @contextlib.contextmanager
    def _open(self, path: str, seconds: float) -> Iterator[Any]:
        if self.is_cut:
            raise Refused(0, "the cable is cut")
        request = urllib.request.Request(self._url + path)
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
    api: ApiClient,
    path: str,
    told: Callable[[str, Object], None],
    ended: threading.Event,
    pause: float = 0.05,
    listed: Callable[[], None] = lambda: None,
) -> None:
    """List and watch for ever: call *told* with ADDED, MODIFIED or DELETED and the object, *listed* after each list."""
    known: dict[str, Object] = {}
    while not ended.is_set():
        try:
            answer = api.call("GET", path)
            found = {one["metadata"]["uid"]: one for one in answer.get("items") or ()}
            for uid in known.keys() - found.keys():
                told("DELETED", known.pop(uid))
            for uid, one in found.items():
                told("MODIFIED" if uid in known else "ADDED", one)
                known[uid] = one
            listed()
            for event in api.watch(path, answer["metadata"]["resourceVersion"], ended):
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
