from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.kernels import manager as kernel_manager


async def start(fetch: Any, name: str) -> str:
    answer = await fetch("api", "kernels", method="POST", body=json.dumps({"name": name}), request_timeout=120)
    return str(json.loads(answer.body)["id"])


async def act(fetch: Any, kernel_id: str, action: str) -> Any:
    more = {"allow_nonstandard_methods": True, "request_timeout": 120}
    return await fetch("api", "kernels", kernel_id, action, method="POST", **more)


async def execute(
    gateway: Any, kernel_id: str, code: str, *, seconds: float = 90, printed: list[str] | None = None
) -> str:
    """Run a cell as a client would, and return its output.

    The output is in ``printed`` as soon as it comes.
    """
    client = gateway.kernels.get_kernel(kernel_id).client()
    client.start_channels()
    printed = [] if printed is None else printed
    try:
        await client.wait_for_ready(timeout=seconds)
        await client.execute_interactive(
            code,
            timeout=seconds,
            output_hook=lambda m: printed.append(m["content"].get("text", m["content"].get("ename", ""))),
        )
    finally:
        client.stop_channels()
    return "".join(printed)


async def ready(gateway: Any, kernel_id: str) -> Any:
    kernel = gateway.kernels.get_kernel(kernel_id)
    await asyncio.wait_for(asyncio.shield(kernel.ready), 90)
    return kernel


async def test_execute_interrupt_restart_and_shutdown(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    kernel_id = await start(jp_fetch, "python3.gpu-0.5")
    kernel = await ready(a_gateway, kernel_id)
    assert await execute(a_gateway, kernel_id, "x = 1; print(x + 1)") == "2\n"

    code, printed = "import time\nprint('on', flush=True)\ntime.sleep(60)", list[str]()
    sleeping = asyncio.ensure_future(execute(a_gateway, kernel_id, code, printed=printed))
    # Busy alone is not enough: a client's first request is work, too.
    await until(lambda: "on\n" in printed)
    await act(jp_fetch, kernel_id, "interrupt")
    assert "KeyboardInterrupt" in await sleeping

    first_pid, grant = kernel.provisioner.pid, kernel.provisioner.grant
    await act(jp_fetch, kernel_id, "restart")
    assert kernel.provisioner.pid != first_pid
    assert kernel.provisioner.grant == grant, "a restart keeps the grant"
    assert a_gateway.held() == {kernel_id}
    await until(lambda: a_gateway.node.kernels()[kernel_id]["pids"] == [kernel.provisioner.pid])
    assert "NameError" in await execute(a_gateway, kernel_id, "print(x)")

    await jp_fetch("api", "kernels", kernel_id, method="DELETE")
    assert a_gateway.held() == set()
    assert a_gateway.node.kernels() == {}


async def test_autorestart_after_sigkill_keeps_the_grant(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    kernel_id = await start(jp_fetch, "python3.gpu-0.5")
    kernel = await ready(a_gateway, kernel_id)
    client = kernel.client()
    client.start_channels()
    await client.wait_for_ready(timeout=90)
    client.execute("import time; time.sleep(60)")
    await until(lambda: kernel.execution_state == "busy")
    client.stop_channels()
    first_pid = kernel.provisioner.pid
    os.kill(first_pid, signal.SIGKILL)
    await until(lambda: kernel.provisioner.pid != first_pid and kernel.has_kernel, 90)
    await ready(a_gateway, kernel_id)
    assert a_gateway.held() == {kernel_id}
    assert await execute(a_gateway, kernel_id, "print('back')") == "back\n"
    await until(lambda: kernel.provisioner.pid in a_gateway.node.kernels()[kernel_id]["pids"])


async def test_a_kernel_that_keeps_dying_gives_its_grant_back_and_leaves_no_relay(
    a_gateway: Any, jp_fetch: Any, until: Any
) -> None:
    kernel_id = await start(jp_fetch, "ending.gpu-0.5")
    kernel = await ready(a_gateway, kernel_id)
    relay = kernel.provisioner._relay.record
    assert relay.is_alive
    kernel._restarter.restart_limit = 1
    kernel._restarter.time_to_dead = 0.2
    kernel._restarter.stop()
    kernel._restarter.start()
    await until(lambda: kernel_id not in a_gateway.kernels, 90)
    await until(lambda: a_gateway.held() == set())
    assert a_gateway.node.kernels() == {}
    await until(lambda: not relay.folder.exists())


async def test_the_servers_end_ends_all_and_withdraws_what_waits(
    a_gateway: Any, jp_fetch: Any, until: Any, is_alive: Any
) -> None:
    running = await start(jp_fetch, "idle.gpu-0.25")
    await ready(a_gateway, running)
    broken = await start(jp_fetch, "broken.gpu-0.5")
    await until(lambda: a_gateway.kernels.kernel_state(broken)[0] == "ended")
    pid = a_gateway.kernels.get_kernel(running).provisioner.pid
    waiting = await start(jp_fetch, "python3.gpu-1")
    await until(lambda: a_gateway.kernels.kernel_state(waiting)[0] == "queued")
    await a_gateway.kernels.shutdown_all(now=True)
    assert a_gateway.kernels.list_kernel_ids() == []
    assert a_gateway.held() == set()
    assert not is_alive(pid)


async def test_extensions_stop_before_kernels_and_nothing_hangs(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    """Jupyter stops extensions first: admission has stopped when Jupyter shuts kernels down."""
    running = await start(jp_fetch, "idle.gpu-0.25")
    await ready(a_gateway, running)
    await start(jp_fetch, "python3.gpu-1")
    await until(lambda: len(a_gateway.admission.snapshot().queue) == 1)
    await a_gateway.socket.stop()
    await a_gateway.admission.stop()
    await a_gateway.kernels.shutdown_all(now=True)
    assert a_gateway.held() == set()
    assert a_gateway.node.kernels() == {}


async def test_a_kernel_survives_its_agent(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    kernel_id = await start(jp_fetch, "python3.gpu-0.5")
    await ready(a_gateway, kernel_id)
    a_gateway.node.stop(signal.SIGKILL)
    await until(lambda: a_gateway.admission.snapshot().agent_state == "unavailable")
    assert await execute(a_gateway, kernel_id, "print('alive')") == "alive\n"
    a_gateway.node.start()
    await until(lambda: a_gateway.admission.snapshot().agent_state == "ok")
    await until(lambda: all(holding.is_confirmed for holding in a_gateway.admission.snapshot().holdings))
    assert a_gateway.node.kernels()[kernel_id]["hundredths"] == 50
    other = await start(jp_fetch, "idle.gpu-0.25")
    await ready(a_gateway, other)


async def test_another_program_on_the_node_takes_and_returns_room(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    holder = a_gateway.node.reserve_elsewhere("other", 100)
    try:
        kernel_id = await start(jp_fetch, "idle.gpu-0.25")
        await until(lambda: "none is free" in a_gateway.kernels.kernel_state(kernel_id)[1])
    finally:
        holder.kill()
        holder.wait()
    await ready(a_gateway, kernel_id)


async def test_users_see_their_own_kernels(a_gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def become(name: str, role: str = "user") -> None:
        monkeypatch.setattr(kernel_manager, "current_user", lambda: User(name, role))

    kernels = a_gateway.kernels
    ids = {}
    for name in ("alice", "bob"):
        become(name)
        ids[name] = await kernels.start_kernel(kernel_name="idle.gpu-0.25")
        await ready(a_gateway, ids[name])
    for name in ("alice", "bob"):
        become(name)
        assert [model["id"] for model in kernels.list_kernels()] == [ids[name]]
        assert kernels.owner_of(ids[name]) == name
    become("ada", "admin")
    assert len(kernels.list_kernels()) == 2
    owners = {holding.grant.kernel_id: holding.grant.owner for holding in a_gateway.admission.snapshot().holdings}
    assert owners == {ids[name]: name for name in ids}
    become("bob")
    with pytest.raises(Exception, match="Kernel already exists"):
        await kernels.start_kernel(kernel_name="python3", kernel_id=ids["alice"])
    become("ada", "admin")  # for the fixture, which ends the kernels


async def test_nothing_is_left_after_200_random_lives(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    """Start, delete while waiting or starting, kill, and fail kernels, in any order."""
    dice = random.Random(7)
    kernels = a_gateway.kernels
    names = ["light.gpu-0.25", "light.gpu-0.5", "broken.gpu-0.5", "light.gpu-0.25"]

    async def live() -> None:
        kernel_id = await kernels.start_kernel(kernel_name=dice.choice(names))
        end = dice.choice(["now", "soon", "ready", "killed"])
        if end == "soon":
            await asyncio.sleep(dice.random() * 0.05)
        if end in ("ready", "killed"):
            await asyncio.wait({kernels.get_kernel(kernel_id).ready}, timeout=90)
        kernel = kernels.get_kernel(kernel_id)
        if end == "killed" and kernel.has_kernel:
            await kernel.signal_kernel(signal.SIGKILL)
        await kernels.shutdown_kernel(kernel_id, now=dice.random() < 0.9)

    limit = asyncio.Semaphore(8)

    async def one() -> None:
        async with limit:
            await live()

    await asyncio.gather(*(one() for _ in range(200)))
    assert kernels.list_kernel_ids() == []
    assert kernels.owners == {}
    assert a_gateway.admission.snapshot().queue == a_gateway.admission.snapshot().holdings == ()
    assert a_gateway.node.kernels() == {}
    assert not kernels._pending_kernels
    counts = a_gateway.admission.snapshot().counts
    assert counts["submitted"] == 200 == counts["granted"] + counts["withdrawn"] + counts["refused"]


async def test_a_deleted_kernel_is_gone_for_everybody(a_gateway: Any, jp_fetch: Any, until: Any) -> None:
    kernel_id = await start(jp_fetch, "idle.gpu-0.25")
    await jp_fetch("api", "kernels", kernel_id, method="DELETE")
    with pytest.raises(HTTPClientError, match="404"):
        await jp_fetch("api", "kernels", kernel_id, method="DELETE")


@pytest.mark.parametrize("step", ["noted", "_async_kill_kernel", "_async_launch_kernel"])
async def test_a_kernel_that_is_being_restarted_can_be_ended(
    a_gateway: Any, jp_fetch: Any, monkeypatch: pytest.MonkeyPatch, until: Any, step: str
) -> None:
    """Restart a kernel as after a crash, and end it while the restart is at each of its steps."""
    kernel_id = await start(jp_fetch, "python3")
    kernel = await ready(a_gateway, kernel_id)
    take, is_there, may_go_on = getattr(kernel, step), asyncio.Event(), asyncio.Event()

    async def held(*args: Any, **kwargs: Any) -> Any:
        is_first = not is_there.is_set()
        is_there.set()
        if is_first:
            await may_go_on.wait()
        return await take(*args, **kwargs)

    monkeypatch.setattr(kernel, step, held)
    os.kill(kernel.provisioner.pid, signal.SIGKILL)
    await asyncio.wait_for(is_there.wait(), 90)
    ending = asyncio.ensure_future(jp_fetch("api", "kernels", kernel_id, method="DELETE", request_timeout=120))
    await until(lambda: kernel_id in a_gateway.kernels._stopping)
    may_go_on.set()
    assert (await ending).code == 204
    assert kernel_id not in a_gateway.kernels
    assert not await kernel.is_alive()
