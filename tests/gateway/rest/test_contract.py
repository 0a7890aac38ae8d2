"""Agreement of the API's answers with gateway/api/openapi.yaml, in both directions."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from contract_files import API
from jsonschema import Draft202012Validator, FormatChecker
from prometheus_client.parser import text_string_to_metric_families
from traitlets.config import Config

from jupyter_aliquot.gateway.api import contract
from jupyter_aliquot.gateway.api.routes import HANDLERS
from jupyter_aliquot.gateway.base.http_errors import HTTP_STATUS

from .conftest import ROOT, Answer, Ask
from .fake_agent import GIB, UUID, FakeAgent, device, escaped, kernel

OPERATIONS = {
    (path, method): operation for path, methods in API["paths"].items() for method, operation in methods.items()
}
LOOKS = 1500


def schema_of(path: str, method: str, status: int) -> tuple[str, dict[str, Any]]:
    """Return the media type and the schema of a documented answer."""
    response = OPERATIONS[path, method]["responses"][str(status)]
    if "$ref" in response:
        response = API["components"]["responses"][response["$ref"].rpartition("/")[2]]
    # The first is the answer to a request that names no other.
    media_type, content = next(iter(response["content"].items()))
    return media_type, content["schema"]


def check(answer: Answer, path: str, method: str = "get") -> Any:
    """Hold an answer to its documented schema, and return its body."""
    media_type, schema = schema_of(path, method, answer.status)
    assert answer.media_type == media_type
    if media_type == "text/plain":
        return answer.body.decode()
    whole = {**schema, "components": API["components"]}
    errors = list(Draft202012Validator(whole, format_checker=FormatChecker()).iter_errors(answer.json))
    assert not errors, errors[0]
    return answer.json


async def until(look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Look again until ``holds`` accepts what it sees.

    Each look is a request, so this gives the server its turns.
    """
    for _ in range(LOOKS):
        found = await look()
        if holds(found):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"never held; last: {found}")


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.Aliquot.user_limit_gpus = 0.95
    return jp_server_config


def test_every_handler_is_documented_and_every_path_has_a_handler() -> None:
    handled = set()
    for route, handler in HANDLERS:
        path = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", route)
        methods = {m for m in ("get", "post", "put", "patch", "delete") if m in vars(handler)}
        handled |= {(path, method) for method in methods}
    assert handled == set(OPERATIONS)


def test_the_document_and_its_schemas_are_well_formed() -> None:
    for name, schema in API["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        if schema["type"] == "object":
            assert schema["required"] == list(schema["properties"]), name
    for operation in OPERATIONS.values():
        assert "403" in operation["responses"]
        assert {"101", "200", "202", "204"} & set(operation["responses"])


async def test_every_path_that_is_read_answers_as_documented(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice"), kernel("k2", "bob", pids=[], interception="unknown")]
    await an_agent.start()
    read = [path for path, method in OPERATIONS if method == "get" and "{" not in path]
    answered = [path for path in read if not path.endswith(("/events", "/agents"))]
    assert len(answered) > 12
    for path in answered:
        for who in ("ada", "alice", "nobody"):
            check(await ask(who, "GET", path), path)


async def test_one_kernel_is_answered_to_its_owner_and_administrators(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    path = "/aliquot/api/v1/kernels/{kernel_id}"
    await an_agent.start()
    statuses = {who: await ask(who, "GET", "aliquot/api/v1/kernels/k1") for who in ("nobody", "bob", "alice", "ada")}
    for answer in statuses.values():
        check(answer, path)
    unknown = await ask("bob", "GET", "aliquot/api/v1/kernels/k2")
    assert [answer.status for answer in statuses.values()] == [403, 404, 200, 200]
    assert unknown.body == statuses["bob"].body.replace(b"k1", b"k2")


async def test_without_an_agent_the_status_says_so_and_what_to_do(ask: Ask) -> None:
    report = check(await ask("alice", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")
    assert report["node"]["agent"] == "unavailable"
    assert "aliquot agent" in report["node"]["message"]
    assert report["devices"] == report["kernels"] == []
    limit = {"gpus": 0.95, "held_gpus": 0.0, "queued_gpus": 0.0, "left_gpus": 0.95, "teams": []}
    assert report["user"] == {"name": "alice", "role": "user", "gpu_limit": limit, "budgets": [], "invitations": []}


async def test_the_status_follows_an_agent_that_goes_and_comes(ask: Ask, an_agent: FakeAgent) -> None:
    async def agent_state() -> Any:
        return check(await ask("alice", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")["node"]["agent"]

    for _ in range(2):
        await an_agent.start()
        await until(agent_state, lambda state: state == "ok")
        await an_agent.stop()
        await until(agent_state, lambda state: state == "unavailable")
    await an_agent.start()
    await until(agent_state, lambda state: state == "ok")


async def test_users_see_aggregates_of_all_and_kernels_of_their_own(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice"), kernel("k2", "bob"), kernel("k3", "bob")]
    an_agent.devices = [
        device(reserved_bytes=12 * GIB, reserved_hundredths=75),
        device(index=1, uuid="lost", lost=True),
    ]
    want_kernels = {"alice": ["k1"], "bob": ["k2", "k3"], "ada": ["k1", "k2", "k3"]}
    want_mine = {"alice": GIB, "bob": 2 * GIB, "ada": 0}
    await an_agent.start()
    for who, want in want_kernels.items():
        report = check(await ask(who, "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")
        assert [found["id"] for found in report["kernels"]] == want
        assert report["devices"][0]["reserved_gpus"] == 0.75
        assert report["devices"][0]["mine_bytes"] == want_mine[who]
        assert [found["lost"] for found in report["devices"]] == [False, True]
        listed = check(await ask(who, "GET", "aliquot/api/v1/kernels"), "/aliquot/api/v1/kernels")
        assert listed["kernels"] == report["kernels"]


async def test_a_kernel_of_another_program_is_told_whole(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice", memory_limit=8 * GIB, attributes={"kernelspec": "python3.gpu-0.25-8g"})]
    await an_agent.start()
    found = check(await ask("alice", "GET", "aliquot/api/v1/kernels/k1"), "/aliquot/api/v1/kernels/{kernel_id}")
    want = {"name": "python3.gpu-0.25-8g", "label": "k1.ipynb", "gpus": 0.25, "requested_memory_bytes": 8 * GIB}
    want |= {
        "state": "on_gpu",
        "memory_limit_bytes": 4 * GIB,
        "used_bytes": GIB,
        "peak_bytes": 2 * GIB,
        "failed_allocations": 3,
    }
    want |= {"created": "2027-01-15T08:00:00.500Z", "interception": "active", "execution_state": None}
    assert {name: found[name] for name in want} == want


async def test_what_goes_past_the_hook_is_told(ask: Ask, an_agent: FakeAgent) -> None:
    host = {"quota_bytes": None, "charged_bytes": 5, "lent_bytes": 9, "peak_bytes": 7, "refusals": 1}
    an_agent.kernels = [
        kernel("k1", "alice", unhooked_processes=[escaped(used_bytes=None)], host_memory=host, enforcement="failed: no")
    ]
    an_agent.kernels[0]["devices"][0]["context_bytes"] = 300
    an_agent.node = {"enforcer": "driver", "foreign_processes": [escaped(index=0), escaped(index=1)]}
    await an_agent.start()
    report = check(await ask("alice", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")
    assert (report["node"]["enforcer"], report["node"]["untracked_processes"]) == ("driver", 1)
    [found] = report["kernels"]
    want_process = {"pid": 77, "name": "python3", "index": 0, "used_bytes": None, "charged_bytes": 0}
    assert found["uncontrolled_processes"] == [{**want_process, "why": "not registered"}]
    assert found["host_memory"] == {"limit_bytes": None, "used_bytes": 5, "peak_bytes": 7, "failed_allocations": 1}
    assert (found["context_bytes"], found["enforcement"]) == (300, "failed: no")
    text = check(await ask("ada", "GET", "aliquot/api/v1/metrics"), "/aliquot/api/v1/metrics")
    values = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
    assert values["aliquot_kernel_uncontrolled_processes"] == values["aliquot_untracked_processes"] == 1
    assert values["aliquot_kernel_host_memory_used_bytes"] == 5
    assert values["aliquot_kernel_context_bytes"] == 300
    assert "aliquot_kernel_host_memory_limit_bytes" not in values


async def test_an_agent_of_a_version_before_tells_what_it_knows(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    await an_agent.start()
    found = check(await ask("alice", "GET", "aliquot/api/v1/kernels/k1"), "/aliquot/api/v1/kernels/{kernel_id}")
    assert (found["uncontrolled_processes"], found["context_bytes"], found["enforcement"]) == ([], 0, "active")


async def test_a_kernel_that_waits_is_pending_with_reason_and_place(ask: Ask, an_agent: FakeAgent) -> None:
    async def mine() -> Any:
        return check(await ask("alice", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")

    await an_agent.start()
    started = await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.9"})
    assert started.status == 201
    report = await until(mine, lambda r: bool(r["kernels"]) and "is free" in (r["kernels"][0]["reason"] or ""))
    [waiting] = report["kernels"]
    assert (waiting["state"], waiting["queue_position"], waiting["gpus"]) == ("queued", 1, 0.9)
    assert (waiting["name"], waiting["owner"]) == ("python3.gpu-0.9", "alice")
    assert waiting["reason"] == "Needs 0.9 GPU; 0.75 GPU is free on gpu0", "its place is told by fields alone"
    assert (waiting["queue_length"], waiting["expected_start"]) == (1, None)
    assert waiting["wait_reason"] == {
        "code": "gpu",
        "requested": {"gpus": 0.9, "memory_bytes": 15460204544 - 15460204544 % (2 << 20)},
        "free": {"gpus": 0.75, "memory_bytes": 12 << 30, "device": 0},
        "host_memory": None,
    }
    bobs = check(await ask("bob", "GET", "aliquot/api/v1/status"), "/aliquot/api/v1/status")
    assert (bobs["kernels"], bobs["queue"]) == ([], {"length": 1})
    assert (await ask("alice", "DELETE", "api/kernels", waiting["id"])).status == 204
    await until(mine, lambda r: r["queue"]["length"] == 0 and not r["kernels"])


async def test_metrics_follow_prometheus_and_name_what_is_there(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    await an_agent.start()
    text = check(await ask("ada", "GET", "aliquot/api/v1/metrics"), "/aliquot/api/v1/metrics")
    samples = {(s.name, s.labels.get("kernel", "")): s for f in text_string_to_metric_families(text) for s in f.samples}
    assert samples["aliquot_agent_up", ""].value == 1
    assert samples["aliquot_device_memory_bytes", ""].labels["uuid"] == UUID
    assert samples["aliquot_kernel_memory_used_bytes", "k1"].value == GIB
    assert samples["aliquot_kernel_busy_seconds_total", "k1"].labels["owner"] == "alice"
    assert samples["aliquot_admission_granted_total", ""].value == 0


@pytest.mark.parametrize(
    ("name", "want", "want_message"),
    [
        ("python3.gpu-0.333", 404, "more than two decimals"),
        ("python3.gpu-0", 404, "a share of 0 GPUs"),
        ("python3.gpu--1", 404, "negative"),
        ("python3.gpu-99", 404, "99 is more than the 1 GPU that may be asked for here"),
        ("fortran.gpu-1", 404, "no kernelspec named 'fortran'"),
        ("python3.gpu-2", 409, "this node has 1 GPU"),
        ("python3.gpu-1", 403, "may have 0.95"),
    ],
)
async def test_a_size_that_cannot_be_is_refused_wherever_it_is_asked(
    name: str, want: int, want_message: str, ask: Ask, an_agent: FakeAgent
) -> None:
    await an_agent.start()
    asked = [await ask("alice", "POST", "api/kernels", body={"name": name})]
    body = {"path": "a.ipynb", "type": "notebook", "kernel": {"name": name}}
    asked.append(await ask("alice", "POST", "api/sessions", body=body))
    if want == 404:
        asked.append(await ask("alice", "GET", "api/kernelspecs", name))
    listed = (await ask("alice", "GET", "api/kernels")).json
    for answer in asked:
        assert answer.status == want
        assert want_message in answer.json["message"]
        assert "Traceback" not in answer.body.decode()
    assert listed == []


def test_every_status_of_our_errors_is_one_that_clients_know() -> None:
    assert set(HTTP_STATUS.values()) <= {400, 403, 404, 409, 410, 429, 500, 502, 503}


def test_the_page_on_rest_names_every_path() -> None:
    page = (ROOT / "docs" / "reference" / "rest-api.md").read_text()
    assert [path for path, method in OPERATIONS if f"`{method.upper()} {path}`" not in page] == []


async def test_the_contract_is_read_off_the_event_loop(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = []

    def read() -> str:
        readers.append(threading.get_ident())
        return '{"openapi": "3.1.0"}'

    monkeypatch.setattr(contract, "contract_text", read)
    answer = await ask("alice", "GET", "aliquot/api/v1/openapi.json")
    assert (answer.status, answer.json) == (200, {"openapi": "3.1.0"})
    assert len(readers) == 1
    assert threading.get_ident() not in readers
