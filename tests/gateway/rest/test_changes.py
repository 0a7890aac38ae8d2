"""Changes of a kernel's size and of its memory's place over REST.

The tests cover users, bad requests, and changes that have to wait.
"""

from __future__ import annotations

from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from prometheus_client.parser import text_string_to_metric_families
from traitlets.config import Config

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gpu_hook.client.residency_reports import MODE_IS_OFF

from .conftest import Ask
from .fake_agent import GIB, FakeAgent, device, kernel
from .test_contract import check, until

KERNEL = "/aliquot/api/v1/kernels/{kernel_id}"
WHO = ("nobody", "bob", "alice", "ada")
PATHS = (
    ("PATCH", "", {"gpus": 0.5}, (403, 404, 200, 200)),
    ("DELETE", "/resize", None, (403, 404, 404, 404)),
    ("POST", "/swap-out", {}, (403, 404, 202, 202)),
    ("POST", "/restore", {}, (403, 404, 202, 202)),
    ("POST", "/prefetch", {}, (403, 404, 204, 204)),
)

UNKNOWN = "unknown driver function cuFoo"


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.Aliquot.user_limit_gpus = 0.9
    jp_server_config.Aliquot.normal_priority_for = ["alice"]
    return jp_server_config


async def a_kernel_of_alice(ask: Ask, agent: FakeAgent, size: str = "0.25") -> str:
    """Start a kernel of Alice's with a grant of this server, and return its id."""
    agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    agent.gives_room = True
    await agent.start()
    started = await ask("alice", "POST", "api/kernels", body={"name": f"python3.gpu-{size}"})
    assert started.status == 201, started.body
    kernel_id = str(started.json["id"])
    await until_in(ask, kernel_id, "on_gpu")
    return kernel_id


async def until_in(ask: Ask, kernel_id: str, wanted: str) -> None:
    """Wait until the kernel of Alice's is in this state."""

    async def state() -> Any:
        return (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel_id)).json["state"]

    await until(state, lambda state: state == wanted)


@pytest.mark.parametrize(("method", "path", "body", "want"), PATHS, ids=[f"{m} {p}" for m, p, _, _ in PATHS])
async def test_changes_are_the_owners_and_administrators(
    ask: Ask, an_agent: FakeAgent, method: str, path: str, body: Any, want: tuple[int, ...]
) -> None:
    """Change a kernel of another program: the agent alone holds it, and names its owner."""
    an_agent.kernels = [kernel("k1", "alice")]
    an_agent.gives_room = True
    await an_agent.start()
    route = KERNEL + path
    got = {}
    for who in WHO:
        answer = await ask(who, method, "aliquot/api/v1/kernels/k1" + path, body=body)
        got[who] = answer.status
        if answer.status != 204:
            check(answer, route, method.lower())
    assert got == dict(zip(WHO, want, strict=True))


WRONG_WISHES = (
    (None, 400, "which is not a table"),
    ({}, 400, "changes nothing"),
    ([], 400, "not a JSON object"),
    (b"{", 400, "Invalid JSON"),
    ({"gpu": 0.5}, 400, "unknown fields"),
    ({"gpus": "0.5"}, 400, "Use a number above 0"),
    ({"gpus": 0}, 400, "Use a number above 0"),
    ({"gpus": -1}, 400, "Use a number above 0"),
    ({"gpus": True}, 400, "Use a number above 0"),
    ({"gpus": 0.255}, 400, "steps of 0.01"),
    ({"gpus": 1e308}, 400, "steps of 0.01"),
    ({"gpus": 10**400}, 400, "steps of 0.01"),
    ({"gpus": 9}, 400, "sizes here go from 0.01 to 1 in steps"),
    ({"memory": "much"}, 400, "an amount of memory"),
    ({"memory": 0}, 400, "an amount of memory"),
    ({"memory": 1.5}, 400, "an amount of memory"),
    ({"memory": 1 << 70}, 400, "an amount of memory"),
    ({"memory": 1}, 400, "Ask for at least 2 MiB"),
    ({"priority": "high"}, 400, "Use normal or low"),
    ({"priority": 7}, 400, "Use a text"),
    ({"memory": "17GiB"}, 409, "the device has 16.0 GiB"),
    ({"gpus": 1.5}, 409, "takes 2 devices; the kernel has 0.25 GPU on 1 device"),
    ({"gpus": 0.95}, 403, "may have 0.9 in all"),
)


async def test_a_wrong_wish_is_refused_with_what_is_wrong_in_it(ask: Ask, an_agent: FakeAgent) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    for body, status, want in WRONG_WISHES:
        answer = await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body=body)
        assert (answer.status, want in answer.json["message"]) == (status, True), (body, answer.json)
        assert ("resize", kernel_id) not in an_agent.asked, body


async def test_the_largest_size_is_one_figure_everywhere(ask: Ask, an_agent: FakeAgent) -> None:
    """The rules allow 8 GPUs and the node has one: the server reports one until it has more."""

    async def told() -> tuple[float, str, str]:
        sizes = (await ask("alice", "GET", "aliquot/api/v1/sizes")).json
        unknown = await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.333"})
        return sizes["largest_gpus"], sizes["grammar"], unknown.json["message"]

    await a_kernel_of_alice(ask, an_agent)
    most, *texts = await told()
    assert most == 1.0
    assert ["from 0.01 to 1 in steps" in text for text in texts] == [True, True], texts
    an_agent.devices.append(device(index=1, uuid="GPU-2"))
    an_agent.tell_changed()
    most, *texts = await until(told, lambda found: found[0] == 2.0)
    assert most == 2.0
    assert ["from 0.01 to 2 in steps" in text for text in texts] == [True, True], texts


async def test_a_granted_size_is_told_and_stays_over_a_restart(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp
) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    change = {"gpus": 0.5, "memory": "12GiB", "priority": "low"}
    told = check(await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body=change), KERNEL, "patch")
    assert (told["gpus"], told["requested_memory_bytes"], told["priority"]) == (0.5, 12 * GIB, "low")
    assert (told["resize"], told["memory_limit_bytes"]) == (None, 12 * GIB)
    managed = a_server.kernel_manager.get_kernel(kernel_id)

    async def held() -> Any:
        grant = managed.provisioner.grant
        return grant.request.gpus.hundredths, managed.grant.generation == grant.generation

    await until(held, lambda found: found == (50, True))
    assert (await ask("alice", "POST", "api/kernels", kernel_id, "restart", body={})).status == 200
    assert await held() == (50, True)
    again = check(
        await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body={"memory": None}), KERNEL, "patch"
    )
    assert (again["requested_memory_bytes"], again["memory_limit_bytes"]) == (None, 8 * GIB)


async def test_jupyters_kernels_and_sessions_bear_the_name_of_the_size_that_a_kernel_has(
    ask: Ask, an_agent: FakeAgent
) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    session = {"path": "a.ipynb", "type": "notebook", "name": "", "kernel": {"id": kernel_id}}
    assert (await ask("alice", "POST", "api/sessions", body=session)).status == 201

    async def names() -> set[str]:
        [listed] = (await ask("alice", "GET", "api/kernels")).json
        [opened] = (await ask("alice", "GET", "api/sessions")).json
        told = (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel_id)).json
        alone = (await ask("alice", "GET", "api/kernels", kernel_id)).json
        return {listed["name"], opened["kernel"]["name"], told["name"], alone["name"]}

    assert await names() == {"python3.gpu-0.25"}
    change = {"gpus": 0.37, "memory": "5GiB", "priority": "low"}
    assert (await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body=change)).status == 200
    want = "python3.gpu-0.37-5g-low"
    assert await names() == {want}, "with the answer, and not at some later look"
    spec = (await ask("alice", "GET", "api/kernelspecs", want)).json["spec"]
    assert spec["display_name"].endswith(" · 0.37 GPU · 5 GiB · low")
    assert (await ask("alice", "POST", "api/kernels", kernel_id, "restart", body={})).json["name"] == want
    assert await names() == {want}

    an_agent.devices = [device(reserved_bytes=16 * GIB, reserved_hundredths=100)]
    assert (await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body={"gpus": 0.5})).status == 202
    assert await names() == {want}, "a size that it waits for is not its size"


async def test_a_start_that_failed_after_a_resize_is_tried_again_in_the_new_size(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp
) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    assert (await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body={"gpus": 0.5})).status == 200
    kernel = a_server.kernel_manager.get_kernel(kernel_id)
    await kernel._give_up(RuntimeError("the machine has no process to give"))
    assert (kernel.grant, kernel.request().gpus.hundredths) == (None, 50)


async def test_a_size_that_waits_is_pending_until_there_is_room(ask: Ask, an_agent: FakeAgent) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    an_agent.devices = [device(reserved_bytes=16 * GIB, reserved_hundredths=100)]
    answer = await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body={"gpus": 0.5})
    assert answer.status == 202
    told = check(answer, KERNEL, "patch")
    assert (told["gpus"], told["state"]) == (0.25, "on_gpu"), "it goes on as it is"
    resize = told["resize"]
    assert (resize["state"], resize["gpus"], resize["position"]) == ("queued", 0.5, 1)
    assert resize["reason"].startswith("Needs 0.25 GPU more; none is free on gpu0")
    other = await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body={"gpus": 0.75})
    assert other.json["resize"]["gpus"] == 0.75, "a new request replaces the one that waited"
    assert (await ask("alice", "GET", "aliquot/api/v1/status")).json["queue"] == {"length": 1}

    async def mine() -> Any:
        return (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel_id)).json

    an_agent.devices = [device(reserved_bytes=4 * GIB, reserved_hundredths=25)]
    an_agent.tell_changed()
    report = await until(mine, lambda report: report["gpus"] == 0.75)
    assert report["resize"] is None


async def test_a_refused_wish_leaves_the_one_that_waits_also_in_the_record(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp
) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    an_agent.devices = [device(reserved_bytes=16 * GIB, reserved_hundredths=100)]
    path = ("aliquot/api/v1/kernels", kernel_id)
    assert (await ask("alice", "PATCH", *path, body={"gpus": 0.5})).status == 202
    want_resize = a_server.kernel_manager.get_kernel(kernel_id).pending_resize
    assert (await ask("alice", "PATCH", *path, body={"gpus": 0.95})).status == 403
    assert (await ask("alice", "GET", *path)).json["resize"]["gpus"] == 0.5
    assert a_server.kernel_manager.get_kernel(kernel_id).pending_resize == want_resize


async def test_a_wish_can_be_withdrawn_once(ask: Ask, an_agent: FakeAgent) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    an_agent.devices = [device(reserved_bytes=16 * GIB, reserved_hundredths=100)]
    path = ("aliquot/api/v1/kernels", kernel_id)
    assert (await ask("alice", "PATCH", *path, body={"gpus": 0.5})).status == 202
    assert (await ask("bob", "DELETE", *path, "resize")).status == 404
    assert (await ask("alice", "DELETE", *path, "resize")).status == 204
    assert (await ask("alice", "DELETE", *path, "resize")).status == 404
    assert (await ask("alice", "GET", *path)).json["resize"] is None
    assert (await ask("alice", "PATCH", *path, body={"gpus": 0.5})).status == 202
    assert (await ask("alice", "DELETE", "api/kernels", kernel_id)).status == 204
    assert (await ask("ada", "GET", "aliquot/api/v1/status")).json["queue"] == {"length": 0}


async def test_a_class_is_had_by_policy(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "bob", workload_class="opportunistic"), kernel("k2", "bob")]
    an_agent.gives_room = True
    await an_agent.start()
    to_production = await ask("bob", "PATCH", "aliquot/api/v1/kernels/k1", body={"priority": "normal"})
    assert (to_production.status, "normal_priority_for" in to_production.json["message"]) == (403, True)
    assert (await ask("bob", "PATCH", "aliquot/api/v1/kernels/k2", body={"gpus": 0.5})).status == 200, (
        "it has it already"
    )
    assert (await ask("ada", "PATCH", "aliquot/api/v1/kernels/k1", body={"priority": "normal"})).status == 200
    started = await ask("bob", "POST", "api/kernels", body={"name": "python3.gpu-0.25"})
    assert (started.status, "python3.gpu-0.25-low" in started.json["message"]) == (403, True)
    assert (await ask("bob", "POST", "api/kernels", body={"name": "python3.gpu-0.25-low"})).status == 201


async def test_a_kernel_that_waits_to_start_cannot_be_changed(ask: Ask, an_agent: FakeAgent) -> None:
    await an_agent.start()
    kernel_id = (await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.9"})).json["id"]
    await until_in(ask, kernel_id, "queued")
    answer = await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body={"gpus": 0.5})
    assert (answer.status, "it is queued. End it" in answer.json["message"]) == (409, True)


async def test_hints_within_a_second_reach_the_agent_once(
    ask: Ask, an_agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "now", lambda _: 1000.0)
    an_agent.kernels = [kernel("k1", "alice"), kernel("k2", "alice")]
    await an_agent.start()
    for kernel_id in ("k1", "k1", "k2", "k1"):
        assert (await ask("alice", "POST", f"aliquot/api/v1/kernels/{kernel_id}/prefetch", body={})).status == 204
    assert an_agent.asked == [("hint", "k1"), ("hint", "k2")]


@pytest.mark.parametrize(
    ("code", "status"), [("bad_request", 400), ("not_found", 409), ("no_room", 503), ("internal", 503)]
)
async def test_what_the_agent_refuses_is_told_in_its_words(
    ask: Ask, an_agent: FakeAgent, code: str, status: int
) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    an_agent.refusals = {"swap_out": (code, "asked to swap k1; it shares memory by IPC")}
    await an_agent.start()
    answer = await ask("alice", "POST", "aliquot/api/v1/kernels/k1/swap-out", body={})
    assert (answer.status, answer.json["message"]) == (status, "asked to swap k1; it shares memory by IPC")


async def test_without_an_agent_a_change_says_so(ask: Ask, an_agent: FakeAgent) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    await an_agent.stop()

    async def state() -> Any:
        return (await ask("alice", "GET", "aliquot/api/v1/status")).json["node"]["agent"]

    await until(state, lambda state: state == "unavailable")
    swapped = await ask("alice", "POST", "aliquot/api/v1/kernels", kernel_id, "swap-out", body={})
    assert swapped.status == 503
    resized = check(
        await ask("alice", "PATCH", "aliquot/api/v1/kernels", kernel_id, body={"gpus": 0.5}), KERNEL, "patch"
    )
    assert "node agent does not answer" in resized["resize"]["reason"]


async def test_states_and_waits_are_shown_as_the_agent_tells_them(ask: Ask, an_agent: FakeAgent) -> None:
    swapped = {"state": "swapped", "mode": "vmm", "since": 1.8e9, "swapped_bytes": GIB, "swappable_bytes": GIB}
    waits = {"reason": "room for 1 GiB on gpu0", "seconds": 2.4, "before": 1, "expected_seconds": 3}
    unswappable = [{"reason": "ipc", "bytes": 512}]
    an_agent.kernels = [
        kernel("out", "alice", residency={**swapped, "unswappable": unswappable, "swaps_out": 4, "swaps_in": 3}),
        kernel("waits", "alice", residency={**swapped, "waits": waits}),
        kernel("off", "alice", residency={"state": "resident", "mode": "off", "mode_reason": UNKNOWN}),
        kernel("plain", "alice"),
    ]
    an_agent.node = {"oversubscription": 2.5, "host_copies": {"used_bytes": GIB, "budget_bytes": 4 * GIB}}
    await an_agent.start()
    status = check(await ask("alice", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")
    told = {found["id"]: found for found in status["kernels"]}
    assert {name: found["state"] for name, found in told.items()} == {
        "out": "swapped_out",
        "waits": "restoring",
        "off": "on_gpu",
        "plain": "on_gpu",
    }
    assert told["out"]["residency"]["unswappable"] == unswappable
    assert told["waits"]["residency"]["queued"] == {"ahead": waits.pop("before"), **waits}
    assert told["waits"]["reason"] == ("waiting 2 s for GPU memory: room for 1 GiB on gpu0; 1 ahead; about 3 s left")
    assert (told["off"]["residency"]["refusal"], told["plain"]["residency"]) == (UNKNOWN, None)
    assert status["node"]["overcommit"] == 2.5
    assert status["node"]["host_copies"] == {"used_bytes": GIB, "budget_bytes": 4 * GIB, "spilled_bytes": 0}
    text = check(await ask("ada", "GET", "aliquot/api/v1/metrics"), "/aliquot/api/v1/metrics")
    samples = {
        (s.name, s.labels.get("kernel")): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }
    assert samples["aliquot_kernel_swapped_bytes", "out"] == GIB
    assert samples["aliquot_kernel_swaps_total", "out"] == 3, "the direction in is told last"
    assert samples["aliquot_kernel_wait_seconds_total", "waits"] == 0
    assert ("aliquot_kernel_swapped_bytes", "plain") not in samples
    assert samples["aliquot_host_copies_budget_bytes", None] == 4 * GIB
    assert samples["aliquot_overcommit_ratio", None] == 2.5


async def test_a_kernel_that_cannot_be_swapped_says_why(ask: Ask, an_agent: FakeAgent) -> None:
    off = {"state": "resident", "mode": "off"}
    an_agent.kernels = [
        kernel("stuck", "alice", residency={**off, "mode_reason": UNKNOWN}),
        kernel("never", "alice", residency={**off, "mode_reason": MODE_IS_OFF}),
        kernel("free", "alice", residency={"state": "resident", "mode": "vmm"}),
    ]
    await an_agent.start()
    status = check(await ask("alice", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")
    told = {found["id"]: found["residency"]["not_swappable"] for found in status["kernels"]}
    assert told == {"stuck": UNKNOWN, "never": None, "free": None}
    text = check(await ask("ada", "GET", "aliquot/api/v1/metrics"), "/aliquot/api/v1/metrics")
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    stuck = [s for s in samples if s.name == "aliquot_kernel_not_swappable"]
    assert [(s.labels["kernel"], s.labels["reason"], s.value) for s in stuck] == [("stuck", UNKNOWN, 1.0)]
