"""Images of the catalogue over REST: their users, and what their kernels' containers get."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.containers.planner import ContainerStart
from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel
from jupyter_aliquot.gateway.serverapp.config_warnings import engine_within_reach
from jupyter_aliquot.provisioner.containers.plan import ContainerPlan
from jupyter_aliquot.provisioner.errors import LaunchError

from .conftest import USERS, Ask
from .test_contract import check

OPEN = {"name": "open", "image": "registry.example/open:1", "description": "For everybody", "default_size": "0.25"}
VISION = {"name": "vision", "image": "registry.example/vision:1", "teams": ["vision"]}


@pytest.fixture
def users() -> dict[str, dict[str, Any]]:
    return {**USERS, "bob": {**USERS["bob"], "teams": ["vision"]}}


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.ImageCatalogue = Config({"images": [OPEN, VISION], "allowed_env": ["KERNEL_*"]})
    return jp_server_config


@pytest.fixture
def planned(a_server: ServerApp, monkeypatch: pytest.MonkeyPatch) -> list[tuple[ContainerStart, ContainerPlan]]:
    """Collect the plans of containers from now on.

    Each start fails after its plan: no test here needs an engine.
    """
    made: list[tuple[ContainerStart, ContainerPlan]] = []
    planner = a_server.kernel_manager.services.containers
    plan = planner.plan

    async def remember(start: ContainerStart) -> ContainerPlan:
        # Give another request the turn that it would need to come between.
        await asyncio.sleep(0.02)
        made.append((start, await plan(start)))
        raise LaunchError("no engine here")

    monkeypatch.setattr(planner, "plan", remember)
    return made


async def names(ask: Ask, who: str) -> set[str]:
    return set((await ask(who, "GET", "api/kernelspecs")).json["kernelspecs"])


@pytest.mark.parametrize(
    ("allowed", "want"),
    [([], True), (["open"], False), (["open.gpu-0.25", "vision"], False), (["open", "python3.gpu-0.5"], True)],
)
async def test_the_log_says_where_users_processes_may_use_the_engine(
    a_server: ServerApp, allowed: list[str], want: bool
) -> None:
    a_server.kernel_spec_manager.allowed_kernelspecs = set(allowed)
    assert ("may use the container engine" in engine_within_reach(a_server)) == want
    a_server.identity_provider.users = {}
    assert engine_within_reach(a_server) == "", "a person's own server"


async def test_users_see_the_images_that_are_for_them(ask: Ask) -> None:
    assert {"open", "open.gpu-0.25"} <= await names(ask, "alice")
    assert "vision" not in await names(ask, "alice")
    assert {"vision", "vision.gpu-0.5"} <= await names(ask, "bob")
    assert "vision" in await names(ask, "ada")


async def test_sizes_say_image_description_and_proposal(ask: Ask) -> None:
    body = check(await ask("alice", "GET", "aliquot/api/v1/sizes"), "/aliquot/api/v1/sizes")
    sizes = {size["name"]: size for size in body["sizes"] if size["kernelspec"] == "open"}
    assert sizes["open.gpu-0.25"]["image"] == OPEN["image"]
    assert sizes["open.gpu-0.25"]["description"] == "For everybody"
    assert {name for name, size in sizes.items() if size["is_default"]} == {"open.gpu-0.25"}
    assert "vision" not in {size["kernelspec"] for size in body["sizes"]}


@pytest.mark.parametrize("name", ["vision", "vision.gpu-0.25"])
async def test_an_image_of_others_answers_as_one_that_does_not_exist(ask: Ask, name: str) -> None:
    unknown = name.replace("vision", "unknown")
    for method, path, body in (
        ("GET", "api/kernelspecs/{}", None),
        ("POST", "api/kernels", {"name": "{}"}),
        ("POST", "api/sessions", {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "{}"}}),
    ):
        answers = []
        for asked in (name, unknown):
            filled = None if body is None else json.dumps(body).replace("{}", asked).encode()
            answers.append(await ask("alice", method, path.format(asked), body=filled))
        theirs, nobodys = answers
        # 501 is Jupyter's own answer for a session whose plain kernel is not there.
        is_jupyters = path == "api/sessions" and name == "vision"
        assert theirs.status == nobodys.status == (501 if is_jupyters else 404)
        assert theirs.json["message"].replace("vision", "unknown") == nobodys.json["message"]


async def test_the_pictures_of_an_image_of_others_are_not_there(ask: Ask) -> None:
    assert (await ask("alice", "GET", "kernelspecs/vision/logo-64x64.png")).status == 404
    assert (await ask("bob", "GET", "kernelspecs/vision/logo-64x64.png")).status == 200


async def test_a_kernel_of_an_image_is_planned_in_a_container_and_never_a_process(ask: Ask, planned: Any) -> None:
    answer = await ask("alice", "POST", "api/kernels", body={"name": "open"})
    assert answer.status == 500
    assert "no engine here" in answer.json["message"]
    [(start, plan)] = planned
    assert (start.owner, start.kernel_name, plan.image) == ("alice", "open", OPEN["image"])
    assert plan.limits.memory == 1 << 30


async def test_without_the_extension_an_image_starts_nothing(ask: Ask, a_server: ServerApp) -> None:
    await names(ask, "alice")
    kernel = ManagedKernel(kernel_name="open", kernel_spec_manager=a_server.kernel_spec_manager)
    with pytest.raises(LaunchError, match="starts no containers"):
        await kernel.start_kernel(kernel_id="k")


async def test_no_request_gets_the_variables_of_another_nor_of_the_server(
    ask: Ask, planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_OF_THE_SERVER", "secret")
    await names(ask, "alice")

    async def start(who: str, env: Any) -> None:
        body = {"name": "open"} if env is None else {"name": "open", "env": env}
        assert (await ask(who, "POST", "api/kernels", body=body)).status == 500

    asked = [("alice", {"KERNEL_KEY": "a", "SECRET": "s"}), ("bob", {"KERNEL_KEY": "b"}), ("ada", None)]
    starts = []
    for who, env in asked:
        starts.append(asyncio.ensure_future(start(who, env)))
        await asyncio.sleep(0.005)
    await asyncio.gather(*starts)
    await start("ada", None)
    got = [(start.owner, dict(plan.env)) for start, plan in planned]
    want = [("alice", {"KERNEL_KEY": "a"}), ("bob", {"KERNEL_KEY": "b"}), ("ada", {}), ("ada", {})]
    assert sorted(map(repr, got)) == sorted(map(repr, want))


async def test_a_session_tells_its_kernel_its_name_and_no_path_of_the_server(ask: Ask, planned: Any) -> None:
    body = {"path": "deep/a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "open"}}
    await ask("alice", "POST", "api/sessions", body=body)
    assert [dict(plan.env) for _, plan in planned] == [{"JPY_SESSION_NAME": "a.ipynb"}]


@pytest.mark.parametrize("env", [[], "A=b", {"A": 5}])
async def test_an_env_that_is_no_table_of_texts_is_refused(ask: Ask, env: Any) -> None:
    assert (await ask("alice", "POST", "api/kernels", body={"name": "open", "env": env})).status == 400
