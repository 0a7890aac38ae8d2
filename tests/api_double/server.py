"""An API server for tests, on a loopback port: real HTTP before the objects of `store`.

It lists, watches, creates, replaces, patches and deletes, and answers errors as a control plane of
1.36 does. A test tells it to be away, to be busy, or to forget.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .admission import refused_resize
from .reviews import Reviews
from .store import RESOURCES, Change, Failure, Object, Resource, Store

_SUBRESOURCES = ("status", "resize", "eviction", "binding")
_LOOK_SECONDS = 0.05


class ApiDouble:
    """The server. ``url`` is its address; ``requests`` are the methods and paths so far."""

    def __init__(self) -> None:
        self.store = Store()
        self.requests: list[tuple[str, str]] = []
        # Failures that the next requests get, in their order.
        self.failures: list[Failure] = []
        self.reviews = Reviews()
        self.token: str | None = None
        # Verbs and resources for all but the doubles of nodes and control plane; None: all.
        self.allowed: list[tuple[str, str]] | None = None
        self.used: set[tuple[str, str]] = set()  # those that were asked for and granted
        # While it is away, it ends each connection without an answer.
        self.is_away = False
        self.dropped = 0  # requests while it was away
        # Watches of an earlier number end.
        self.watches = 0
        # A watch that allows bookmarks gets one so often.
        self.bookmark_seconds = 60.0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_SECONDS,), daemon=True).start()
        self.store.create(RESOURCES["namespaces"], "", {"metadata": {"name": "default"}})

    def end_watches(self) -> None:
        """End all watches that run, without an event, as a server that stops does."""
        with self.store.changed:
            self.watches += 1
            self.store.changed.notify_all()

    def go_away(self) -> None:
        """Answer nothing until `come_back`."""
        self.is_away = True
        self.end_watches()

    def come_back(self) -> None:
        self.is_away = False

    def close(self) -> None:
        self.go_away()
        self._server.shutdown()
        self._server.server_close()


class _Request:
    """A path, taken apart."""

    def __init__(self, path: str) -> None:
        parts = urlsplit(path)
        self.query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        words = [word for word in parts.path.split("/") if word]
        self.resource, rest, self.namespace = _resource_of(words)
        self.name = rest[0] if rest else ""
        self.part = rest[1] if len(rest) > 1 and rest[1] in _SUBRESOURCES else ""


def _resource_of(words: list[str]) -> tuple[Resource, list[str], str]:
    prefix = 2 if words[:1] == ["api"] else 3
    rest, namespace = words[prefix:], ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    found = RESOURCES.get(rest[0]) if rest else None
    if found is None or found.prefix != "/" + "/".join(words[:prefix]):
        raise LookupError
    return found, rest[1:], namespace


def matches(selector: str, told: Object) -> bool:
    """Return whether an object has the labels of an equality selector."""
    labels = told["metadata"].get("labels") or {}
    pairs = (one.replace("==", "=").split("=", 1) for one in selector.split(",") if one)
    return all(labels.get(pair[0]) == pair[1] for pair in pairs)


def has_fields(selector: str, told: Object) -> bool:
    """Return whether an object has the values of a field selector."""
    for one in filter(None, selector.split(",")):
        path, _, want = one.partition("=")
        found: Any = told
        for word in path.split("."):
            found = found.get(word) if isinstance(found, dict) else None
        if (found or "") != want:
            return False
    return True


def merged(before: Any, patch: Any) -> Any:
    """Return a merge patch's result (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def strategic(before: Any, patch: Any) -> Any:
    """Return a strategic merge patch's result: lists of named objects are merged by their names."""
    if isinstance(patch, list) and patch and all(isinstance(one, dict) and "name" in one for one in patch):
        result = {one["name"]: one for one in before or ()}
        for one in patch:
            result[one["name"]] = strategic(result.get(one["name"], {}), one)
        return list(result.values())
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = strategic(result.get(name), value)
    return result


def json_patched(before: Object, operations: list[Object]) -> Object:
    """Return a JSON patch's result (RFC 6902: add, replace, remove, test)."""
    result = copy.deepcopy(before)
    for one in operations:
        words = [word.replace("~1", "/").replace("~0", "~") for word in one["path"].split("/")[1:]]
        at: Any = result
        for word in words[:-1]:
            at = at[int(word)] if isinstance(at, list) else at.setdefault(word, {})
        key: Any = int(words[-1]) if isinstance(at, list) else words[-1]
        if one["op"] == "test":
            if (at.get(key) if isinstance(at, dict) else at[key]) != one["value"]:
                raise Failure(422, "Invalid", "the server rejected our request due to an error in our request")
        elif one["op"] == "remove":
            del at[key]
        else:
            at[key] = copy.deepcopy(one["value"])
    return result


_PATCHES = {
    "application/merge-patch+json": merged,
    "application/strategic-merge-patch+json": strategic,
    "application/json-patch+json": json_patched,
}


def _handler(double: ApiDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        api = double

    return Handler


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    api: ApiDouble
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as a real one

    def log_message(self, format: str, *args: Any) -> None:
        """Called by the base class for each request."""

    def do_GET(self) -> None:
        """Called by the base class."""
        self._answered(self._get)

    def do_POST(self) -> None:
        """Called by the base class."""
        self._answered(self._post)

    def do_PUT(self) -> None:
        """Called by the base class."""
        self._answered(lambda asked: (200, self._replaced(asked, self._body)))

    def do_PATCH(self) -> None:
        """Called by the base class."""
        self._answered(self._patch)

    def do_DELETE(self) -> None:
        """Called by the base class."""
        self._answered(self._delete)

    def _answered(self, answer: Any) -> None:
        # Read first: a test that orders a failure and then ends all watches misses no request between the two.
        self._watches = self.api.watches
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length)
        self._body: Any = json.loads(text) if text else None
        if self.api.is_away:
            self.api.dropped += 1
            self.close_connection = True
            return
        self.api.requests.append((self.command, self.path))
        try:
            self._admit()
            if self.api.failures:
                raise self.api.failures.pop(0)
            if (told := self.api.reviews.answer(self.command, self.path, self._body)) is not None:
                self.api.used.add(("create", self.path.rpartition("/")[2]))
                self._send(201 if self.command == "POST" else 200, json.dumps(told).encode())
                return
            try:
                asked = _Request(self.path)
            except LookupError:
                self._send(404, b"404 page not found\n", "text/plain; charset=utf-8")
                return
            self._authorize(asked)
            result = answer(asked)
            if result is not None:
                self._send(result[0], json.dumps(result[1]).encode())
        except Failure as failure:
            self._send(failure.code, json.dumps(failure.status()).encode(), retry_after=failure.retry_after)

    def _admit(self) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.api.token is not None and token != self.api.token:
            raise Failure(401, "Unauthorized", "Unauthorized")

    def _authorize(self, asked: _Request) -> None:
        verb = {"GET": "get" if asked.name else "list", "POST": "create", "PUT": "update"}.get(self.command)
        verb = "watch" if asked.query.get("watch") in ("1", "true", "True") else verb or self.command.lower()
        is_a_doubles = self.headers.get("User-Agent", "").startswith("Python-urllib")
        resource = "/".join(filter(None, (asked.resource.plural, asked.part)))
        if self.api.allowed is not None and not is_a_doubles and (verb, resource) not in self.api.allowed:
            name = f' "{asked.name}"' if asked.name else ""
            raise Failure(
                403,
                "Forbidden",
                f'{asked.resource.full_name}{name} is forbidden: User "a-user" cannot {verb} resource '
                f'"{asked.resource.plural}" in API group "{asked.resource.group}" in the namespace "{asked.namespace}"',
            )
        if not is_a_doubles:
            self.api.used.add((verb, resource))

    def _get(self, asked: _Request) -> tuple[int, Object] | None:
        store = self.api.store
        if asked.name:
            return 200, store.read(asked.resource, asked.namespace, asked.name)
        if asked.query.get("watch") in ("1", "true", "True"):
            self._watch(asked)
            return None
        version = asked.query.get("resourceVersion", "")
        if version and not version.isdecimal():
            raise Failure(400, "BadRequest", f'resourceVersion: Invalid value: "{version}": strconv.ParseUint')
        found, now = store.list(asked.resource, asked.namespace)
        if version and int(version) > now:
            told = f"Timeout: Too large resource version: {version}, current: {now}"
            raise Failure(504, "Timeout", told, retry_after=1)
        wanted = [one for one in found if self._is_wanted(asked, one)]
        return 200, {
            "kind": f"{asked.resource.kind}List",
            "apiVersion": asked.resource.api_version,
            "metadata": {"resourceVersion": str(now)},
            "items": wanted,
        }

    def _post(self, asked: _Request) -> tuple[int, Object]:
        store = self.api.store
        if asked.part == "eviction":
            pod = store.read(asked.resource, asked.namespace, asked.name)
            reason = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            conditions = [*pod.get("status", {}).get("conditions", []), {**reason, "message": "Eviction API: evicting"}]
            status = {**pod.get("status", {}), "conditions": conditions}
            store.replace(asked.resource, asked.namespace, asked.name, {"status": status}, "status")
            store.delete(asked.resource, asked.namespace, asked.name, self._body.get("deleteOptions") or {})
            return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        if asked.part == "binding":
            pod = store.read(asked.resource, asked.namespace, asked.name)
            bound = pod["spec"].get("nodeName")
            if bound:
                raise Failure(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on pods/binding "{asked.name}": pod {asked.name} is already '
                    f'assigned to node "{bound}"',
                )
            pod["spec"]["nodeName"] = self._body["target"]["name"]
            store.replace(asked.resource, asked.namespace, asked.name, pod)
            return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return 201, store.create(asked.resource, asked.namespace, self._body)

    def _replaced(self, asked: _Request, told: Object) -> Object:
        store = self.api.store
        if asked.part == "resize":
            before = store.read(asked.resource, asked.namespace, asked.name)
            resources = {one["name"]: one.get("resources", {}) for one in told["spec"]["containers"]}
            for container in before["spec"]["containers"]:
                container["resources"] = resources.get(container["name"], container.get("resources", {}))
            node = store.find(RESOURCES["nodes"], "", before["spec"].get("nodeName", ""))
            if (refusal := refused_resize(before, node)) is not None:
                raise Failure(*refusal)
            return store.replace(asked.resource, asked.namespace, asked.name, before)
        self._check_pod_spec(asked, told)
        return store.replace(asked.resource, asked.namespace, asked.name, told, asked.part)

    def _check_pod_spec(self, asked: _Request, told: Object) -> None:
        if asked.resource.plural != "pods" or asked.part:
            return
        before = self.api.store.read(asked.resource, asked.namespace, asked.name)
        if [one.get("resources") for one in before["spec"].get("containers", ())] != [
            one.get("resources") for one in told.get("spec", {}).get("containers", ())
        ]:
            raise Failure(
                422,
                "Invalid",
                f'Pod "{asked.name}" is invalid: spec: Forbidden: pod updates may not change fields other than',
            )

    def _patch(self, asked: _Request) -> tuple[int, Object]:
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        if kind not in _PATCHES:
            raise Failure(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: "
                + ", ".join(sorted(_PATCHES)),
            )
        before = self.api.store.read(asked.resource, asked.namespace, asked.name)
        after = _PATCHES[kind](before, self._body)
        if not (isinstance(self._body, dict) and (self._body.get("metadata") or {}).get("resourceVersion")):
            after["metadata"].pop("resourceVersion", None)  # the last writer wins
        return 200, self._replaced(asked, after)

    def _delete(self, asked: _Request) -> tuple[int, Object]:
        options = dict(self._body or {})
        if "gracePeriodSeconds" in asked.query:
            options["gracePeriodSeconds"] = int(asked.query["gracePeriodSeconds"])
        return 200, self.api.store.delete(asked.resource, asked.namespace, asked.name, options)

    # ---- watches

    def _watch(self, asked: _Request) -> None:
        version = asked.query.get("resourceVersion", "")
        if version and not version.isdecimal():
            raise Failure(500, "InternalError", f'strconv.ParseUint: parsing "{version}": invalid syntax')
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in self._events(asked, int(version or 0)):
                self._chunk(json.dumps(event).encode() + b"\n")
            self._chunk(b"")
        except OSError:
            self.close_connection = True  # the client left

    def _events(self, asked: _Request, version: int) -> Iterator[Object]:
        """Yield events until the watch's time is over, or a test ends it; with bookmarks, the last before the end."""
        store, number = self.api.store, self._watches
        until = time.monotonic() + float(asked.query.get("timeoutSeconds") or 3600)
        has_marks = asked.query.get("allowWatchBookmarks") in ("1", "true", "True")
        marked_at = time.monotonic()
        if not version:
            found, version = store.list(asked.resource, asked.namespace)
            yield from (_event("ADDED", one) for one in found if self._is_wanted(asked, one))
        elif version < store.compacted:
            told = f"too old resource version: {version} ({store.compacted})"
            yield {"type": "ERROR", "object": Failure(410, "Expired", told).status()}
            return
        while time.monotonic() < until and number == self.api.watches:
            with store.changed:
                changes = list(store.events_since(version, asked.resource, asked.namespace))
                if not changes:
                    version = max(version, store.version)
                    due = min(until, marked_at + self.api.bookmark_seconds) if has_marks else until
                    store.changed.wait(max(0.0, due - time.monotonic()))
            for change in changes:
                version = change.version
                event = self._told(asked, change)
                if event is not None:
                    yield event
            if has_marks and time.monotonic() >= marked_at + self.api.bookmark_seconds:
                marked_at = time.monotonic()
                yield _bookmark(asked, version)
        if has_marks and number == self.api.watches:
            yield _bookmark(asked, version)

    def _told(self, asked: _Request, change: Change) -> Object | None:
        """Return the event as this watch sees it: an object that stops matching is deleted."""
        is_in = self._is_wanted(asked, change.object)
        was_in = change.before is not None and self._is_wanted(asked, change.before)
        if change.kind == "MODIFIED" and was_in != is_in:
            return _event("ADDED" if is_in else "DELETED", change.object)
        return _event(change.kind, change.object) if is_in or was_in else None

    def _is_wanted(self, asked: _Request, told: Object) -> bool:
        return matches(asked.query.get("labelSelector", ""), told) and has_fields(
            asked.query.get("fieldSelector", ""), told
        )

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, code: int, body: bytes, kind: str = "application/json", *, retry_after: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if retry_after is not None:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        self.wfile.write(body)


def _bookmark(asked: _Request, version: int) -> Object:
    bare = {"kind": asked.resource.kind, "apiVersion": asked.resource.api_version}
    return _event("BOOKMARK", {**bare, "metadata": {"resourceVersion": str(version)}})


def _event(kind: str, told: Object) -> Object:
    return {"type": kind, "object": told}
