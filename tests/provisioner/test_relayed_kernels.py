"""Kernels behind relays, as any Jupyter client has them. No agent is needed: they are plain."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from traitlets.config import Config
from zmq.utils.monitor import recv_monitor_message

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.terminations import ProcessEnd

Start = Callable[..., KernelManager]


@pytest.fixture
def start(no_node: Any, kernelspecs: Any) -> Iterator[Start]:
    """Return a function that starts kernels, which end with the test."""
    managers: list[KernelManager] = []

    def start(name: str = "plain", manager: dict[str, Any] | None = None, **arguments: Any) -> KernelManager:
        found = KernelManager(kernel_name=name, kernel_spec_manager=kernelspecs, **(manager or {}))
        managers.append(found)
        found.start_kernel(**arguments)
        return found

    yield start
    for manager in managers:
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)


@pytest.fixture
def ask() -> Iterator[Callable[..., str]]:
    """Return a function that executes code as a client and returns its output.

    The client knows only the connection file.
    """
    clients: dict[str, BlockingKernelClient] = {}

    def ask(manager: KernelManager, code: str) -> str:
        client = clients.get(manager.connection_file)
        if client is None:
            client = clients[manager.connection_file] = BlockingKernelClient(connection_file=manager.connection_file)
            client.load_connection_file()
            client.start_channels(hb=False)  # the heartbeat gives a kernel one second to answer
            client.wait_for_ready(timeout=90)
        printed: list[str] = []

        def note(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        reply = client.execute_interactive(code, timeout=90, output_hook=note)
        return "".join(printed) if reply["content"]["status"] == "ok" else str(reply["content"]["ename"])

    yield ask
    for client in clients.values():
        client.stop_channels()


def relay_of(manager: KernelManager) -> Any:
    provisioner: Any = manager.provisioner
    provisioner._relay.is_alive()  # this reads the record again
    return provisioner._relay.record


def process_of(manager: KernelManager) -> int:
    provisioner: Any = manager.provisioner
    return int(provisioner._kernel.pid)


def test_a_client_finds_the_kernel_by_its_connection_file(start: Start, ask: Any, no_node: Any) -> None:
    manager = start()
    info = json.loads(Path(manager.connection_file).read_text())
    assert info["transport"] == "ipc"
    assert info["ip"].startswith(os.fspath(no_node.folder))
    assert ask(manager, "import os; print(os.getpid(), os.getppid())").split() == [
        str(process_of(manager)),
        str(relay_of(manager).pid),
    ]


def test_the_kernel_has_its_clients_folder_environment_and_limits(start: Start, ask: Any, tmp_path: Path) -> None:
    manager = start(cwd=str(tmp_path), env={**os.environ, "GREETING": "hello", "JPY_PARENT_PID": "7"})
    code = "import os, resource; print(os.getcwd(), os.environ['GREETING'], resource.getrlimit(resource.RLIMIT_NOFILE))"
    assert ask(manager, code).strip() == f"{tmp_path} hello {resource.getrlimit(resource.RLIMIT_NOFILE)}"
    assert manager.resolve_path("file.txt") is None
    (tmp_path / "file.txt").touch()
    assert manager.resolve_path("file.txt") == str(tmp_path / "file.txt")


def test_a_restart_keeps_relay_and_front(start: Start, ask: Any) -> None:
    manager = start()
    ask(manager, "x = 1")
    before, process = relay_of(manager), process_of(manager)
    front = Path(manager.connection_file).read_text()
    manager.restart_kernel(now=True)
    assert ask(manager, "print(x)") == "NameError", "the client's connection goes on, in a new process"
    assert (relay_of(manager).pid, Path(manager.connection_file).read_text()) == (before.pid, front)
    assert process_of(manager) != process
    newcomer = manager.client()
    newcomer.start_channels()
    newcomer.wait_for_ready(timeout=90)
    newcomer.stop_channels()


def test_a_second_start_replaces_the_kernel(start: Start, ask: Any) -> None:
    manager = start()
    first = process_of(manager)
    ask(manager, "x = 1")
    manager.start_kernel()
    assert not os.path.exists(f"/proc/{first}")
    assert ask(manager, "print(x)") == "NameError"


def test_how_a_kernel_ended_is_known(start: Start, ask: Any, until: Any) -> None:
    manager = start()
    provisioner: Any = manager.provisioner
    assert asyncio.run(provisioner.ending()) is None
    os.kill(process_of(manager), signal.SIGKILL)
    until(lambda: not manager.is_alive())
    assert asyncio.run(provisioner.poll()) == -signal.SIGKILL
    end: ProcessEnd = asyncio.run(provisioner.ending())
    assert (end.signal, end.exit_code) == (signal.SIGKILL, None)
    assert end.at is not None
    manager.restart_kernel(now=True)
    assert asyncio.run(provisioner.ending()) is None
    ask(manager, "x = 1")
    manager.shutdown_kernel()
    assert asyncio.run(provisioner.ending()).exit_code == 0, "known after its relay's folder is gone"


def test_a_running_cell_is_interrupted(start: Start, ask: Any, tmp_path: Path, until: Any) -> None:
    manager = start()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=90)
    begun = tmp_path / "begun"
    message_id = client.execute(f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(100)")
    until(begun.exists)
    manager.interrupt_kernel()
    while (reply := client.get_shell_msg(timeout=90))["parent_header"]["msg_id"] != message_id:
        pass
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    client.stop_channels()


def test_a_shutdown_leaves_nothing(start: Start, no_node: Any, until: Any) -> None:
    manager = start()
    relay, process = relay_of(manager), process_of(manager)
    manager.shutdown_kernel()
    assert not relay.folder.exists()
    assert not os.path.exists(f"/proc/{process}")
    until(lambda: not os.path.exists(f"/proc/{relay.pid}"))
    assert not os.path.exists(manager.connection_file)


@pytest.mark.parametrize("argv", [["/nonexistent/program"], [sys.executable, "-c", "raise SystemExit(3)"]])
def test_a_start_that_fails_leaves_no_relay(argv: list[str], start: Start, no_node: Any, kernelspecs: Any) -> None:
    spec = kernelspecs.get_kernel_spec("plain")
    kernelspecs.get_kernel_spec = lambda name: spec
    spec.argv = argv
    if argv[0] == sys.executable:
        manager = start()  # the kernel starts, and ends at once
        asyncio.run(manager.provisioner.wait())  # type: ignore[union-attr]
        manager.cleanup_resources()
    else:
        with pytest.raises(LaunchError, match="not found"):
            start()
    assert list(RuntimeDir(no_node.folder).relays.iterdir()) == []


_CLIENT = """
import os, sys
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name="plain")
manager.start_kernel({arguments})
print(manager.provisioner.pid, manager.provisioner._relay.record.pid, manager.connection_file, flush=True)
sys.stdin.read()
"""


def a_killed_client(arguments: str) -> list[str]:
    """Start a kernel by a client, and kill the client.

    Returns the pids of kernel and relay, and the connection file.
    """
    command = [sys.executable, "-c", _CLIENT.format(arguments=arguments)]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert client.stdout is not None
    words = client.stdout.readline().decode().split()
    client.kill()
    client.wait()
    client.stdout.close()
    client.stdin.close()  # type: ignore[union-attr]
    return words


def test_a_kernel_ends_with_its_client(start: Start, no_node: Any, until: Any) -> None:
    kernel, relay, _ = a_killed_client("")
    until(lambda: not os.path.exists(f"/proc/{kernel}") and not os.path.exists(f"/proc/{relay}"))
    until(lambda: not list(RuntimeDir(no_node.folder).relays.iterdir()))


def test_an_independent_kernel_outlives_its_client(start: Start, ask: Any, no_node: Any) -> None:
    _, _, connection_file = a_killed_client("independent=True")
    manager = KernelManager(connection_file=connection_file)
    assert ask(manager, "print('alive')") == "alive\n"


def test_the_kernels_own_output_goes_where_the_client_says(start: Start, ask: Any, tmp_path: Path) -> None:
    with open(tmp_path / "errors", "wb") as errors:
        manager = start(stderr=errors, stdout=subprocess.PIPE)
    ask(manager, "import os; os.write(1, b'out'); os.write(2, b'err')")
    pipes: Any = manager.provisioner.process  # type: ignore[union-attr]
    assert pipes.stdout.read(3) == b"out"
    assert (tmp_path / "errors").read_bytes().endswith(b"err")


@pytest.mark.parametrize("policy", ["auto", "required"])
def test_encryption_works_through_a_relay(start: Start, ask: Any, kernelspecs: Any, policy: str) -> None:
    spec = kernelspecs.get_kernel_spec("plain")
    spec.metadata["supported_encryption"] = "curve"
    kernelspecs.get_kernel_spec = lambda name: spec
    manager = start(manager={"transport_encryption": policy})
    assert "curve_publickey" in json.loads(Path(manager.connection_file).read_text())
    assert ask(manager, "print(1)") == "1\n"
    assert _handshake(Path(manager.connection_file)) != zmq.EVENT_HANDSHAKE_SUCCEEDED


def _handshake(connection_file: Path) -> int:
    """Return the event by which the front receives a client without keys."""
    info = json.loads(connection_file.read_text())
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        # The side that sees the other's greeting first ends the connection.
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED
        monitor = socket.get_monitor_socket(events)
        monitor.rcvtimeo = 10_000
        socket.connect(f"ipc://{info['ip']}-{info['shell_port']}")
        event = recv_monitor_message(monitor)["event"]
        socket.disable_monitor()
        return int(event)


def test_without_a_usable_folder_a_plain_kernel_starts_with_a_warning(
    start: Start, ask: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ALIQUOT_RUNTIME_DIR", "/dev/null")
    manager = start()
    assert ask(manager, "print(1)") == "1\n"
    assert json.loads(Path(manager.connection_file).read_text())["transport"] == "tcp"
    manager.restart_kernel(now=True)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=90)
    client.stop_channels()


def test_ports_that_were_chosen_are_kept(
    start: Start, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Jupyter puts the sockets of this transport into the current folder
    manager = start(manager={"transport": "ipc", "ip": "", "shell_port": 7})
    assert manager.shell_port == 7
    assert ask(manager, "print(1)") == "1\n"


_MESSAGE_KERNEL = """
import signal, sys
from ipykernel.kernelapp import IPKernelApp
from ipykernel.ipkernel import IPythonKernel

class Kernel(IPythonKernel):
    async def interrupt_request(self, socket, ident, parent):
        print("asked to interrupt", file=sys.__stderr__, flush=True)
        await super().interrupt_request(socket, ident, parent)

IPKernelApp.launch_instance(kernel_class=Kernel)
"""


def test_a_kernel_that_wants_messages_is_interrupted_by_one(
    start: Start, kernelspecs: Any, tmp_path: Path, until: Any
) -> None:
    spec = kernelspecs.get_kernel_spec("plain")
    (tmp_path / "kernel.py").write_text(_MESSAGE_KERNEL)
    spec.argv, spec.interrupt_mode = [sys.executable, str(tmp_path / "kernel.py"), "-f", "{connection_file}"], "message"
    kernelspecs.get_kernel_spec = lambda name: spec
    with open(tmp_path / "errors", "wb") as errors:
        manager = start(stderr=errors)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=90)
    client.stop_channels()
    manager.interrupt_kernel()
    until(lambda: b"asked to interrupt" in (tmp_path / "errors").read_bytes())


def test_a_relay_host_that_cannot_start_is_an_error_that_says_what_to_do(
    start: Start, no_node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (no_node.folder / "relay.lock").mkdir()
    with pytest.raises(LaunchError, match=r"relay\.lock.*c\.AliquotProvisioner\.relay = False"):
        start()
    (no_node.folder / "relay.lock").rmdir()


def test_a_relay_host_that_ended_is_started_again_and_leaves_no_zombie(start: Start, no_node: Any) -> None:
    start().shutdown_kernel(now=True)
    host = int((no_node.folder / "relay.lock").read_text())
    descriptor = os.pidfd_open(host)
    os.kill(host, signal.SIGTERM)
    select.select([descriptor], [], [], 10)
    os.close(descriptor)
    start()
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{host}"):  # our child, which a thread of ours reaps
        assert time.monotonic() < deadline, "a zombie is left"
        time.sleep(0.02)


def test_without_relays_a_kernel_is_the_clients_child(start: Start, ask: Any, no_node: Any) -> None:
    manager = start(manager={"config": Config({"AliquotProvisioner": {"relay": False}})})
    assert ask(manager, "import os; print(os.getppid())") == f"{os.getpid()}\n"
    assert not (no_node.folder / "relays").exists()
