"""Call an API server through the official client, whose calls block: in threads, and here alone.

Objects are plain dictionaries, as the server sends them. This module knows paths and errors, and
nothing of kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kubernetes import config
from kubernetes.client import ApiClient, ApiException, Configuration
from urllib3.exceptions import HTTPError

from jupyter_aliquot.provisioner.errors import EngineError

Object = dict[str, Any]

OPENED = "OPENED"
GONE = 410
_CONNECT_SECONDS, _CALL_SECONDS = 10.0, 30.0
# An idle watch gets a bookmark within a minute, so a longer silence is a lost connection.
_SILENCE_SECONDS = 150.0
_WATCH_SECONDS = 290
_THREADS = 8
_AUTH = ["BearerToken"]
_PATCH_TYPE = "application/merge-patch+json"
# Away, busy, and failures of the server that pass.
_PASSING = frozenset((0, 429, 500, 502, 503, 504))


class ClusterError(EngineError):
    """The API server refused a request, or answered an error.

    ``code`` is its HTTP status, ``reason`` its word. ``retry_after`` is in seconds; None: not told.
    """

    def __init__(self, code: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after = code, reason, retry_after

    @property
    def is_passing(self) -> bool:
        return self.code in _PASSING


class ClusterAwayError(ClusterError):
    """The API server does not answer."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Away", f"The Kubernetes API does not answer: {message}")


@dataclass(frozen=True)
class Collection:
    """The objects of one resource in one namespace, of those that the selectors of labels and fields select.

    ``prefix`` is ``/api/v1``, or ``/apis/GROUP/VERSION``. ``namespace`` is empty for the cluster's own objects.
    """

    prefix: str
    plural: str
    namespace: str
    selector: str = ""
    fields: str = ""

    @property
    def path(self) -> str:
        return "/".join(filter(None, (self.prefix, self.namespace and f"namespaces/{self.namespace}", self.plural)))


def find_configuration() -> Configuration:
    """Return the configuration of the pod that this runs in, else that of the user's kubeconfig.

    Raises ClusterAwayError where there is neither. Blocks.
    """
    found = Configuration()
    try:
        config.load_config(client_configuration=found)
    except (config.ConfigException, OSError) as error:
        raise ClusterAwayError(f"no configuration of it is found: {error}. Set KUBECONFIG") from error
    return found


class ClusterClient:
    """The calls of one gateway, to the server and with the credentials of *configuration*."""

    def __init__(self, configuration: Configuration) -> None:
        # A caller decides what is tried again, and when: by itself the client waits in the thread.
        configuration.retries = False
        self._api = ApiClient(configuration)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="aliquot-cluster")

    async def close(self) -> None:
        """Wait for the calls that run."""
        await asyncio.to_thread(self._threads.shutdown)
        self._api.close()

    async def list(self, collection: Collection) -> tuple[list[Object], str]:
        """Return the objects, and the version from which to watch them. Raises ClusterError."""
        selectors = {"labelSelector": collection.selector, "fieldSelector": collection.fields}
        answer = await self._call("GET", collection.path, selectors)
        return list(answer.get("items") or ()), str(answer["metadata"]["resourceVersion"])

    async def read(self, collection: Collection, name: str) -> Object:
        """Return one object. Raises ClusterError."""
        return await self._call("GET", f"{collection.path}/{name}")

    async def create(self, collection: Collection, told: Object) -> Object:
        """Create an object. Raises ClusterError."""
        return await self._call("POST", collection.path, body=told)

    async def post(self, path: str, told: Object) -> Object:
        """Post an object that is answered, and not kept, such as a review. Raises ClusterError."""
        return await self._call("POST", path, body=told)

    async def get(self, path: str) -> Object:
        """Return what is at a path, such as the server's version. Raises ClusterError."""
        return await self._call("GET", path)

    async def patch(self, collection: Collection, name: str, change: Object, part: str = "") -> Object:
        """Merge a change into an object, or into its *part*. Raises ClusterError."""
        path = f"{collection.path}/{name}/{part}".rstrip("/")
        return await self._call("PATCH", path, body=change, content_type=_PATCH_TYPE)

    async def delete(self, collection: Collection, name: str, uid: str = "", grace_seconds: int | None = None) -> None:
        """Delete an object, and no other one of its name; a missing one is no error. Raises ClusterError.

        ``grace_seconds`` None: the object's own.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", f"{collection.path}/{name}", body=options)
        except ClusterError as error:
            if error.code != 404:
                raise

    async def watch(self, collection: Collection, version: str) -> AsyncIterator[Object]:
        """Yield the events after a version; the first one, OPENED, says that the server answered.

        It ends when the server ends it. Raises ClusterError, also for an event that tells an error.
        """
        query = {
            "labelSelector": collection.selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        reader = _WatchReader(self, collection.path, query)
        reader.start()
        try:
            while (event := await reader.events.get()) is not None:
                if isinstance(event, ClusterError):
                    raise event
                yield _checked(event)
        finally:
            reader.stop()

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, self.blocking_call, method, path, query or {}, body, content_type
        )

    def blocking_call(
        self, method: str, path: str, query: Mapping[str, str], body: Object | None, content_type: str
    ) -> Object:
        """Return an answer's JSON. Raises ClusterError. Blocks."""
        try:
            response = self.open(method, path, query, body, content_type, _CALL_SECONDS)
            text = response.data
            answer = json.loads(text) if text else {}
        except (ApiException, HTTPError, OSError) as error:
            raise ClusterAwayError(str(error)) from error
        except ValueError as error:
            raise ClusterError(502, "Unreadable", f"The Kubernetes API answered what is no JSON: {error}") from error
        return answer if isinstance(answer, dict) else {}

    def open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        content_type: str,
        silence_seconds: float,
    ) -> Any:
        """Return an open answer of the server. Raises ClusterError, and what the client raises. Blocks."""
        request = self._api.param_serialize(
            method,
            path,
            query_params=[pair for pair in query.items() if pair[1]],
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=_AUTH,
        )
        response = self._api.call_api(*request, _request_timeout=(_CONNECT_SECONDS, silence_seconds)).response
        if not 200 <= response.status <= 299:
            raise _refusal(response)
        return response


class _WatchReader(threading.Thread):
    """The thread that reads one watch. ``events`` get each event, then an error, or None at the end."""

    def __init__(self, client: ClusterClient, path: str, query: Mapping[str, str]) -> None:
        super().__init__(name="aliquot-cluster-watch", daemon=True)
        self._client = client
        self._path = path
        self._query = query
        self._loop = asyncio.get_running_loop()
        self._guard = threading.Lock()
        self._response: Any = None  # guarded by _guard
        self._is_stopped = False  # guarded by _guard
        self.events: asyncio.Queue[Object | ClusterError | None] = asyncio.Queue()

    def run(self) -> None:
        """Called by Thread.start."""
        try:
            self._read()
            self._tell(None)
        except ClusterError as error:
            self._tell(error)
        except Exception as error:  # whatever ended the thread: its reader must not wait for ever
            self._tell(ClusterAwayError(str(error) or type(error).__name__))

    def stop(self) -> None:
        """End the thread soon: what it reads is over."""
        with self._guard:
            self._is_stopped = True
            response = self._response
        connection = getattr(response, "connection", None)
        if (opened := getattr(connection, "sock", None)) is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        response = self._client.open("GET", self._path, self._query, None, "application/json", _SILENCE_SECONDS)
        with self._guard:
            self._response = response
            is_stopped = self._is_stopped
        try:
            if is_stopped:
                return
            self._tell({"type": OPENED, "object": {}})
            rest = b""
            for piece in response.stream(amt=None, decode_content=False):
                *lines, rest = (rest + piece).split(b"\n")
                for line in filter(None, lines):
                    self._tell(json.loads(line))
        finally:
            response.close()

    def _tell(self, event: Object | ClusterError | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)


def _checked(event: Any) -> Object:
    """Return an event of a watch. Raises ClusterError for one that tells an error, or is none."""
    is_whole = isinstance(event, dict) and isinstance(event.get("type"), str) and isinstance(event.get("object"), dict)
    if not is_whole:
        raise ClusterError(502, "Unreadable", f"A watch of the Kubernetes API told what is no event: {event!r:.120}")
    if event["type"] == "ERROR":
        raise _error_of(event["object"], None)
    return dict(event)


def _refusal(response: Any) -> ClusterError:
    try:
        told = json.loads(response.data)
    except ValueError:
        told = None
    after = response.headers.get("Retry-After", "")
    told = told if isinstance(told, dict) else {"message": f"it answered {response.status} {response.reason}"}
    return _error_of({"code": response.status, **told}, float(after) if after.isdecimal() else None)


def _error_of(status: Object, retry_after: float | None) -> ClusterError:
    details = status.get("details") or {}
    seconds = retry_after if retry_after is not None else details.get("retryAfterSeconds")
    return ClusterError(
        int(status.get("code") or 500),
        str(status.get("reason") or ""),
        str(status.get("message") or "no reason given"),
        None if seconds is None else float(seconds),
    )
