"""Kernels that other programs of the node start: they queue at the gateway's local socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import AsyncKernelManager
from traitlets.config import Config

from jupyter_aliquot.gateway.node.grant_server import LocalSocket
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.grants.acquire import user_name
from jupyter_aliquot.provisioner.grants.gateway_client import GatewayConnection
from jupyter_aliquot.provisioner.relay.wire.proc import start_time_ticks
from jupyter_aliquot.provisioner.resources import GpuShare, Request

HALF = Request(GpuShare(50))


def a_manager(name: str, **provisioner: Any) -> AsyncKernelManager:
    return AsyncKernelManager(kernel_name=name, config=Config({"AliquotProvisioner": provisioner}))


async def ask(gateway: Any, kernel_id: str, request: Request = HALF, wait: float = 30.0) -> Any:
    connection = await GatewayConnection.connect(RuntimeDir(gateway.node.folder).gateway_socket)
    try:
        return connection, await connection.ask(kernel_id, request, "a.ipynb", "python3", wait)
    except BaseException:
        await connection.close()
        raise


def open_files() -> list[str]:
    files = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            files.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return files


async def test_a_gateway_that_cannot_listen_leaves_the_queue_to_another(a_gateway: Any) -> None:
    runtime, log = RuntimeDir(Path(tempfile.mkdtemp(prefix="aq-"))), logging.getLogger(__name__)
    first, second = (LocalSocket(runtime, a_gateway.admission, log, lambda owner: frozenset()) for _ in range(2))
    runtime.gateway_socket.mkdir()
    with pytest.raises(OSError, match="directory"):
        await first.start()
    runtime.gateway_socket.rmdir()
    assert await second.start(), "the first holds no lock"
    await second.stop()
    shutil.rmtree(runtime.path)


async def test_a_file_system_without_locks_leaves_no_descriptor(
    a_gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    folder = tempfile.mkdtemp(prefix="aq-")
    local = LocalSocket(RuntimeDir(Path(folder)), a_gateway.admission, logging.getLogger(), lambda owner: frozenset())
    monkeypatch.setattr("jupyter_aliquot.gpu_hook.base.files.fcntl.flock", refuse)
    with pytest.raises(OSError, match="locks"):
        await local.start()
    assert not [one for one in open_files() if one.startswith(folder)]
    shutil.rmtree(folder)


async def test_a_kernel_of_another_program_is_in_the_gateways_ledger(a_gateway: Any, until: Any) -> None:
    manager = a_manager("light.gpu-0.5")
    await manager.start_kernel()
    (holding,) = a_gateway.admission.snapshot().holdings
    assert holding.grant.kernel_id == manager.kernel_id
    assert (holding.grant.owner, holding.requester.kernelspec) == (user_name(), "light.gpu-0.5")
    assert manager.provisioner is not None
    await until(lambda: a_gateway.node.kernels()[manager.kernel_id]["pids"] == [manager.provisioner.pid])
    await manager.restart_kernel(now=True)
    assert a_gateway.held() == {manager.kernel_id}
    await manager.shutdown_kernel(now=True)
    assert a_gateway.held() == set()
    assert a_gateway.node.kernels() == {}


async def test_a_full_gateway_queues_and_its_time_out_names_the_queue(a_gateway: Any, until: Any) -> None:
    connection, _ = await ask(a_gateway, "holder", Request(GpuShare(100)))
    ahead = asyncio.ensure_future(ask(a_gateway, "ahead", HALF))
    await until(lambda: a_gateway.admission.waiting("ahead") is not None)
    manager = a_manager("light.gpu-0.5", wait_seconds=2.0)
    with pytest.raises(errors.QueueTimeoutError, match=r"Needs 0.5 GPU; none is free.* with 1 request ahead of it"):
        await manager.start_kernel()
    await connection.release()
    await connection.close()
    second, _ = await ahead
    await second.release()
    await second.close()


async def test_an_asker_that_leaves_is_withdrawn(a_gateway: Any, until: Any) -> None:
    connection, _ = await ask(a_gateway, "holder", Request(GpuShare(100)))
    asking = asyncio.ensure_future(ask(a_gateway, "leaver"))
    await until(lambda: a_gateway.admission.waiting("leaver") is not None)
    asking.cancel()
    await until(lambda: a_gateway.admission.waiting("leaver") is None)
    await connection.close()
    await until(lambda: a_gateway.held() == set())


async def test_a_holder_that_leaves_keeps_the_grant_while_its_kernel_lives(a_gateway: Any, until: Any) -> None:
    connection, _ = await ask(a_gateway, "k1")
    kernel = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    await connection.bound(kernel.pid, start_time_ticks(kernel.pid) or 0)
    await connection.close()
    tasks = a_gateway.socket._connections
    await until(lambda: len(tasks) == 1)
    assert a_gateway.held() == {"k1"}
    kernel.kill()
    await kernel.wait()
    await until(lambda: a_gateway.held() == set())


async def test_a_process_of_nobody_is_not_bound(a_gateway: Any, until: Any) -> None:
    connection, _ = await ask(a_gateway, "k1")
    await connection.bound(2**22 + 1, 1)
    await connection.close()
    await until(lambda: a_gateway.held() == set())


@pytest.mark.parametrize(
    ("line", "want_code"),
    [
        ({"op": "steal"}, "bad_request"),
        ({"op": "ask", "version": 99}, "bad_request"),
        ({"op": "ask", "version": 1, "kernel_id": "../../x", "hundredths": 50}, "bad_request"),
        ({"op": "ask", "version": 1, "kernel_id": "k1"}, "bad_request"),
        ({"op": "ask", "version": 1, "kernel_id": "k1", "hundredths": 300}, "never_fits"),
        ({"op": "ask", "version": 1, "kernel_id": "k1", "hundredths": 50, "wait_seconds": "long"}, "bad_request"),
        ({"op": "ask", "version": 1, "kernel_id": "k1", "hundredths": 50, "wait_seconds": float("nan")}, "bad_request"),
    ],
)
async def test_a_bad_question_gets_its_answer(a_gateway: Any, until: Any, line: Any, want_code: str) -> None:
    await until(lambda: a_gateway.admission.snapshot().node.devices)
    path = RuntimeDir(a_gateway.node.folder).gateway_socket
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(json.dumps(line).encode() + b"\n")
    answer = json.loads(await asyncio.wait_for(reader.readline(), 30))
    assert (answer["ok"], answer["code"]) == (False, want_code)
    assert answer["message"]
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\n\n", b"[" * 30_000 + b"\n"])
async def test_what_is_no_json_ends_the_connection(
    a_gateway: Any, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_unix_connection(RuntimeDir(a_gateway.node.folder).gateway_socket)
    writer.write(said)
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()
    assert "Traceback" not in caplog.text


async def test_a_second_gateway_goes_on_without_the_socket(a_gateway: Any, caplog: pytest.LogCaptureFixture) -> None:
    second = LocalSocket(
        RuntimeDir(a_gateway.node.folder), a_gateway.admission, logging.getLogger("second"), lambda _: frozenset()
    )
    assert not await second.start()
    assert "another gateway serves" in caplog.text
    assert not second.is_owner
    assert a_gateway.socket.is_owner
    await second.stop()
    await (await GatewayConnection.connect(RuntimeDir(a_gateway.node.folder).gateway_socket)).close()
    await a_gateway.socket.stop()
    assert await second.start(), "and takes over when the first has ended"
    await second.stop()


async def test_a_gateway_that_ends_leaves_the_kernel_with_the_agent(a_gateway: Any, until: Any) -> None:
    manager = a_manager("light.gpu-0.5")
    await manager.start_kernel()
    await a_gateway.socket.stop()
    await a_gateway.admission.stop()
    await a_gateway.link.stop()
    assert manager.provisioner is not None
    provisioner: Any = manager.provisioner
    await until(lambda: provisioner._hold._connection.__class__.__name__ == "AgentHolder")
    assert list(a_gateway.node.kernels()) == [manager.kernel_id]
    await manager.shutdown_kernel(now=True)
    assert a_gateway.node.kernels() == {}


async def test_only_its_own_user_may_ask(a_gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is private already; this check is the second lock."""
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")
    own = os.geteuid()
    code = (
        "import json, os, socket, sys\n"
        "sock = socket.socket(socket.AF_UNIX); os.chdir(sys.argv[1]); os.setuid(65534)\n"
        "sock.connect('gateway.sock'); sock.sendall(b'{}\\n'); print(sock.makefile().readline())\n"
    )
    folder = a_gateway.node.folder
    folder.chmod(0o755)
    (folder / "gateway.sock").chmod(0o666)
    command = ("python3", "-c", code, str(folder))
    peer = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    answer, _ = await peer.communicate()
    assert "cannot use the gateway of user" in answer.decode()
    assert own == os.geteuid()
