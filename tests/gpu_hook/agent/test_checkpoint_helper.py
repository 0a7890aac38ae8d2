"""The checkpointing process and the agent's end of it, on processes of the software GPU."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.agent.swap.checkpoint_helper import CheckpointError, CheckpointHelper, ProcessState
from jupyter_aliquot.gpu_hook.paths import native_dir

_CLIENT = """
import ctypes, os, sys
cuda = ctypes.CDLL(sys.argv[1])
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(16 << 20)) == 0
data, back = os.urandom(16 << 20), ctypes.create_string_buffer(16 << 20)
assert cuda.cuMemcpyHtoD_v2(pointer, data, ctypes.c_size_t(16 << 20)) == 0
if sys.argv[2] == "managed":
    assert cuda.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(1 << 20), 1) == 0
print(os.getpid(), flush=True)
for line in sys.stdin:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    assert cuda.cuMemcpyDtoH_v2(back, pointer, ctypes.c_size_t(16 << 20)) == 0
    print(back.raw == data, free.value >> 20, flush=True)
"""
LIBRARY = native_dir() / "softgpu" / "libcuda.so.1"


class Clients:
    """Processes with 16 MiB of known bytes each, on one software GPU of 64 MiB."""

    def __init__(self, folder: Path) -> None:
        state = {"ALIQUOT_SOFTGPU_STATE": str(folder / "state"), "ALIQUOT_SOFTGPU_MEMORY": "64MiB"}
        self.environment = state
        self._all: list[subprocess.Popen[str]] = []

    def start(self, what: str = "plain") -> subprocess.Popen[str]:
        client = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, str(LIBRARY), what],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._all.append(client)
        assert client.stdout is not None
        assert int(client.stdout.readline()) == client.pid
        return client

    def look(self, client: subprocess.Popen[str]) -> tuple[str, int]:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write("look\n")
        client.stdin.flush()
        whole, free = client.stdout.readline().split()
        return whole, int(free)

    def close(self) -> None:
        for client in self._all:
            client.kill()
            client.communicate()


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    made = Clients(tmp_path)
    yield made
    made.close()


def _with_helper(clients: Clients, scene) -> None:
    async def run() -> None:
        helper = CheckpointHelper(LIBRARY, clients.environment)
        try:
            await scene(helper)
        finally:
            await helper.close()

    asyncio.run(asyncio.wait_for(run(), 120))


def test_all_processes_of_a_kernel_are_saved_and_restored_whole(clients: Clients) -> None:
    saved, other = [clients.start(), clients.start()], clients.start()
    before = clients.look(other)[1]

    async def scene(helper: CheckpointHelper) -> None:
        pids = [client.pid for client in saved]
        await helper.save(pids, 1000)
        assert set((await helper.states(pids)).values()) == {ProcessState.CHECKPOINTED}
        assert clients.look(other)[1] >= before + 32
        await helper.restore(pids)
        assert set((await helper.states(pids)).values()) == {ProcessState.RUNNING}
        assert [clients.look(client)[0] for client in saved] == ["True", "True"]

    _with_helper(clients, scene)


def test_one_that_cannot_be_saved_brings_the_others_back(clients: Clients) -> None:
    plain, managed = clients.start(), clients.start("managed")

    async def scene(helper: CheckpointHelper) -> None:
        with pytest.raises(CheckpointError, match="not supported"):
            await helper.save([plain.pid, managed.pid], 1000)
        assert set((await helper.states([plain.pid, managed.pid])).values()) == {ProcessState.RUNNING}
        assert clients.look(plain)[0] == "True"

    _with_helper(clients, scene)


def test_a_restore_without_room_is_fatal_and_says_so(clients: Clients) -> None:
    saved = clients.start()

    async def scene(helper: CheckpointHelper) -> None:
        await helper.save([saved.pid], 1000)
        for _ in range(4):
            clients.start()
        with pytest.raises(CheckpointError, match="out of memory") as caught:
            await helper.restore([saved.pid])
        assert caught.value.is_fatal

    _with_helper(clients, scene)


def test_a_process_that_the_driver_gave_up_keeps_no_other_locked(clients: Clients) -> None:
    """The others that were not restored stay saved: the books have nothing of them on the device."""
    first, second, third = (clients.start() for _ in range(3))

    async def scene(helper: CheckpointHelper) -> None:
        pids = [first.pid, second.pid, third.pid]
        await helper.save(pids, 1000)
        taking = [clients.start() for _ in range(3)]  # leaves room for one
        with pytest.raises(CheckpointError, match="out of memory") as caught:
            await helper.restore(pids)
        assert caught.value.is_fatal
        want = [ProcessState.RUNNING, ProcessState.FAILED, ProcessState.CHECKPOINTED]
        assert list((await helper.states(pids)).values()) == want
        assert clients.look(first)[0] == "True"
        for other in taking:
            other.kill()
            other.wait()
        await helper._act("lock", first.pid, ProcessState.LOCKED, 1000)  # as an agent that was killed leaves it
        for order in ([third.pid, first.pid, second.pid], pids):
            with pytest.raises(CheckpointError, match=f"has given process {second.pid} up"):
                await helper.restore(order)
            assert list((await helper.states(pids)).values()) == want

    _with_helper(clients, scene)


def test_a_killed_helper_is_replaced_and_what_it_saved_comes_back(clients: Clients) -> None:
    saved = clients.start()

    async def scene(helper: CheckpointHelper) -> None:
        await helper.save([saved.pid], 1000)
        assert helper._process is not None
        os.kill(helper._process.pid, signal.SIGKILL)
        await helper._process.wait()
        await helper.restore([saved.pid])
        assert clients.look(saved)[0] == "True"

    _with_helper(clients, scene)


def test_a_process_that_ended_stands_in_nobodys_way(clients: Clients) -> None:
    saved, ended = clients.start(), clients.start()

    async def scene(helper: CheckpointHelper) -> None:
        pids = [saved.pid, ended.pid]
        await helper.save(pids, 1000)
        ended.kill()
        ended.communicate()
        await helper.restore(pids)
        assert clients.look(saved)[0] == "True"

    _with_helper(clients, scene)


def test_a_driver_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    async def scene() -> None:
        with pytest.raises(CheckpointError, match="cannot checkpoint here"):
            await CheckpointHelper(tmp_path / "none.so", {}).save([os.getpid()], 10)

    asyncio.run(scene())
