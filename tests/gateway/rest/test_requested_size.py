"""KERNEL_GPU: the size in the body of a request for a kernel, which no other request gets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.sizes.environment import default_size, with_size
from jupyter_aliquot.gateway.sizes.wish import Wish, wish_of
from jupyter_aliquot.provisioner.containers.plan import ContainerPlan
from jupyter_aliquot.provisioner.errors import LaunchError, RequestError
from jupyter_aliquot.provisioner.resources import GpuShare

from .conftest import Ask
from .fake_agent import FakeAgent

MOST = GpuShare(800)


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.ImageCatalogue = Config({"images": [{"name": "open", "image": "registry.example/open:1"}]})
    return jp_server_config


@pytest.mark.parametrize(
    ("name", "asked", "want"),
    [
        ("python3", "0.25", "python3.gpu-0.25"),
        ("python3", " 0.5-8g-LOW ", "python3.gpu-0.5-8g-low"),
        ("python3", "none", "python3"),
        ("python3", "None", "python3"),
        ("python3", "", "python3"),
        ("python3.gpu-1", "0.25", "python3.gpu-1"),
        ("python3.gpu-nonsense", "0.25", "python3.gpu-nonsense"),
        ("python3.gpu-none", "0.25", "python3.gpu-none"),
    ],
)
def test_a_plain_name_gets_the_size_and_a_sized_one_keeps_its_own(name: str, asked: str, want: str) -> None:
    assert with_size(name, {"KERNEL_GPU": asked, "KERNEL_USERNAME": "ada"}, MOST) == want
    assert with_size(name, {"KERNEL_USERNAME": "ada"}, MOST) == name


@pytest.mark.parametrize(
    ("asked", "want"),
    [("0.25", "0.25"), (" 0.50-8G-low", "0.5-8g-low"), ("none", None), ("", None), ("9", None), ("lots", None)],
)
def test_the_default_of_a_server_is_told_as_names_have_it_and_what_is_refused_is_none(asked: str, want: Any) -> None:
    assert default_size({"KERNEL_GPU": asked}, MOST) == want
    assert default_size({}, MOST) is None


@given(asked=st.text(max_size=300))
def test_what_is_no_size_is_refused_in_bounded_words_that_name_the_grammar(asked: str) -> None:
    said = ""
    try:
        name = with_size("python3", {"KERNEL_GPU": asked}, MOST)
    except RequestError as error:
        name, said = "", str(error)
    assert (
        name == "python3"
        or name.startswith("python3.gpu-")
        or ("KERNEL_GPU" in said and "0.25, 2.5-low or 0.5-1g, or 'none'" in said)
    )
    assert len(said) < 2000


async def start(ask: Ask, who: str, name: str, gpu: str | None = None) -> Any:
    body: dict[str, Any] = {"name": name} if gpu is None else {"name": name, "env": {"KERNEL_GPU": gpu}}
    return await ask(who, "POST", "api/kernels", body=body)


async def test_requests_at_the_same_time_get_each_their_own_size_and_later_ones_none(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, an_agent: FakeAgent
) -> None:
    monkeypatch.setenv("KERNEL_GPU", "4")  # the gateway's own environment is no request
    await an_agent.start()
    asked = [("alice", "0.25"), ("bob", "0.5-low"), ("alice", "1"), ("bob", None), ("ada", "none")]
    answers = await asyncio.gather(*(start(ask, who, "python3", gpu) for who, gpu in asked))
    names = [answer.json["name"] for answer in answers]
    assert names == ["python3.gpu-0.25", "python3.gpu-0.5-low", "python3.gpu-1", "python3", "python3"]
    assert (await start(ask, "alice", "python3")).json["name"] == "python3"
    session = {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    assert (await ask("alice", "POST", "api/sessions", body=session)).json["kernel"]["name"] == "python3"
    assert (await start(ask, "alice", "python3.gpu-0.75", "0.25")).json["name"] == "python3.gpu-0.75"
    none = (await start(ask, "alice", "python3.gpu-none", "0.25")).json
    assert none["name"] == "python3.gpu-none"
    told = (await ask("alice", "GET", "aliquot/api/v1/kernels")).json["kernels"]
    assert none["id"] not in [kernel["id"] for kernel in told], "it asks for no GPU"


async def test_a_kernel_keeps_its_size_when_it_is_started_again(ask: Ask, an_agent: FakeAgent) -> None:
    await an_agent.start()
    kernel = (await start(ask, "alice", "python3", "0.25")).json
    restarted = await ask("alice", "POST", "api/kernels", kernel["id"], "restart")
    assert (restarted.status, restarted.json["name"]) == (200, "python3.gpu-0.25")
    [told] = (await ask("alice", "GET", "aliquot/api/v1/kernels")).json["kernels"]
    assert (told["name"], told["gpus"]) == ("python3.gpu-0.25", 0.25)


async def test_what_is_no_size_starts_nothing_and_says_what_one_is(ask: Ask) -> None:
    for asked in ("0.333", "lots", "-1", "9", "0"):
        answer = await start(ask, "alice", "python3", asked)
        assert answer.status == 400, asked
        assert answer.json["message"].startswith("KERNEL_GPU of the request: Requested ")
    assert (await ask("alice", "GET", "api/kernels")).json == []


async def test_an_image_of_the_catalogue_gets_the_size_too(
    ask: Ask, a_server: ServerApp, monkeypatch: pytest.MonkeyPatch, an_agent: FakeAgent
) -> None:
    async def refuse(start: Any) -> ContainerPlan:
        raise LaunchError("no engine here")

    await an_agent.start()
    answer = await start(ask, "alice", "open", "0.5")
    assert (answer.status, answer.json["name"]) == (201, "open.gpu-0.5")
    monkeypatch.setattr(a_server.kernel_manager.services.containers, "plan", refuse)
    for name, asked in (("open", "none"), ("open.gpu-none", "0.5")):
        plain = await start(ask, "alice", name, asked)
        assert "no engine here" in plain.json["message"], "it is a container all the same"


async def test_gpu_models_and_an_estimate_reach_the_queue_and_wrong_ones_are_refused(
    ask: Ask, a_server: ServerApp, an_agent: FakeAgent
) -> None:
    await an_agent.start()

    async def started(**env: str) -> Any:
        return await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.25", "env": env})

    answer = await started(KERNEL_GPU_SECONDS="soon")
    assert (answer.status, "KERNEL_GPU_SECONDS" in answer.json["message"]) == (400, True)
    answer = await started(KERNEL_GPU_MODELS="No Such")
    assert (answer.status, "of the model No Such" in answer.json["message"]) == (409, True)
    kernel = (await started(KERNEL_GPU_SECONDS="900")).json
    manager = a_server.kernel_manager.get_kernel(kernel["id"])
    assert wish_of(manager.start_arguments) == Wish(seconds=900.0)
    plain = await ask("alice", "POST", "api/kernels", body={"name": "python3", "env": {"KERNEL_GPU_SECONDS": "soon"}})
    assert plain.status == 201, "it asks for no GPU"
