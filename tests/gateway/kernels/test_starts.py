from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from lead_by_hand import LeadByHand
from tornado.httpclient import HTTPClientError

from jupyter_aliquot.gateway.kernels.services import KernelServices
from jupyter_aliquot.provisioner.errors import EngineUnavailableError
from jupyter_aliquot.provisioner.terminations import EndingCode, asked_by_rule


async def post(fetch: Any, name: str, **body: Any) -> dict[str, Any]:
    answer = await fetch("api", "kernels", method="POST", body=json.dumps({"name": name, **body}))
    assert answer.code == 201
    return json.loads(answer.body)  # type: ignore[no-any-return]


async def get(fetch: Any, kernel_id: str) -> dict[str, Any]:
    return json.loads((await fetch("api", "kernels", kernel_id)).body)  # type: ignore[no-any-return]


async def refusal(request: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(HTTPClientError) as caught:
        await request
    assert caught.value.response is not None
    return caught.value.code, json.loads(caught.value.response.body)


async def test_a_sized_kernel_runs_within_its_grant(
    a_gateway: Any, jp_fetch: Any, until: Any, environment: Any
) -> None:
    kernel = await post(jp_fetch, "python3.gpu-0.25")
    await until(lambda: a_gateway.kernels.kernel_state(kernel["id"])[0] == "on_gpu", 30)
    assert a_gateway.held() == {kernel["id"]}
    known = a_gateway.node.kernels()[kernel["id"]]
    assert (known["hundredths"], known["attributes"]) == (25, {"kernelspec": "python3.gpu-0.25"})
    pid = a_gateway.kernels.get_kernel(kernel["id"]).provisioner.pid
    await until(lambda: pid in a_gateway.node.kernels()[kernel["id"]]["pids"])
    assert environment(pid)["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    assert environment(pid)["ALIQUOT_KERNEL_DIR"].endswith(kernel["id"])
    await jp_fetch("api", "kernels", kernel["id"], method="DELETE")
    assert a_gateway.held() == set()
    assert a_gateway.node.kernels() == {}


async def test_a_plain_kernel_has_no_grant(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    kernel = await post(jp_fetch, "python3")
    assert a_gateway.kernels.get_kernel(kernel["id"]).has_kernel, "as in Jupyter, it is there when it is answered"
    assert a_gateway.held() == set()
    await jp_fetch("api", "kernels", kernel["id"], method="DELETE")


async def test_a_plain_kernel_needs_no_agent(a_gateway: Any, jp_fetch: Any) -> None:
    a_gateway.node.stop()
    kernel = await post(jp_fetch, "python3")
    assert a_gateway.kernels.get_kernel(kernel["id"]).has_kernel
    await jp_fetch("api", "kernels", kernel["id"], method="DELETE")


async def test_a_kernel_that_must_wait_says_why_and_starts_later(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    first = await post(jp_fetch, "python3.gpu-1")
    await until(lambda: a_gateway.held() == {first["id"]})
    second = await post(jp_fetch, "python3.gpu-0.5")
    third = await post(jp_fetch, "python3.gpu-0.5")
    want_reason = "Needs 0.5 GPU; none is free"
    await until(lambda: a_gateway.kernels.kernel_state(third["id"]) == ("queued", want_reason))
    model = await get(jp_fetch, third["id"])
    assert (model["execution_state"], model["reason"]) == ("starting", want_reason)
    await jp_fetch("api", "kernels", first["id"], method="DELETE")
    for kernel in (second, third):
        await until(lambda kernel=kernel: a_gateway.kernels.kernel_state(kernel["id"])[0] == "on_gpu", 30)
    assert "reason" not in await get(jp_fetch, third["id"])


async def test_a_pending_kernel_is_deleted_at_once(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    first = await post(jp_fetch, "python3.gpu-1")
    await until(lambda: a_gateway.held() == {first["id"]})
    second = await post(jp_fetch, "python3.gpu-0.5")
    await until(lambda: a_gateway.kernels.kernel_state(second["id"])[0] == "queued")
    await jp_fetch("api", "kernels", second["id"], method="DELETE")
    assert [entry.kernel_id for entry in a_gateway.admission.snapshot().queue] == []
    code, _ = await refusal(jp_fetch("api", "kernels", second["id"]))
    assert code == 404
    assert a_gateway.kernels.owner_of(second["id"]) is None


async def test_what_can_never_fit_is_answered_at_once(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    await until(lambda: a_gateway.admission.snapshot().node.devices)
    code, answer = await refusal(post(jp_fetch, "python3.gpu-3"))
    assert code == 409
    assert "Requested 3 GPUs" in answer["message"]
    assert "this node has 1 GPU" in answer["message"]
    assert json.loads((await jp_fetch("api", "kernels")).body) == []


async def test_a_start_that_fails_is_dead_with_a_reason_and_no_grant(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    kernel = await post(jp_fetch, "broken.gpu-0.5")
    await until(lambda: a_gateway.kernels.kernel_state(kernel["id"])[0] == "ended")
    model = await get(jp_fetch, kernel["id"])
    assert model["execution_state"] == "dead"
    assert model["reason"].startswith("'/nonexistent/program' cannot be started: not found")
    assert a_gateway.held() == set()
    assert a_gateway.node.kernels() == {}
    await jp_fetch("api", "kernels", kernel["id"], method="DELETE")
    assert kernel["id"] not in a_gateway.kernels


async def test_a_start_that_failed_can_be_tried_again(
    a_gateway: Any, jp_fetch: Any, until: Any, kernelspecs: Any
) -> None:
    kernel = await post(jp_fetch, "broken.gpu-0.5")
    await until(lambda: a_gateway.kernels.kernel_state(kernel["id"])[0] == "ended")
    await jp_fetch("api", "kernels", kernel["id"], "restart", method="POST", allow_nonstandard_methods=True)
    await until(lambda: a_gateway.kernels.kernel_state(kernel["id"])[0] == "ended")
    assert "not found" in (await get(jp_fetch, kernel["id"]))["reason"]
    assert a_gateway.held() == set()


async def test_answers_about_a_pending_kernel_are_clear(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    first = await post(jp_fetch, "python3.gpu-1")
    await until(lambda: a_gateway.held() == {first["id"]})
    second = await post(jp_fetch, "python3.gpu-0.5")
    # The kernel has its reason after its first turn.
    await until(lambda: a_gateway.kernels.kernel_state(second["id"])[1].startswith("Needs 0.5 GPU"))
    kernel = ("api", "kernels", second["id"])
    answer = await jp_fetch(*kernel, "interrupt", method="POST", allow_nonstandard_methods=True)
    assert answer.code == 204
    assert (await get(jp_fetch, second["id"]))["reason"].startswith("Needs 0.5 GPU"), "it stays in the queue"
    answer = await jp_fetch(*kernel, "restart", method="POST", allow_nonstandard_methods=True)
    assert json.loads(answer.body)["reason"].startswith("Needs 0.5 GPU"), "it keeps its place"


async def test_two_deletes_end_a_kernel_once(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    kernel = await post(jp_fetch, "idle.gpu-0.25")
    await until(lambda: a_gateway.kernels.get_kernel(kernel["id"]).ready.done())
    delete = [jp_fetch("api", "kernels", kernel["id"], method="DELETE") for _ in range(2)]
    answers = await asyncio.gather(*delete)
    assert [answer.code for answer in answers] == [204, 204]
    assert a_gateway.held() == set()


async def test_a_name_of_no_letters_is_none(a_gateway: Any, jp_fetch: Any) -> None:
    assert (await post(jp_fetch, ""))["name"] == "python3"


async def test_an_id_that_is_no_id_is_refused(a_gateway: Any, jp_fetch: Any) -> None:
    code, answer = await refusal(post(jp_fetch, "python3.gpu-0.25", kernel_id="../../escaped"))
    assert code == 400
    assert "Kernel id" in answer["message"]


async def test_an_agent_that_does_not_come_back_fails_the_start(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    a_gateway.node.stop()
    await until(lambda: a_gateway.admission.snapshot().agent_state == "unavailable")
    kernel = await post(jp_fetch, "python3.gpu-0.25")
    await until(lambda: a_gateway.kernels.kernel_state(kernel["id"])[0] == "ended")
    assert a_gateway.kernels.kernel_state(kernel["id"])[1].count("the node agent is unavailable") == 1


async def test_environments_do_not_leak_between_kernels(a_gateway: Any, until: Any, environment: Any) -> None:
    """Start four kernels at once: with a secret, with another, and two without."""
    clean = {name: value for name, value in os.environ.items() if name != "SECRET"}
    wants = ["alice's", "bob's", None, None]

    async def start(secret: str | None) -> str:
        env = dict(clean) if secret is None else {**clean, "SECRET": secret}
        return str(await a_gateway.kernels.start_kernel(kernel_name="idle.gpu-0.25", env=env))

    ids = await asyncio.gather(*(start(secret) for secret in wants))
    found = []
    for kernel_id in ids:
        kernel = a_gateway.kernels.get_kernel(kernel_id)
        await until(lambda kernel=kernel: kernel.ready.done())
        found.append(environment(kernel.provisioner.pid).get("SECRET"))
    assert found == wants


async def test_without_pending_kernels_a_start_waits_in_its_request(
    a_gateway: Any, jp_fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(a_gateway.kernels, "use_pending_kernels", False)
    kernel = await post(jp_fetch, "light.gpu-0.5")
    assert a_gateway.held() == {kernel["id"]}
    code, answer = await refusal(post(jp_fetch, "broken.gpu-0.5"))
    assert (code, "cannot be started" in answer["message"]) == (500, True)
    assert a_gateway.kernels.list_kernel_ids() == [kernel["id"]]
    assert a_gateway.held() == {kernel["id"]}


async def test_a_plain_start_that_fails_is_refused_as_in_jupyter(a_gateway: Any, jp_fetch: Any) -> None:
    code, _ = await refusal(post(jp_fetch, "broken"))
    assert code == 500
    assert a_gateway.kernels.list_kernel_ids() == []
    assert a_gateway.kernels.owners == {}


@pytest.mark.parametrize("services", [KernelServices()], ids=["no services"])
async def test_without_the_extension_sized_kernels_ask_by_themselves(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    await a_gateway.socket.stop()
    first = await post(jp_fetch, "light.gpu-0.5")
    await until(lambda: first["id"] in a_gateway.node.kernels())
    large = await post(jp_fetch, "python3.gpu-1")
    await until(lambda: a_gateway.kernels.kernel_state(large["id"]) == ("queued", "asking for a GPU"))
    await jp_fetch("api", "kernels", large["id"], method="DELETE")
    assert large["id"] not in a_gateway.kernels
    await jp_fetch("api", "kernels", first["id"], method="DELETE")
    assert a_gateway.node.kernels() == {}


async def test_a_recovered_process_of_root_is_not_started_again(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    kernel = await post(jp_fetch, "python3")
    managed = a_gateway.kernels.get_kernel(kernel["id"])
    managed._refuses_processes = lambda: True  # as a later gateway's, which runs as root
    with pytest.raises(HTTPClientError):
        await jp_fetch("api", "kernels", kernel["id"], "restart", method="POST", allow_nonstandard_methods=True)
    assert "this gateway runs as root" in (await get(jp_fetch, kernel["id"]))["reason"]
    assert not managed.has_kernel


@pytest.mark.parametrize("services", [KernelServices(lead=LeadByHand(True))], ids=["cut off later"])
async def test_a_replica_that_lost_its_lease_ends_no_kernel_by_a_rule_and_does_for_its_owner(
    a_gateway: Any, services: Any, jp_fetch: Any
) -> None:
    kernel = await post(jp_fetch, "python3")
    services.lead.is_held = False
    culled = asked_by_rule(EndingCode.CULLED, "after 60 min idle")
    with pytest.raises(EngineUnavailableError, match="Requested the end of a kernel, but this replica"):
        await a_gateway.kernels.end_kernel(kernel["id"], culled)
    assert kernel["id"] in a_gateway.kernels
    await jp_fetch("api", "kernels", kernel["id"], method="DELETE")
    assert kernel["id"] not in a_gateway.kernels


@pytest.mark.parametrize("services", [KernelServices(lead=LeadByHand(False))], ids=["cut off"])
async def test_a_replica_whose_lease_may_be_anothers_refuses_starts(a_gateway: Any, jp_fetch: Any) -> None:
    code, told = await refusal(post(jp_fetch, "python3"))
    assert code == 503
    assert told["message"].startswith(
        "Requested a kernel, but this replica of the server cannot reach the Kubernetes API"
    )
    assert a_gateway.kernels.list_kernel_ids() == []
