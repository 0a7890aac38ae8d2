"""A kernel whose starter is dead, taken over by another provisioner by the first one's record."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any

import pytest
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_aliquot.gpu_hook.paths import RuntimeDir

# A gateway in short: it reports the kernel's place, and waits to be killed.
_GATEWAY = """
import asyncio, json, sys
from jupyter_client.manager import AsyncKernelManager

async def main():
    manager = AsyncKernelManager(kernel_name="plain")
    await manager.start_kernel(relay_facts={"gateway": "first", "owner": "ada"})
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready(timeout=90)
    await client.execute_interactive("x = 41", timeout=90)
    info = await manager.provisioner.get_provisioner_info()
    info["connection_info"]["key"] = info["connection_info"]["key"].decode()
    print(json.dumps([manager.connection_file, manager.kernel_id, info]), flush=True)

asyncio.run(main())
sys.stdin.read()
"""


@pytest.fixture
def left_behind(no_node: Any, kernelspecs: Any) -> tuple[str, str, dict[str, Any]]:
    """Return a kernel's connection file, id and record. The gateway that started it was killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _GATEWAY], stdout=pipe, stdin=pipe) as gateway:
        assert gateway.stdout is not None
        connection_file, kernel_id, info = json.loads(gateway.stdout.readline())
        gateway.kill()
    return connection_file, kernel_id, info


async def adopted(kernelspecs: Any, left: tuple[str, str, dict[str, Any]]) -> AsyncKernelManager:
    connection_file, kernel_id, info = left
    manager = AsyncKernelManager(kernel_name="plain", kernel_spec_manager=kernelspecs, connection_file=connection_file)
    manager.kernel_id = kernel_id
    manager.load_connection_file()
    factory = KernelProvisionerFactory.instance()
    manager.provisioner = factory.create_provisioner_instance(kernel_id, manager.kernel_spec, parent=manager)
    await manager.provisioner.load_provisioner_info(info)
    manager._launch_args, manager._attempted_start = {"relay_facts": {"gateway": "second"}}, True
    return manager


async def printed(manager: AsyncKernelManager, code: str) -> str:
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=90)
        outputs: list[str] = []

        def note(message: dict[str, Any]) -> None:
            outputs.append(message["content"].get("text", ""))

        reply = await client.execute_interactive(code, timeout=90, output_hook=note)
        return "".join(outputs) if reply["content"]["status"] == "ok" else str(reply["content"]["ename"])
    finally:
        client.stop_channels()


def test_its_state_is_there_and_it_ends_without_a_trace(left_behind: Any, kernelspecs: Any, no_node: Any) -> None:
    async def scene() -> None:
        manager = await adopted(kernelspecs, left_behind)
        assert manager.has_kernel
        assert await manager.is_alive()
        assert await printed(manager, "print(x + 1)") == "42\n"
        await manager.shutdown_kernel()
        provisioner: Any = manager.provisioner
        assert (await provisioner.ending()).exit_code == 0

    asyncio.run(scene())
    assert list(RuntimeDir(no_node.folder).relays.iterdir()) == []
    assert not os.path.exists(f"/proc/{left_behind[2]['process'][0]}")


def test_it_is_interrupted_and_restarted(left_behind: Any, kernelspecs: Any) -> None:
    async def scene() -> None:
        manager = await adopted(kernelspecs, left_behind)
        sleeping = asyncio.ensure_future(printed(manager, "import time\nprint(1)\ntime.sleep(100)"))
        while not sleeping.done():
            await manager.interrupt_kernel()
            await asyncio.wait({sleeping}, timeout=0.3)
        assert sleeping.result() == "KeyboardInterrupt"
        await manager.restart_kernel(now=True)
        assert await printed(manager, "print(x)") == "NameError"
        assert manager._launch_args == {"relay_facts": {"gateway": "second"}}
        assert manager.get_connection_info()["ip"] == left_behind[2]["connection_info"]["ip"]
        await manager.shutdown_kernel(now=True)

    asyncio.run(scene())


def test_its_death_is_seen_with_its_signal(left_behind: Any, kernelspecs: Any) -> None:
    async def scene() -> None:
        manager = await adopted(kernelspecs, left_behind)
        os.kill(left_behind[2]["process"][0], signal.SIGKILL)
        provisioner: Any = manager.provisioner
        assert await asyncio.wait_for(provisioner.wait(), 60) == -signal.SIGKILL
        assert not manager.has_kernel
        await manager.restart_kernel(now=True)
        assert await printed(manager, "print(1)") == "1\n"
        await manager.shutdown_kernel(now=True)

    asyncio.run(scene())


def test_one_that_died_meanwhile_is_found_dead(left_behind: Any, kernelspecs: Any) -> None:
    pid = left_behind[2]["process"][0]
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([descriptor], [], [], 60)
    os.close(descriptor)

    async def scene() -> None:
        manager = await adopted(kernelspecs, left_behind)
        assert not await manager.is_alive()
        provisioner: Any = manager.provisioner
        assert await provisioner.poll() == -signal.SIGKILL
        await manager.shutdown_kernel(now=True)

    asyncio.run(scene())
