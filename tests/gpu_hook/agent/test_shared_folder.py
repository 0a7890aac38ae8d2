"""An agent whose kernels are of several accounts: which of them reach a kernel's socket, and fill no log."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from second_account import as_another

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentRefused
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, prepare_shared_runtime_dir

if TYPE_CHECKING:
    from tests.gpu_hook.agent.conftest import AHolder, ANode

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play other accounts")

ADA, BOB = 3001, 3002


@pytest.fixture
def a_shared_node(an_idle_node: ANode) -> ANode:
    prepare_shared_runtime_dir(RuntimeDir(an_idle_node.folder), 2999)
    an_idle_node.start()
    return an_idle_node


def hook(kernel_dir: str) -> str:
    """Tell what a process that connects to a kernel's socket gets."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.settimeout(60)
            connection.connect(f"{kernel_dir}/hook.sock")
            connection.send(b"no message of a hook")
            return "refused" if b"is of the account" in connection.recv(4096) else "heard"
        except BrokenPipeError:
            return "refused"
        except OSError as error:
            return type(error).__name__


def control(socket_path: Path, times: int) -> str:
    said = set()
    for _ in range(times):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.fspath(socket_path))
            try:
                said.add(connection.recv(1))
            except ConnectionResetError:
                said.add(b"")
    return repr(said)


def open_connections(socket_path: Path, count: int) -> str:
    """Open so many connections to the agent, and tell how many of them it keeps."""
    opened = [socket.socket(socket.AF_UNIX) for _ in range(count)]
    for one in opened:
        one.settimeout(60)
        one.connect(os.fspath(socket_path))
    kept = 0
    for one in opened:
        try:
            one.sendall(b'{"id":1,"op":"hello","version":1,"name":"flood"}\n')
            kept += bool(one.recv(1))
        except (BrokenPipeError, ConnectionResetError):
            pass  # turned away
    return str(kept)


def test_the_socket_of_a_containers_kernel_is_closed_to_the_machines_other_accounts(
    a_shared_node: ANode, open_holder: Callable[[], AHolder]
) -> None:
    holder = open_holder()
    inside = holder.reserve("inside", 10)["grant"]["kernel_dir"]
    adas = holder.reserve("adas", 10, uid=ADA)["grant"]["kernel_dir"]
    assert Path(inside).parent.parent == Path(adas).parent.parent == a_shared_node.folder
    assert as_another(lambda: hook(inside), BOB) == "PermissionError"
    assert (as_another(lambda: hook(adas), ADA), as_another(lambda: hook(adas), BOB)) == ("heard", "refused")
    # A container has the folder itself: its accounts need no way through those above it.
    descriptor = os.open(inside, os.O_PATH)
    assert as_another(lambda: hook(f"/proc/self/fd/{descriptor}"), BOB) == "heard"
    os.close(descriptor)


def bind_itself(folder: Path, kernel_id: str) -> str:
    """Have this process say that it is the kernel's, and tell what the agent answers."""

    async def bind() -> str:
        try:
            async with await AgentClient.connect(folder) as client:
                await client.bind(kernel_id, os.getpid(), start_time_ticks(os.getpid()))
        except AgentRefused as error:
            return error.code
        return "bound"

    return asyncio.run(bind())


def test_an_account_binds_a_process_to_its_own_kernel_alone(
    a_shared_node: ANode, open_holder: Callable[[], AHolder]
) -> None:
    holder = open_holder()
    for kernel_id, uid in (("adas", ADA), ("bobs", BOB)):
        holder.reserve(kernel_id, 10, uid=uid)
    folder = a_shared_node.folder
    assert as_another(lambda: bind_itself(folder, "adas"), ADA) == "bound"
    assert as_another(lambda: bind_itself(folder, "adas"), BOB) == "not_found"


def test_a_restarted_agent_finds_the_kernels_of_containers(
    a_shared_node: ANode, open_holder: Callable[[], AHolder]
) -> None:
    holder = open_holder()
    before = {name: holder.reserve(name, 10)["grant"]["kernel_dir"] for name in ("one", "two")}
    a_shared_node.end(signal.SIGKILL)
    a_shared_node.start()
    assert {str(found["kernel_id"]) for found in a_shared_node.status()["kernels"]} == set(before)
    again = open_holder()
    assert {name: again.reserve(name, 10)["grant"]["kernel_dir"] for name in before} == before


def test_accounts_that_are_turned_away_write_a_line_each_and_fill_no_log(
    a_shared_node: ANode, open_holder: Callable[[], AHolder]
) -> None:
    adas = open_holder().reserve("adas", 10, uid=ADA)["grant"]["kernel_dir"]
    path = RuntimeDir(a_shared_node.folder).agent_socket
    for account in (BOB, 3003):
        assert as_another(lambda: control(path, 50), account) == "{b''}"
        assert as_another(lambda: " ".join({hook(adas) for _ in range(50)}), account) == "refused"
    log = a_shared_node.log()
    assert log.count("event=turned_away") == 2
    assert log.count("event=hook_refused kernel=adas") == 2


def test_an_account_has_as_many_connections_as_its_kernels_can_need(
    a_shared_node: ANode, open_holder: Callable[[], AHolder]
) -> None:
    """An account that opens a thousand costs no other account its own."""
    holder = open_holder()
    for kernel_id, account in (("adas", ADA), ("bobs", BOB), ("bobs-too", BOB)):
        holder.reserve(kernel_id, 10, uid=account)
    path = RuntimeDir(a_shared_node.folder).agent_socket
    assert as_another(lambda: open_connections(path, 1000), BOB) == "16"
    assert as_another(lambda: open_connections(path, 10), ADA) == "8"
    assert as_another(lambda: open_connections(path, 10), BOB) == "10", "closed ones count no more"
