"""Dry runs at GET /aliquot/api/v1/dry-run: outcomes, users, and refused questions."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets.config import Config

from .conftest import Ask
from .fake_agent import GIB, FakeAgent, device, kernel
from .test_contract import check, until

PATH = "/aliquot/api/v1/dry-run"
SEVERAL = "/aliquot/api/v1/dry-runs"


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.Aliquot.user_limit_gpus = 0.9
    jp_server_config.Aliquot.normal_priority_for = ["alice"]
    return jp_server_config


async def outlook(ask: Ask, who: str, status: int = 200, **query: Any) -> Any:
    answer = await ask(who, "GET", PATH, params=query)
    assert answer.status == status, answer.body
    return check(answer, PATH)


async def test_a_size_is_told_with_its_name_its_limit_and_what_would_come(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True  # 0.75 of its device of 16 GiB is free
    await an_agent.start()
    low = await outlook(ask, "alice", gpus=0.3, memory="6GiB", **{"priority": "low"})
    assert low == {
        "suffix": "gpu-0.3-6g-low",
        "gpus": 0.3,
        "requested_memory_bytes": 6 * GIB,
        "memory_limit_bytes": 6 * GIB,
        "priority": "low",
        "outcome": "starts",
        "position": None,
        "message": "starts at once",
        "memory_sharing": None,
        "keeps_memory": False,
    }
    said = {gpus: (await outlook(ask, "alice", gpus=gpus))["message"] for gpus in (0.5, 0.8, 0.95, 2, 20)}
    heads = {gpus: message.partition("; ")[0] for gpus, message in said.items()}
    assert heads == {
        0.5: "starts at once",
        0.8: "queued: needs 0.8 GPU",
        0.95: "over limit: requested 0.95 GPU, but alice holds 0, waits for 0 and may have 0.9 in all. Choose "
        "a smaller size, end a kernel that is not needed, or, to change the size of one that runs, resize it "
        "or end it first",
        2: "never fits: requested 2 GPUs (32.0 GiB), but this node has 1 GPU (16.0 GiB). Ask for less",
        20: "never fits: requested 20 GPUs (320.0 GiB), but this node has 1 GPU (16.0 GiB)",
    }
    started = await ask("alice", "POST", "api/kernels", body={"name": f"python3.{low['suffix']}"})
    assert started.status == 201
    quota = (await ask("alice", "GET", "aliquot/api/v1/status")).json["user"]["gpu_limit"]
    assert quota["gpus"] == 0.9
    assert quota["held_gpus"] + quota["queued_gpus"] == 0.3
    assert quota["left_gpus"] == pytest.approx(0.6)
    assert [op for op, _ in an_agent.asked if op == "reserve"] in ([], ["reserve"]), "only the kernel has reserved"


async def test_a_class_and_an_agent_that_cannot_be_had_are_told(ask: Ask, an_agent: FakeAgent) -> None:
    away = await outlook(ask, "alice", gpus=0.5)
    assert (away["outcome"], away["position"], away["memory_limit_bytes"]) == ("queued", 1, None)
    assert away["message"].startswith("queued: the node agent does not answer: ")
    told = await outlook(ask, "bob", gpus=0.5)
    assert told["outcome"] == "never"
    assert told["message"].startswith("not allowed: requested 0.5 GPU with normal priority, but bob may have")


UNREADABLE = (
    ({}, "changes nothing"),
    ({"memory": "6GiB"}, "No size was requested"),
    ({"gpus": "many"}, "is not a number"),
    ({"gpus": ""}, "is not a number"),
    ({"gpus": "nan"}, "Use a number above 0"),
    ({"gpus": "inf"}, "Use a number above 0"),
    ({"gpus": "0"}, "Use a number above 0"),
    ({"gpus": "0.255"}, "steps of 0.01"),
    ({"gpus": "10000"}, "sizes here go from 0.01 to 9999.99"),
    ({"gpus": "1", "memory": "much"}, "an amount of memory"),
    ({"gpus": "1", "memory": "1.5GiB"}, "whole GiB"),
    ({"gpus": "1", "memory": "100000GiB"}, "whole GiB, up to 99999"),
    ({"gpus": "50%"}, "Requested gpus='50%',"),
    ({"gpus": "1", "memory": "50%"}, "is '50%', which is not valid"),
    ({"gpus": "1", "priority": "high"}, "Use normal or low"),
    ([("gpus", "1"), ("gpus", "2")], "takes it once"),
)


async def test_a_question_that_cannot_be_read_says_what_is_wrong(ask: Ask) -> None:
    for query, want in UNREADABLE:
        pairs = query.items() if isinstance(query, dict) else query
        answer = await ask("alice", "GET", PATH, params=list(pairs))
        check(answer, PATH)
        assert answer.status == 400, query
        assert want in answer.json["message"], query


async def test_a_kernels_outlook_is_its_owners_and_administrators(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    an_agent.devices = [device()]
    await an_agent.start()
    got = {}
    for who in ("nobody", "bob", "alice", "ada"):
        answer = await ask(who, "GET", PATH, params={"gpus": 0.5, "kernel": "k1"})
        check(answer, PATH)
        got[who] = (answer.status, answer.json["message"])
    unknown = await ask("bob", "GET", PATH, params={"gpus": 0.5, "kernel": "k2"})
    assert got["bob"] == (404, unknown.json["message"].replace("k2", "k1"))
    assert got["nobody"][0] == 403
    assert got["alice"] == got["ada"] == (200, "changes at once")
    more = await outlook(ask, "alice", memory="6.5GiB", kernel="k1")
    assert (more["suffix"], more["memory_limit_bytes"]) == ("gpu-0.25-7g", 6 * GIB + GIB // 2)
    assert not any(op == "resize" for op, _ in an_agent.asked)


async def test_a_kernel_without_a_gpu_has_no_outlook(ask: Ask, an_agent: FakeAgent) -> None:
    await an_agent.start()
    plain = await ask("alice", "POST", "api/kernels", body={"name": "python3"})
    answer = await ask("alice", "GET", PATH, params={"gpus": 0.5, "kernel": plain.json["id"]})
    assert answer.status == 409
    assert "holds no GPU" in answer.json["message"]


async def test_a_kernel_that_is_replaced_leaves_its_room_and_its_owners_quota(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    started = await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.5"})
    mine = started.json["id"]
    await until(lambda: ask("alice", "GET", f"api/kernels/{mine}"), lambda _: bool(an_agent.kernels))
    an_agent.devices = [device(reserved_hundredths=75)]
    answers = {who: await ask(who, "GET", PATH, params={"gpus": 0.7, "replaces": mine}) for who in ("bob", "ada")}
    assert answers["bob"].status == 404
    assert answers["ada"].json["outcome"] == "queued", "an administrator's notebook does not end it"
    assert (await outlook(ask, "ada", gpus=0.7))["outcome"] == "queued"
    assert (await outlook(ask, "alice", gpus=0.7, replaces=mine))["outcome"] == "starts"
    beside = await outlook(ask, "alice", gpus=0.7)
    more = await outlook(ask, "alice", gpus=0.95, replaces=mine)
    assert beside["message"].startswith(
        "over limit: requested 0.7 GPU, but alice holds 0.5, waits for 0 and may have 0.9 in all"
    )
    assert more["message"].startswith("over limit: requested 0.95 GPU, but alice holds 0, waits for 0 ")
    both = await ask("alice", "GET", PATH, params={"gpus": 0.1, "replaces": mine, "kernel": mine})
    assert both.status == 400


async def test_several_sizes_are_told_in_one_answer_as_each_by_itself(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    sizes = ["gpu-0.5", "gpu-0.8", "GPU-0.3-6g-low", "gpu-2"]
    one_by_one = [
        await outlook(ask, "alice", gpus=0.5),
        await outlook(ask, "alice", gpus=0.8),
        await outlook(ask, "alice", gpus=0.3, memory="6GiB", **{"priority": "low"}),
        await outlook(ask, "alice", gpus=2),
    ]
    answer = await ask("alice", "GET", SEVERAL, params=[("size", size) for size in sizes])
    assert answer.status == 200, answer.body
    assert check(answer, SEVERAL) == {"dry_runs": one_by_one}


async def test_the_models_of_a_request_are_tried(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.gives_room = True
    await an_agent.start()
    there = (await ask("ada", "GET", "aliquot/api/v1/status")).json["devices"][0]["name"]
    assert (await outlook(ask, "alice", gpus=0.5, models=f"No Such,{there}"))["outcome"] == "starts"
    other = await outlook(ask, "alice", gpus=0.5, models="No Such")
    assert other["message"].startswith("never fits: requested 0.5 GPU of the model No Such, but no node has so many")
    both = await ask("alice", "GET", SEVERAL, params=[("size", "gpu-0.5"), ("models", "No Such")])
    assert [one["outcome"] for one in check(both, SEVERAL)["dry_runs"]] == ["never"]
    for query, words in (({"models": ";"}, "models of the query is ';'"), ({"models": there, "kernel": "k"}, "keeps")):
        refused = await ask("alice", "GET", PATH, params={"gpus": 0.5, **query})
        assert (refused.status, words in refused.json["message"]) == (400, True)


async def test_several_sizes_of_a_kernel_are_the_whole_of_what_it_would_have(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    an_agent.devices = [device()]
    await an_agent.start()
    answer = await ask("alice", "GET", SEVERAL, params=[("size", "gpu-0.5"), ("size", "gpu-2"), ("kernel", "k1")])
    told = [(one["outcome"], one["requested_memory_bytes"]) for one in check(answer, SEVERAL)["dry_runs"]]
    assert told == [("starts", None), ("never", None)]
    assert (await ask("bob", "GET", SEVERAL, params={"size": "gpu-0.5", "kernel": "k1"})).status == 404
    both = await ask("alice", "GET", SEVERAL, params={"size": "gpu-0.5", "kernel": "k1", "replaces": "k1"})
    assert both.status == 400


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ([], "Requested 0 sizes"),
        ([("size", "gpu-0.1")] * 65, "Requested 65 sizes. Request 1 to 64"),
        ([("size", "gpu-0.5"), ("size", "0.25")], "Requested the size '0.25'"),
        ([("size", "gpu-0.255")], "more than two decimals"),
        ([("size", "gpu-0.5-lo")], "is no option"),
        ([("size", "gpu-0.5"), ("kernel", "a"), ("kernel", "b")], "takes it once"),
    ],
)
async def test_several_sizes_that_cannot_be_read_say_what_is_wrong(ask: Ask, query: Any, want: str) -> None:
    answer = await ask("alice", "GET", SEVERAL, params=query)
    check(answer, SEVERAL)
    assert answer.status == 400
    assert want in answer.json["message"]
