"""Call a container engine through the docker package, whose calls block, in worker threads.

All calls to an engine pass through here. This module knows the Docker Engine API and the engines'
habits, and nothing of kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import requests
from docker import APIClient
from docker.errors import APIError, DockerException, NotFound

from jupyter_aliquot.provisioner.containers.plan import Pull
from jupyter_aliquot.provisioner.containers.spec import CUDA_COMPAT_LABEL, GLIBC_LABEL, ImageFacts
from jupyter_aliquot.provisioner.errors import EngineError, EngineUnavailableError, LaunchError

_T = TypeVar("_T")
_CALL_SECONDS = 60
_THREADS = 8
_USUAL_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
_SESSION_SOCKETS = ("docker.sock", "podman/podman.sock")
_CONFLICT = 409
_LIVING = frozenset(("created", "running", "paused", "restarting", "stopping"))

Progress = Callable[[str], None]
log = logging.getLogger(__name__)


class _GivenUp(Exception):
    """The caller that waited for the image gave up."""


@dataclass(frozen=True)
class EngineFacts:
    """The properties of an engine.

    ``cdi_dirs`` is empty if it resolves no CDI device over its API.
    """

    version: str
    cdi_dirs: tuple[str, ...] = ()
    is_rootless: bool = False

    @property
    def has_cdi(self) -> bool:
        return bool(self.cdi_dirs)


def find_engine(asked: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the engine's URL: the requested one, else DOCKER_HOST, else the first usual socket.

    Raises EngineUnavailableError.
    """
    env = os.environ if environ is None else environ
    if chosen := asked or env.get("DOCKER_HOST"):
        return chosen
    session = env.get("XDG_RUNTIME_DIR")
    folders = [] if not session else [str(Path(session) / name) for name in _SESSION_SOCKETS]
    for path in (*_USUAL_SOCKETS, *folders):
        if os.access(path, os.R_OK | os.W_OK):
            return f"unix://{path}"
    looked = ", ".join((*_USUAL_SOCKETS, *folders))
    raise EngineUnavailableError(
        "Requested a container engine, but this user may open none of the usual sockets "
        f"({looked}). Start Docker or 'podman system service', set c.KernelContainers.engine, or "
        "set DOCKER_HOST"
    )


class ContainerEngine:
    """One engine. Any event loop may use it, also several one after another."""

    def __init__(self, asked: str = "") -> None:
        self._asked = asked
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="aliquot-engine")
        self._local = threading.local()
        self._clients: list[APIClient] = []  # Guarded by the lock.
        self._facts: EngineFacts | None = None
        self._lock = threading.Lock()

    async def call(self, function: Callable[[APIClient], _T]) -> _T:
        """Run ``function`` with a client in a worker thread.

        Raises EngineError for a refusal, and EngineUnavailableError.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, function)

    async def facts(self) -> EngineFacts:
        """Return the engine's properties; ask for them once. Raises EngineError."""
        if self._facts is None:
            self._facts = await self.call(_read_facts)
        return self._facts

    async def image(self, name: str, pull: Pull, progress: Progress) -> ImageFacts:
        """Return the image; fetch it if the policy says so. Raises LaunchError, EngineError."""
        found = None if pull is Pull.ALWAYS else await self.call(lambda client: _look_for_image(client, name))
        if found is None and pull is not Pull.NEVER:
            await self._fetch(name, progress)
            found = await self.call(lambda client: _look_for_image(client, name))
        if found is None:
            raise LaunchError(
                f"Requested the image {name}, but this node does not have it, and it was not pulled "
                f"(pull policy {pull.value}). Load it on the node, or allow it to be pulled"
            )
        return _image_facts(found)

    async def inspect(self, container: str) -> dict[str, Any] | None:
        """Return the engine's description of a container; None if it has no such.

        Raises EngineError.
        """
        return await self.call(lambda client: inspect_container(client, container))

    def close(self) -> None:
        """Close threads and connections."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    async def _fetch(self, name: str, progress: Progress) -> None:
        """Fetch an image in a thread of its own, which `close` does not wait for.

        A fetch takes minutes, and kernels need the other threads. If the caller gives up, the fetch
        ends with the engine's next progress report.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(text: str) -> None:
            if done.done():
                raise _GivenUp
            loop.call_soon_threadsafe(lambda: None if done.done() else progress(text))

        def settle(error: Exception | None) -> None:
            if not done.done():
                done.set_exception(error) if error is not None else done.set_result(None)

        def fetch() -> None:
            problem: Exception | None = None
            try:
                with contextlib.closing(self._guarded(self._connect)) as client:
                    self._guarded(lambda: _pull_image(client, name, tell))
            except Exception as error:  # as an executor does: the waiting caller gets it
                problem = error
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(settle, problem)

        threading.Thread(target=fetch, name="aliquot-fetch", daemon=True).start()
        await done

    def _call(self, function: Callable[[APIClient], _T]) -> _T:
        """Call a function in a worker thread."""
        return self._guarded(lambda: function(self._client()))

    def _guarded(self, act: Callable[[], _T]) -> _T:
        try:
            return act()
        except APIError as error:
            raise EngineError(f"the container engine refused: {refusal(error)}") from error
        except (DockerException, requests.RequestException, OSError) as error:
            raise EngineUnavailableError(
                "The container engine at "
                f"{self._asked or os.environ.get('DOCKER_HOST') or 'its usual socket'} does not answer: "
                f"{_reason(error)}. Check that it runs, and that this user may open its socket"
            ) from error

    def _client(self) -> APIClient:
        """Return this thread's client: clients are not safe for several threads."""
        client: APIClient | None = getattr(self._local, "client", None)
        if client is None:
            client = self._connect()
            self._local.client = client
            with self._lock:
                self._clients.append(client)
        return client

    def _connect(self) -> APIClient:
        return APIClient(base_url=find_engine(self._asked), version="auto", timeout=_CALL_SECONDS)


def inspect_container(client: APIClient, container: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.inspect_container(container)
    except APIError as error:
        if _is_gone(error):
            return None
        raise
    return found


def has_ended(status: str) -> bool:
    """Tell whether a container has ended, by ``State.Status`` or a listing's ``State``.

    Podman has one more word for it than Docker.
    """
    return status not in _LIVING


def remove_container(client: APIClient, container: str) -> None:
    """Remove a container, running or not, unless it is gone or being removed. Raises APIError."""
    try:
        client.remove_container(container, force=True, v=True)
    except APIError as error:
        # "removal … is already in progress"
        if not _is_gone(error) and error.status_code != _CONFLICT:
            raise


def _is_gone(error: APIError) -> bool:
    """Tell whether a container is gone. Podman answers 500 while another client removes it."""
    return isinstance(error, NotFound) or "no such container" in refusal(error).lower()


def refusal(error: APIError) -> str:
    """Return the engine's own words."""
    return str(error.explanation or error).strip()


def _read_facts(client: APIClient) -> EngineFacts:
    info = client.info()
    folders: Iterable[str] = info.get("CDISpecDirs") or ()
    is_rootless = any("rootless" in str(option) for option in info.get("SecurityOptions") or ())
    return EngineFacts(str(info.get("ServerVersion", "")), tuple(str(folder) for folder in folders), is_rootless)


def _image_facts(found: Mapping[str, Any]) -> ImageFacts:
    config = found.get("Config") or {}
    env = tuple((key, value) for key, _, value in (word.partition("=") for word in config.get("Env") or ()))
    labels = config.get("Labels") or {}
    glibc, compat = str(labels.get(GLIBC_LABEL, "")), str(labels.get(CUDA_COMPAT_LABEL, ""))
    return ImageFacts(env, tuple(config.get("Entrypoint") or ()), glibc, compat)


def _look_for_image(client: APIClient, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.inspect_image(name)  # type: ignore[no-untyped-call]  # not yet in types-docker
    except NotFound:
        return None
    return found


def _pull_image(client: APIClient, name: str, progress: Progress) -> None:
    """Fetch an image, with the login of this account at its registry (``docker login``).

    Engines report a failure within the stream of an answer that began with 200.
    """
    problem = ""
    try:
        for report in client.pull(name, tag=_tag(name), stream=True, decode=True):
            problem = str(report.get("error") or problem)
            if report.get("status"):
                progress(" ".join(str(report[key]) for key in ("status", "id", "progress") if report.get(key)))
    except APIError as error:
        problem = refusal(error)
    except requests.RequestException as error:  # a registry may keep the engine waiting: it answered until now
        problem = _reason(error)
    if problem:
        raise LaunchError(
            f"Requested to pull the image {name}, but the engine failed: {problem}. Check its name and registry, "
            "log the gateway's account in there (docker login), or load the image on the node"
        )


def _tag(name: str) -> str | None:
    """Return the tag to fetch: without a tag the package fetches all of them."""
    last = name.rpartition("/")[2]
    return None if ":" in last or "@" in last else "latest"


def _reason(error: BaseException) -> str:
    """Return the reason, cut to 300 characters: the package wraps a refused socket three times."""
    text = str(error)
    return text if len(text) <= 300 else text[:300] + "…"
