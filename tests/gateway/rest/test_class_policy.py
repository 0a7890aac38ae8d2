"""Users who may have normal priority: each entrance gives the same answer.

A refused request loses nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.class_policy import ClassPolicy
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.sizes.grammar import parse_size
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.errors import LimitError
from jupyter_aliquot.provisioner.grants.gateway_client import GatewayConnection
from jupyter_aliquot.provisioner.resources import GpuShare, Request, WorkloadClass

from .conftest import USERS, Ask
from .fake_agent import GIB, FakeAgent, device
from .test_contract import check, until

LOW = Request(GpuShare(25), workload_class=WorkloadClass.OPPORTUNISTIC)
HIGH = Request(GpuShare(25))
REFUSED = (
    "Requested 0.25 GPU with normal priority, but bob may have low-priority kernels only "
    "(c.Aliquot.normal_priority_for). "
    "Choose the kernelspec python3.gpu-0.25-low"
)


@pytest.fixture
def users() -> dict[str, Any]:
    return {**USERS, "alice": {**USERS["alice"], "teams": ["serving"]}}


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.Aliquot.normal_priority_for = ["@serving"]
    return jp_server_config


async def an_agent_with_room(agent: FakeAgent) -> None:
    agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    agent.gives_room = True
    await agent.start()


async def test_a_start_that_is_refused_names_the_kernelspec_to_choose_and_leaves_nothing(
    ask: Ask, an_agent: FakeAgent
) -> None:
    await an_agent_with_room(an_agent)
    session = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "python3.gpu-0.25"}}
    for path, body in (("api/kernels", {"name": "python3.gpu-0.25"}), ("api/sessions", session)):
        answer = await ask("bob", "POST", path, body=body)
        assert (answer.status, answer.json["message"]) == (403, REFUSED), path
        assert (await ask("bob", "GET", path)).json == [], path
    assert (await ask("bob", "GET", "aliquot/api/v1/kernels")).json == {"kernels": []}
    assert (await ask("bob", "POST", "api/kernels", body={"name": "python3.gpu-0.25-low"})).status == 201
    assert (await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.25"})).status == 201, "of the team"
    assert (await ask("ada", "POST", "api/kernels", body={"name": "python3.gpu-0.25"})).status == 201, "administrator"


async def test_a_session_whose_other_kernel_is_refused_keeps_the_one_it_has(ask: Ask, an_agent: FakeAgent) -> None:
    await an_agent_with_room(an_agent)
    low = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "python3.gpu-0.25-low"}}
    session = (await ask("bob", "POST", "api/sessions", body=low)).json
    answer = await ask("bob", "PATCH", "api/sessions", session["id"], body={"kernel": {"name": "python3.gpu-0.25"}})
    assert REFUSED in answer.json["message"]
    [kept] = (await ask("bob", "GET", "api/sessions")).json
    assert kept["kernel"]["id"] == session["kernel"]["id"]
    assert [one["id"] for one in (await ask("bob", "GET", "api/kernels")).json] == [session["kernel"]["id"]]


async def test_each_user_is_offered_the_sizes_in_a_class_that_they_may_have(ask: Ask) -> None:
    async def sizes(who: str) -> tuple[bool, list[str]]:
        told = check(await ask(who, "GET", "aliquot/api/v1/sizes"), "/aliquot/api/v1/sizes")
        sizes = [size["name"].partition(".gpu-")[2] for size in told["sizes"] if size["kernelspec"] == "python3"]
        return told["may_use_normal_priority"], sizes

    assert await sizes("bob") == (False, ["0.25-low", "0.5-low", "1-low"])
    assert await sizes("alice") == (True, ["0.25", "0.5", "1", "0.25-low"])
    listed = (await ask("bob", "GET", "api/kernelspecs")).json["kernelspecs"]
    assert [name for name in listed if name.startswith("python3")] == [
        "python3",
        *(f"python3.gpu-{size}-low" for size in ("0.25", "0.5", "1")),
    ]
    assert (await ask("bob", "GET", "api/kernelspecs/python3.gpu-0.25")).status == 200, "an old kernel may be of it"


async def test_a_refused_change_of_class_leaves_the_kernel_and_what_it_waits_for(ask: Ask, an_agent: FakeAgent) -> None:
    await an_agent_with_room(an_agent)
    kernel_id = (await ask("bob", "POST", "api/kernels", body={"name": "python3.gpu-0.25-low"})).json["id"]
    path = ("aliquot/api/v1/kernels", kernel_id)

    async def mine() -> Any:
        return (await ask("bob", "GET", *path)).json

    await until(mine, lambda report: report["state"] == "on_gpu")
    an_agent.devices = [device(reserved_bytes=16 * GIB, reserved_hundredths=100)]
    assert (await ask("bob", "PATCH", *path, body={"gpus": 0.5})).status == 202
    answer = await ask("bob", "PATCH", *path, body={"priority": "normal"})
    assert answer.status == 403
    assert answer.json["message"].endswith("(c.Aliquot.normal_priority_for). The kernel stays as it is")
    report = await mine()
    assert (report["priority"], report["resize"]["gpus"]) == ("low", 0.5)


async def test_the_local_socket_asks_the_same_policy(ask: Ask, an_agent: FakeAgent, runtime_dir: Path) -> None:
    """Ask at the local socket.

    Its user is an account of the machine, one name more on a server that tells users apart.
    """
    await an_agent_with_room(an_agent)
    await ask("ada", "GET", "aliquot/api/v1/status")

    async def granted(request: Request) -> WorkloadClass:
        connection = await GatewayConnection.connect(RuntimeDir(runtime_dir).gateway_socket)
        try:
            grant = await connection.ask("k1", request, "a.ipynb", "python3.gpu-0.25", 10.0)
            await connection.release()
            return grant.request.workload_class
        finally:
            await connection.close()

    with pytest.raises(LimitError, match=r"with normal priority, .* Choose the kernelspec python3\.gpu-0\.25-low"):
        await granted(HIGH)
    assert await granted(LOW) is WorkloadClass.OPPORTUNISTIC


def test_a_function_decides_about_everybody_and_its_failure_is_no() -> None:
    asked: list[User] = []

    def night_shift(user: User) -> bool:
        asked.append(user)
        return user.name == "bob" or {}[user.name]

    policy = ClassPolicy(night_shift)
    bob, ada = User("bob", "user"), User("ada", "admin")
    assert policy.may_have_normal_priority(bob)
    assert not policy.may_have_normal_priority(ada)
    assert asked == [bob, ada]


def test_offered_sizes_are_those_that_the_user_may_have() -> None:
    sizes = [parse_size(size) for size in ("0.25", "0.25-low", "1-8g")]
    want_low = [parse_size(size) for size in ("0.25-low", "1-8g-low")]
    policy = ClassPolicy(("alice",))
    assert policy.offered(User("alice", "user"), sizes) == sizes
    assert policy.offered(User("bob", "user"), sizes) == want_low
    assert ClassPolicy().offered(User("bob", "user"), sizes) == sizes, "by default everybody has both classes"
