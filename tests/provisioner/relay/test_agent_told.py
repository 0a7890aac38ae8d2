"""The relay tells the node agent of work before the kernel gets it, and again after a return."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from relay_house import Gateway, House, ipykernel, until
from scripted_agent import Agent

from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.provisioner.errors import RelayRefusedError
from jupyter_aliquot.provisioner.relay.client.control import RelayRecord, read_relay_record, spawn
from jupyter_aliquot.provisioner.resources import KernelProcess


def test_work_is_told_while_the_kernel_has_not_seen_it(a_house: House) -> None:
    async def scene(agent: Agent) -> None:
        record = await a_house.kernel(tells_agent=True)
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("1"))
        await until(lambda: agent.work == 0)
        assert record.kernel is not None
        os.kill(record.kernel.pid, signal.SIGSTOP)
        try:
            cell = gateway.execute("1")
            await until(lambda: agent.work == 1)
            told = agent.heard[-1]
            assert (told["op"], told["kernel_id"], told["open"]) == ("activity", record.kernel_id, 1)
            assert told["since"] > 0
            assert not [m for m in gateway.messages if m["parent_header"].get("msg_id") == cell]
        finally:
            os.kill(record.kernel.pid, signal.SIGCONT)
        await gateway.idle(cell)
        await until(lambda: agent.work == 0)

    agent = Agent(a_house.runtime.agent_socket)
    try:
        asyncio.run(scene(agent))
    finally:
        agent.close()


def test_the_beginning_and_the_end_of_work_are_told_once(a_house: House) -> None:
    async def scene(agent: Agent) -> None:
        gateway = await Gateway(await a_house.kernel(tells_agent=True)).connect()
        await gateway.idle(gateway.execute("1"))
        await until(lambda: agent.work == 0)
        before = len(agent.asked("activity"))
        for _ in range(3):
            cell = gateway.execute("1")
            await until(lambda: agent.work == 1)
            await gateway.idle(cell)
            await until(lambda: agent.work == 0)
        assert [line["work"] for line in agent.asked("activity")[before:]] == [1, 0] * 3

    agent = Agent(a_house.runtime.agent_socket)
    try:
        asyncio.run(scene(agent))
    finally:
        agent.close()


def test_a_wait_for_input_is_told_and_its_end_before_the_kernel_has_the_answer(a_house: House) -> None:
    async def scene(agent: Agent) -> None:
        record = await a_house.kernel(tells_agent=True)
        gateway = await Gateway(record).connect()
        cell = gateway.execute("input()")
        queued = gateway.execute("1")
        await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
        await until(lambda: agent.told("input") is not None)
        assert (agent.told("work"), agent.told("input") >= agent.told("since")) == (2, True)
        assert record.kernel is not None
        os.kill(record.kernel.pid, signal.SIGSTOP)
        try:
            gateway.request("input_reply", {"value": ""}, "stdin")
            await until(lambda: agent.told("input") is None)
            assert agent.told("work") == 2
        finally:
            os.kill(record.kernel.pid, signal.SIGCONT)
        await gateway.idle(cell)
        await gateway.done(queued)

    agent = Agent(a_house.runtime.agent_socket)
    try:
        asyncio.run(scene(agent))
    finally:
        agent.close()


def test_a_comm_message_is_told_before_the_kernel_sees_it(a_house: House) -> None:
    async def scene(agent: Agent) -> None:
        record = await a_house.kernel(tells_agent=True)
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("1"))
        assert record.kernel is not None
        os.kill(record.kernel.pid, signal.SIGSTOP)
        try:
            gateway.request("comm_msg", {"comm_id": "none", "data": {}})
            await until(lambda: agent.work == 1)
        finally:
            os.kill(record.kernel.pid, signal.SIGCONT)
        await until(lambda: agent.work == 0)

    agent = Agent(a_house.runtime.agent_socket)
    try:
        asyncio.run(scene(agent))
    finally:
        agent.close()


def test_an_agent_that_comes_back_is_told_the_present_state(a_house: House) -> None:
    agents = [Agent(a_house.runtime.agent_socket)]

    async def scene() -> None:
        record = await a_house.kernel(tells_agent=True)
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("1"))
        agents[0].close()
        cell = gateway.execute("input()")
        await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
        agents.append(Agent(a_house.runtime.agent_socket))
        await until(lambda: agents[1].work == 1)
        gateway.request("input_reply", {"value": ""}, "stdin")
        await gateway.idle(cell)
        await until(lambda: agents[1].work == 0)

    try:
        asyncio.run(scene())
    finally:
        for agent in agents:
            agent.close()


GRANT = {
    "owner": "ada",
    "hundredths": 25,
    "memory_limit": None,
    "workload_class": "production",
    "residency": "off",
    "devices": [{"uuid": "GPU-1", "index": 0, "hundredths": 25, "quota_bytes": 1 << 30, "guarantee_bytes": None}],
}


async def spawn_once_reaped(record: RelayRecord) -> KernelProcess:
    """Start the kernel anew. Its relay reaps a killed process when its last thread is gone, after its leader."""
    deadline = asyncio.get_running_loop().time() + 60.0
    while True:
        try:
            return await spawn(record, ipykernel(record))
        except RelayRefusedError as error:
            if error.code != "running" or asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.02)


def test_an_agent_that_was_away_at_the_start_is_asked_for_the_reservation_and_told_the_process(a_house: House) -> None:
    agents: list[Agent] = []

    async def scene() -> None:
        record = await a_house.kernel(tells_agent=True, facts={"grant": GRANT, "label": "a.ipynb"})
        agents.append(Agent(a_house.runtime.agent_socket))
        await until(lambda: agents[0].asked("bind"))
        assert record.kernel is not None
        (reserve,), (bind,) = agents[0].asked("reserve"), agents[0].asked("bind")
        want_reserve = {name: GRANT[name] for name in ("owner", "hundredths", "memory_limit", "residency")}
        want_reserve |= {"kernel_id": record.kernel_id, "label": "a.ipynb"}
        want_reserve["placement"] = [{"uuid": "GPU-1", "hundredths": 25}]
        assert {name: reserve[name] for name in want_reserve} == want_reserve
        assert {name: bind[name] for name in vars(record.kernel)} == vars(record.kernel)
        assert reserve["id"] < bind["id"]
        # Another agent, without records, and another process.
        agents[0].close()
        agents.append(Agent(a_house.runtime.agent_socket))
        await until(lambda: agents[1].asked("bind"))
        os.kill(record.kernel.pid, signal.SIGKILL)
        await until(lambda: not read_relay_record(record.folder).has_living_kernel)
        second = await spawn_once_reaped(record)
        await until(lambda: agents[1].asked("bind")[-1]["pid"] == second.pid)

    try:
        asyncio.run(scene())
    finally:
        for agent in agents:
            agent.close()


def test_a_relay_that_was_not_told_to_tells_nobody(a_house: House) -> None:
    async def scene(agent: Agent) -> None:
        gateway = await Gateway(await a_house.kernel()).connect()
        await gateway.idle(gateway.execute("1"))
        assert not agent.heard

    agent = Agent(a_house.runtime.agent_socket)
    try:
        asyncio.run(scene(agent))
    finally:
        agent.close()


def test_the_real_agent_shows_what_its_kernels_do(a_node: Any) -> None:
    house = House(a_node.folder)

    def shown(kernel_id: str) -> Any:
        return a_node.kernels()[kernel_id]["activity"]

    async def scene() -> None:
        async with await AgentClient.connect(a_node.folder) as agent:
            await agent.reserve("told", owner="ada", hundredths=10)
            record = await house.kernel(kernel_id="told", tells_agent=True)
            gateway = await Gateway(record).connect()
            cell = gateway.execute("input()")
            await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
            await until(lambda: (shown("told") or {}).get("work") == 1)
            gateway.request("input_reply", {"value": ""}, "stdin")
            await gateway.idle(cell)
            began = shown("told")["since"]
            await until(lambda: shown("told")["work"] == 0)
            assert shown("told")["since"] >= began

    try:
        asyncio.run(scene())
    finally:
        house.end()
