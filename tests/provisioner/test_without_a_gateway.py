"""Clients that start kernels in their own process: nbclient, a console, a KernelManager script."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from nbclient import NotebookClient
from traitlets.config import Config

from jupyter_aliquot.gpu_hook.client.client import AgentClient, KernelGrant
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.grants.acquire import user_name


def a_manager(kernelspecs: Any, name: str, **provisioner: Any) -> AsyncKernelManager:
    config = Config({"AliquotProvisioner": provisioner})
    return AsyncKernelManager(kernel_name=name, kernel_spec_manager=kernelspecs, config=config)


def a_notebook(code: str, name: str) -> Any:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata["kernelspec"] = {"name": name, "display_name": name}
    return notebook


def test_nbclient_alone_runs_a_notebook_within_a_grant(a_node: Any, kernelspecs: Any) -> None:
    code = (
        "import json, os\nfrom jupyter_aliquot.gpu_hook.client.client import query\n"
        "print(json.dumps([os.environ['CUDA_VISIBLE_DEVICES'], query('status')['kernels']]))"
    )
    notebook = a_notebook(code, "python3.gpu-0.5")
    NotebookClient(notebook, kernel_name="python3.gpu-0.5", timeout=60).execute()
    devices, (kernel,) = json.loads(notebook.cells[0].outputs[0]["text"])
    assert devices.startswith("GPU-")
    assert (kernel["hundredths"], kernel["owner"]) == (50, user_name())
    assert kernel["attributes"] == {"kernelspec": "python3.gpu-0.5"}
    assert len(kernel["pids"]) == 1, "the kernel's process is bound"
    assert a_node.kernels() == {}


def test_the_drivers_own_path_leads_a_notebook_to_the_hook(a_node: Any, kernelspecs: Any) -> None:
    code = "import ctypes, os\nprint(ctypes.CDLL(os.environ['ALIQUOT_REAL_CUDA']).aliquot_hook_version() > 0)"
    notebook = a_notebook(code, "python3.gpu-0.5")
    NotebookClient(notebook, kernel_name="python3.gpu-0.5", timeout=60).execute()
    assert notebook.cells[0].outputs[0]["text"] == "True\n"


def test_a_blocking_client_works_as_well(a_node: Any, kernelspecs: Any) -> None:
    manager = KernelManager(kernel_name="python3.gpu-0.5", kernel_spec_manager=kernelspecs)
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=90)
    (before,) = a_node.kernels().values()
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=90)
    (after,) = a_node.kernels().values()
    assert (before["kernel_id"], before["created"]) == (after["kernel_id"], after["created"]), "the grant was kept"
    assert before["pids"] != after["pids"]
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    assert a_node.kernels() == {}


def test_a_start_and_an_end_in_two_event_loops(a_node: Any, kernelspecs: Any) -> None:
    manager = a_manager(kernelspecs, "light.gpu-0.5")
    asyncio.run(manager.start_kernel())
    assert len(a_node.kernels()) == 1
    asyncio.run(manager.shutdown_kernel(now=True))
    assert a_node.kernels() == {}


async def _refused(manager: AsyncKernelManager, want_error: type[Exception], *want_words: str) -> str:
    """Start a kernel that is refused; return the reason."""
    with pytest.raises(want_error) as caught:
        await manager.start_kernel()
    for word in want_words:
        assert word in str(caught.value)
    return str(caught.value)


def test_a_full_node_names_the_queue_in_time(a_node: Any, kernelspecs: Any) -> None:
    async def scene() -> None:
        holder = a_manager(kernelspecs, "light.gpu-0.5")
        await holder.start_kernel()
        waiter = a_manager(kernelspecs, "python3.gpu-1", wait_seconds=0.3)
        why = await _refused(
            waiter,
            errors.QueueTimeoutError,
            "Requested 1 GPU",
            "0.5 is free on gpu0",
            f"held by {user_name()} 0.5 (light.gpu-0.5)",
        )
        assert re.search(r"waited \d+ s", why)
        assert list(a_node.kernels()) == [holder.kernel_id]
        await holder.shutdown_kernel(now=True)

    asyncio.run(scene())


def test_nbclient_raises_the_queues_own_error(a_node: Any, kernelspecs: Any) -> None:
    holder = KernelManager(kernel_name="light.gpu-0.5", kernel_spec_manager=kernelspecs)
    holder.start_kernel()
    config = Config({"AliquotProvisioner": {"wait_seconds": 0.2}})
    client = NotebookClient(a_notebook("1", "python3.gpu-1"), kernel_name="python3.gpu-1", config=config)
    with pytest.raises(errors.QueueTimeoutError, match="in the queue of the node agent"):
        client.execute()
    holder.shutdown_kernel(now=True)


def test_a_kernel_that_waits_starts_when_room_returns(a_node: Any, kernelspecs: Any) -> None:
    async def scene() -> None:
        holder = a_manager(kernelspecs, "light.gpu-0.5")
        await holder.start_kernel()
        waiter = a_manager(kernelspecs, "python3.gpu-1")
        starting = asyncio.ensure_future(waiter.start_kernel())
        await asyncio.wait({starting}, timeout=0.3)
        assert not starting.done()
        await holder.shutdown_kernel(now=True)
        await asyncio.wait_for(starting, 60)
        assert list(a_node.kernels()) == [waiter.kernel_id]
        await waiter.shutdown_kernel(now=True)

    asyncio.run(scene())


def test_a_start_that_is_cancelled_leaves_nothing(a_node: Any, kernelspecs: Any, until: Any) -> None:
    async def scene() -> None:
        for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
            manager = a_manager(kernelspecs, "light.gpu-0.5")
            starting = asyncio.ensure_future(manager.start_kernel())
            await asyncio.wait({starting}, timeout=delay)
            starting.cancel()
            await asyncio.wait({starting})
            if manager.has_kernel:
                await manager.shutdown_kernel(now=True)

    asyncio.run(scene())
    until(lambda: a_node.kernels() == {})


@pytest.mark.parametrize(
    ("name", "want_error", "want_words"),
    [
        ("python3.gpu-3", errors.NeverFitsError, "Requested 3 GPUs"),
        ("python3.gpu-0", errors.RequestError, "Requested 0 GPUs"),
        ("broken.gpu-0.5", errors.LaunchError, "'/nonexistent/program' cannot be started: not found"),
    ],
)
def test_a_start_that_cannot_be_says_why_and_holds_nothing(
    a_node: Any, kernelspecs: Any, name: str, want_error: type[Exception], want_words: str
) -> None:
    asyncio.run(_refused(a_manager(kernelspecs, name), want_error, want_words))
    assert a_node.kernels() == {}


def test_a_user_over_the_local_limit_is_refused(a_node: Any, kernelspecs: Any) -> None:
    manager = a_manager(kernelspecs, "python3.gpu-0.5", local_limit="0.25")
    asyncio.run(_refused(manager, errors.LimitError, "Requested 0.5 GPU", "may hold 0.25 in all", "local_limit"))


async def _start_both(kernelspecs: Any) -> list[AsyncKernelManager]:
    """Start two kernels of half a GPU at once for a user who may hold one of them.

    Returns those that run.
    """
    managers = [a_manager(kernelspecs, "light.gpu-0.5", local_limit="0.5") for _ in range(2)]
    results = await asyncio.gather(*(manager.start_kernel() for manager in managers), return_exceptions=True)
    refused = [error for error in results if error is not None]
    assert refused, "both were started"
    assert [type(error) for error in refused] == [errors.LimitError] * len(refused), refused
    return [manager for manager, error in zip(managers, results, strict=True) if error is None]


def test_two_starts_at_once_do_not_pass_the_local_limit_together(a_node: Any, kernelspecs: Any) -> None:
    async def scene() -> None:
        (runs,) = await _start_both(kernelspecs)
        assert list(a_node.kernels()) == [runs.kernel_id]
        await runs.shutdown_kernel(now=True)

    asyncio.run(scene())


def test_an_agent_that_knows_no_limit_is_not_passed_either(
    a_node: Any, kernelspecs: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = AgentClient.reserve

    async def reserve_of_before(self: AgentClient, *words: Any, owner_limit: int, **fields: Any) -> KernelGrant:
        return await reserve(self, *words, **fields)

    monkeypatch.setattr(AgentClient, "reserve", reserve_of_before)

    async def scene() -> None:
        runs = await _start_both(kernelspecs)
        until(lambda: list(a_node.kernels()) == [manager.kernel_id for manager in runs])
        for manager in runs:
            await manager.shutdown_kernel(now=True)
        until(lambda: a_node.kernels() == {})
        alone = a_manager(kernelspecs, "light.gpu-0.5", local_limit="0.5")
        await alone.start_kernel()
        await _refused(
            a_manager(kernelspecs, "light.gpu-0.5", local_limit="0.5"), errors.LimitError, "would hold 1 GPU"
        )
        await alone.shutdown_kernel(now=True)

    asyncio.run(scene())


def test_without_a_gateway_production_may_be_kept_back(a_node: Any, kernelspecs: Any) -> None:
    manager = a_manager(kernelspecs, "python3.gpu-0.5", local_normal_priority=False)
    asyncio.run(_refused(manager, errors.LimitError, "Requested 0.5 GPU with normal priority", "local_normal_priority"))
    assert a_node.kernels() == {}


def test_nobody_there_says_how_to_start_one(no_node: Any, kernelspecs: Any) -> None:
    manager = a_manager(kernelspecs, "python3.gpu-0.5")
    asyncio.run(_refused(manager, errors.AgentUnavailableError, "no gateway and no node agent", "'aliquot agent'"))


def test_a_stale_socket_is_as_good_as_none(a_node: Any, kernelspecs: Any) -> None:
    a_node.stop(signal.SIGKILL)
    manager = a_manager(kernelspecs, "python3.gpu-0.5")
    asyncio.run(_refused(manager, errors.AgentUnavailableError, "stale", "'aliquot agent'"))


def test_a_plain_kernel_needs_nobody(no_node: Any, kernelspecs: Any) -> None:
    async def scene() -> None:
        manager = a_manager(kernelspecs, "plain")
        await manager.start_kernel()
        assert await manager.is_alive()
        await manager.shutdown_kernel(now=True)

    asyncio.run(scene())


def test_an_agent_that_was_restarted_hears_of_the_kernel_again(a_node: Any, kernelspecs: Any) -> None:
    async def scene() -> None:
        manager = a_manager(kernelspecs, "light.gpu-0.5")
        await manager.start_kernel()
        a_node.stop(signal.SIGKILL)
        a_node.start()
        deadline = asyncio.get_running_loop().time() + 60
        while not (kernels := a_node.kernels()) or not kernels[manager.kernel_id]["pids"]:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
        assert manager.provisioner is not None
        assert kernels[manager.kernel_id]["pids"] == [manager.provisioner.pid]
        await manager.shutdown_kernel(now=True)
        # A renewal that was under way may reach the agent after the release: its closed connection
        # then ends it.
        deadline = asyncio.get_running_loop().time() + 30
        while a_node.kernels():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)

    asyncio.run(scene())


def test_a_client_that_is_killed_leaves_nothing(a_node: Any, kernelspecs: Any, until: Any) -> None:
    code = (
        "import time, sys\nfrom jupyter_client.manager import KernelManager\n"
        "manager = KernelManager(kernel_name='python3.gpu-0.5')\nmanager.start_kernel()\n"
        "print(manager.provisioner.pid, flush=True)\ntime.sleep(1000)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    assert len(a_node.kernels()) == 1
    client.kill()
    client.wait()
    client.stdout.close()
    until(lambda: a_node.kernels() == {})
    until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_kernel_is_adopted_with_its_grant(a_node: Any, kernelspecs: Any) -> None:
    async def scene() -> None:
        first = a_manager(kernelspecs, "light.gpu-0.5")
        await first.start_kernel()
        assert first.provisioner is not None
        info = await first.provisioner.get_provisioner_info()
        info["connection_info"] = {**info["connection_info"], "key": info["connection_info"]["key"].decode()}
        info = json.loads(json.dumps(info))

        second = a_manager(kernelspecs, "light.gpu-0.5")
        factory = KernelProvisionerFactory.instance(parent=second)
        adopted: Any = factory.create_provisioner_instance(first.kernel_id, second.kernel_spec, parent=second)
        await adopted.load_provisioner_info(info)
        assert adopted.grant == first.provisioner.grant
        assert await adopted.poll() is None
        await adopted.kill()
        assert await adopted.wait() is not None
        await adopted.cleanup()
        assert a_node.kernels() == {}
        await first.shutdown_kernel(now=True)

    asyncio.run(scene())


def test_a_kernel_with_a_grant_does_not_start_where_it_cannot_have_a_relay(a_node: Any, kernelspecs: Any) -> None:
    manager = AsyncKernelManager(kernel_name="light.gpu-0.5", kernel_spec_manager=kernelspecs, ip="192.0.2.1")
    want_words = ("192.0.2.1", "Change that, or set c.AliquotProvisioner.relay = False")
    asyncio.run(_refused(manager, errors.LaunchError, *want_words))
    assert a_node.kernels() == {}
