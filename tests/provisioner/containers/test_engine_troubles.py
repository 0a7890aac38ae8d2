"""A gateway whose engine fetches for ever, loses answers, and forgets containers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lame_engine import SECONDS, Asked, LameEngine

from jupyter_aliquot.provisioner.containers.plan import ContainerPlan, Mount
from jupyter_aliquot.provisioner.containers.spec import KERNEL_LABEL, container_name
from jupyter_aliquot.provisioner.engine.runtime import ContainerRuntime
from jupyter_aliquot.provisioner.engine.settings import ContainerSettings
from jupyter_aliquot.provisioner.errors import FolderError, LaunchError
from jupyter_aliquot.provisioner.launch_spec import LaunchSpec
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.runtime.base import Launch

IMAGE = "registry.example/large:1"
# More than the threads for calls.
MANY = 20


@contextlib.asynccontextmanager
async def a_runtime(engine: LameEngine) -> AsyncIterator[ContainerRuntime]:
    runtime = ContainerRuntime(ContainerSettings(engine.url))
    try:
        yield runtime
    finally:
        try:
            await soon(asyncio.to_thread(runtime.close))
        finally:
            engine.over.set()  # a close that waits ends with the test


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


def a_launch() -> Launch:
    kernel_id = str(uuid.uuid4())
    return Launch(LaunchSpec(kernel_id, ("/bin/true",), (), None, "/bin/true"), container=ContainerPlan(IMAGE))


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, SECONDS)


async def until(condition: Callable[[], Any]) -> None:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + SECONDS
    while not condition():
        assert loop.time() < give_up, f"not within {SECONDS} s"
        await asyncio.sleep(0.01)


def fetching_for_ever(engine: LameEngine) -> Callable[[], int]:
    """Return a function that counts the clients that wait for the image now."""
    waiting = threading.Semaphore(0)

    def fetch(asked: Asked) -> None:
        waiting.release()
        try:
            asked.stream_until(engine.over)
        finally:
            waiting.acquire()

    engine.routes["POST /images/create"] = fetch
    return lambda: waiting._value


@in_a_loop
async def test_images_that_are_fetched_keep_no_kernel_waiting(a_lame_engine: LameEngine) -> None:
    fetching = fetching_for_ever(a_lame_engine)
    async with a_runtime(a_lame_engine) as runtime:
        launches = [a_launch() for _ in range(MANY)]
        starts = [asyncio.ensure_future(runtime.create(launch)) for launch in launches]
        await until(lambda: fetching() == MANY)
        await until(lambda: runtime.waiting_reason(launches[-1].spec.kernel_id))
        assert await soon(runtime.list()) == ()
        for start in starts:
            start.cancel()
        await soon(asyncio.gather(*starts, return_exceptions=True))
        # A caller that gives up ends the fetching, too, and waits for nothing any more.
        await until(lambda: fetching() == 0)
        assert not any(runtime.waiting_reason(launch.spec.kernel_id) for launch in launches)


@in_a_loop
async def test_a_registry_gets_the_login_of_the_gateways_account_also_one_that_came_later(
    a_lame_engine: LameEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``docker login`` writes that file, and ``podman login --authfile`` where it is told to."""
    logins: list[str | None] = []

    def refuse(asked: Asked) -> None:
        logins.append(asked.headers.get("X-Registry-Auth"))
        asked.say(401, {"message": "authentication required"})

    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    a_lame_engine.routes["POST /images/create"] = refuse
    async with a_runtime(a_lame_engine) as runtime:
        with pytest.raises(LaunchError, match=r"authentication required.*log the gateway's account in.*docker login"):
            await soon(runtime.create(a_launch()))
        (tmp_path / ".docker").mkdir()
        login = base64.b64encode(b"lab:secret").decode()
        auths = {"registry.example": {"auth": login}, "other.example": {"auth": base64.b64encode(b"x:y").decode()}}
        (tmp_path / ".docker" / "config.json").write_text(json.dumps({"auths": auths}))
        with pytest.raises(LaunchError):
            await soon(runtime.create(a_launch()))
    without, with_login = logins
    assert without is None
    told = json.loads(base64.urlsafe_b64decode(with_login or ""))
    assert (told["username"], told["password"]) == ("lab", "secret")


@in_a_loop
async def test_a_gateway_ends_while_its_engine_fetches_an_image(a_lame_engine: LameEngine) -> None:
    fetching = fetching_for_ever(a_lame_engine)
    async with a_runtime(a_lame_engine) as runtime:
        start = asyncio.ensure_future(runtime.create(a_launch()))
        await until(lambda: fetching() == 1)
        await soon(asyncio.to_thread(runtime.close))
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start


@in_a_loop
async def test_a_container_that_the_engine_forgot_has_ended(a_lame_engine: LameEngine) -> None:
    """The container's process is not visible here, as with an engine on another machine."""
    forgotten = KernelProcess("k", 1, 0, 1, "forgotten")
    async with a_runtime(a_lame_engine) as runtime:
        assert await soon(runtime.poll(forgotten)) is not None
        await soon(runtime.remove(forgotten))


@in_a_loop
async def test_a_container_whose_making_was_never_answered_is_removed(a_lame_engine: LameEngine) -> None:
    launch = a_launch()
    kernel_id = launch.spec.kernel_id
    made: list[str] = []

    def make(asked: Asked) -> None:
        made.append(kernel_id)
        asked.hang_up()

    def show(asked: Asked) -> None:
        if not made:
            return asked.say(404, {"message": "no such container"})
        labels = {KERNEL_LABEL: kernel_id}
        asked.say(200, {"Id": "made", "Config": {"Labels": labels}, "State": {"Status": "created", "Pid": 0}})

    def remove(asked: Asked) -> None:
        made.clear()
        asked.say(204, {})

    a_lame_engine.routes |= {
        f"GET /images/{IMAGE}/json": lambda asked: asked.say(200, {"Config": {}}),
        "POST /containers/create": make,
        f"GET /containers/{container_name(kernel_id)}/json": show,
        "DELETE /containers/made": remove,
    }
    async with a_runtime(a_lame_engine) as runtime:
        with pytest.raises(LaunchError, match="does not answer"):
            await soon(runtime.create(launch))
    assert not made


@pytest.mark.parametrize("goes", ["before", "while it is made"])
@in_a_loop
async def test_a_folder_of_another_user_that_goes_is_left_out_of_the_start(
    a_lame_engine: LameEngine, tmp_path: Path, goes: str
) -> None:
    own, others = tmp_path / "own", tmp_path / "project"
    own.mkdir()
    if goes != "before":
        others.mkdir()
    mounts = (Mount(str(own), "/data"), Mount(str(others), "/shared/alice/project", is_optional=True))
    launch = replace(a_launch(), container=ContainerPlan(IMAGE, mounts=mounts, workdir="/shared/alice/project/deep"))
    asked_for = engine_that_lacks(a_lame_engine, others)
    async with a_runtime(a_lame_engine) as runtime:
        assert (await soon(runtime.create(launch))).container == "made"
    want = [{"/data"}] if goes == "before" else [{"/data", "/shared/alice/project"}, {"/data"}]
    assert [{mount["Target"] for mount in body["HostConfig"]["Mounts"]} for body in asked_for] == want
    assert not asked_for[-1]["WorkingDir"].startswith("/shared")


@in_a_loop
async def test_a_folder_that_the_kernel_needs_is_not_left_out(a_lame_engine: LameEngine, tmp_path: Path) -> None:
    own, others = tmp_path / "own", tmp_path / "project"
    others.mkdir()
    mounts = (Mount(str(own), "/data"), Mount(str(others), "/shared/alice/project", is_optional=True))
    asked_for = engine_that_lacks(a_lame_engine, own)
    async with a_runtime(a_lame_engine) as runtime:
        with pytest.raises(FolderError, match="own"):
            await soon(runtime.create(replace(a_launch(), container=ContainerPlan(IMAGE, mounts=mounts))))
    assert asked_for == []


def engine_that_lacks(engine: LameEngine, folder: Path) -> list[dict[str, Any]]:
    """Let the engine refuse containers with this folder. Return the list of bodies that it was asked with."""
    bodies: list[dict[str, Any]] = []

    def make(asked: Asked) -> None:
        bodies.append(json.loads(asked.body))
        if any(mount["Source"] == str(folder) for mount in bodies[-1]["HostConfig"]["Mounts"]):
            return asked.say(400, {"message": f"invalid mount config: bind source path does not exist: {folder}"})
        asked.say(201, {"Id": "made"})

    found = {"Id": "made", "Config": {"Labels": {}}, "State": {"Status": "running", "Pid": 0, "ExitCode": 0}}
    engine.routes |= {
        f"GET /images/{IMAGE}/json": lambda asked: asked.say(200, {"Config": {}}),
        "POST /containers/create": make,
        "POST /containers/made/start": lambda asked: asked.say(204, {}),
        "GET /containers/made/json": lambda asked: asked.say(200, found),
    }
    return bodies
