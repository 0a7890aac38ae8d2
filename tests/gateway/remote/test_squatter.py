"""A user who binds the gateway's port while it is down gets nothing of another user's server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import websocket
from jupyter_server.gateway.gateway_client import GatewayClient, RetryableHTTPClient
from second_account import ANOTHER
from tornado.netutil import Resolver

from jupyter_aliquot.client import Client, ClientError, NoAnswerError, Retries, find_server
from jupyter_aliquot.gateway.remote.token_guard import guard_token
from jupyter_aliquot.gateway.terminal.rest_client import NoGatewayHere, OwnGateway
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.listener import ACCOUNT_VARIABLE, ListenerError, account_in, check_listener

from .conftest import TOKENS, Server

SQUATTER = """
import os, socket, sys, time
address, port = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
while True:
    try:
        listening.bind((address, port))
        break
    except OSError:
        time.sleep(0.001)
listening.listen()
print(listening.getsockname()[1], flush=True)
while True:
    connection, _ = listening.accept()
    print(repr(connection.recv(65536)), flush=True)
    connection.close()
"""


@dataclass
class Squatter:
    """A process of another account that listens where a gateway should, and prints what it gets."""

    process: subprocess.Popen[str]
    port: int

    def wait(self) -> None:
        """Wait until it has the port."""
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def heard(self) -> str:
        """End it, and return what it got."""
        self.process.kill()
        return self.process.communicate()[0]


@pytest.fixture
def squat() -> Iterator[Callable[..., Squatter]]:
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")
    made: list[subprocess.Popen[str]] = []

    def start(address: str = "127.0.0.1", port: int = 0, *, has_port: bool = True) -> Squatter:
        words = [sys.executable, "-c", SQUATTER, address, str(port)]
        made.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        squatter = Squatter(made[-1], port)
        if has_port:
            squatter.wait()
        return squatter

    yield start
    for process in made:
        process.kill()
        process.wait()


def test_no_request_of_a_users_server_reaches_another_accounts_listener(
    squat: Callable[..., Squatter], own_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    (alice,) = own_servers("alice", gateway=own_gateway, variables={ACCOUNT_VARIABLE: str(os.geteuid())})
    made = alice.ask("POST", "api/kernels", {"name": "python3"})
    assert made.status == 201, made
    own_gateway.end()
    squatter = squat(port=own_gateway.port)
    status = alice.ask("GET", "aliquot/api/v1/status")
    words = json.loads(status.body)["message"]
    assert (status.status, "No token is sent there" in words) == (503, True), status
    for method, path in (("GET", "api/kernels"), ("POST", "api/kernels"), ("GET", "api/kernelspecs")):
        answer = alice.ask(method, path, {"name": "python3"} if method == "POST" else None)
        assert answer.status != 0, path
    for path in (f"api/kernels/{made.body['id']}/channels", "aliquot/api/v1/events"):
        with contextlib.suppress(websocket.WebSocketException):  # refused, or opened and closed again
            opened = websocket.create_connection(
                f"ws://127.0.0.1:{alice.port}/{path}", timeout=90, header=[f"Authorization: token {alice.token}"]
            )
            while opened.recv():
                pass
    heard = squatter.heard()
    assert heard == "", "not even a connection"
    own_gateway.start()
    assert alice.ask("GET", "aliquot/api/v1/status").status == 200


class DyingGateway(threading.Thread):
    """A listener of this account that takes requests, and dies when a squatter waits for its port."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.dies = threading.Event()
        self.next: Squatter | None = None

    def run(self) -> None:
        taken = []
        self._listening.settimeout(0.05)
        while not self.dies.is_set():
            with contextlib.suppress(TimeoutError):
                taken.append(self._listening.accept()[0])
        self._listening.close()
        assert self.next is not None
        self.next.wait()
        for connection in taken:
            connection.close()


@pytest.mark.parametrize("count", [1, 15], ids=["sent again", "more than Tornado sends at once"])
def test_a_request_that_outlives_the_gateway_does_not_reach_the_next_listener(
    count: int, squat: Callable[..., Squatter]
) -> None:
    gateway = DyingGateway()
    gateway.next = squat(port=gateway.port, has_port=False)
    gateway.start()

    async def ask() -> list[Any]:
        client = GatewayClient(url=f"http://127.0.0.1:{gateway.port}", auth_token="a-token-of-alice")
        guard_token(client, {ACCOUNT_VARIABLE: str(os.geteuid())})
        url = f"{client.url}/api/kernels"
        asked = [RetryableHTTPClient().fetch(url, **client.load_connection_args(method="GET")) for _ in range(count)]
        asyncio.get_running_loop().call_later(0.5, gateway.dies.set)
        return await asyncio.gather(*asked, return_exceptions=True)

    try:
        ended = asyncio.run(ask())
    finally:
        Resolver.configure(None)
    assert gateway.next.heard() == "", "not even a connection"
    assert {type(one).__name__ for one in ended} == {"UntrustedGatewayError"}


def test_the_command_line_sends_nothing_there_either(squat: Callable[..., Squatter]) -> None:
    squatter = squat()
    url = f"http://127.0.0.1:{squatter.port}"
    told = {"JUPYTER_GATEWAY_URL": url, "JUPYTER_GATEWAY_AUTH_TOKEN": TOKENS["alice"], ACCOUNT_VARIABLE: "0"}
    server = {"JUPYTERHUB_USER": "alice", "JUPYTERHUB_SERVICE_URL": f"{url}/user/alice", "JUPYTERHUB_API_TOKEN": "own"}
    asked = OwnGateway.elsewhere({**told, **server})
    assert len(asked) == 2
    for one in asked:
        with pytest.raises(NoGatewayHere, match="No token is sent there"):
            one.ask("status")
    assert squatter.heard() == ""


def test_the_file_of_a_killed_server_sends_its_token_to_no_other_account(
    squat: Callable[..., Squatter], tmp_path: Path
) -> None:
    squatter = squat()
    runtime = RuntimeDir(tmp_path)
    runtime.gateway_lock.write_text("4711")
    left = {"url": f"http://127.0.0.1:{squatter.port}/", "token": "a-fixed-token"}
    (tmp_path / "jpserver-4711.json").write_text(json.dumps(left))
    with pytest.raises(NoGatewayHere, match="No token is sent there"):
        OwnGateway.find(runtime, tmp_path).ask("status")
    assert squatter.heard() == ""


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1"])
def test_a_listener_of_another_account_is_seen_however_it_is_bound(bound: str, squat: Callable[..., Squatter]) -> None:
    squatter = squat(bound)
    host = "[::1]" if bound == "::1" else "127.0.0.1"
    for url in (f"http://{host}:{squatter.port}/services/aliquot", f"http://localhost:{squatter.port}"):
        with pytest.raises(ListenerError, match="not by one of"):
            check_listener(url, 0)
        check_listener(url, ANOTHER)


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", socket.gethostname().upper()])
def test_other_words_for_this_machine_are_looked_at_too(
    host: str, squat: Callable[..., Squatter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's /etc/hosts has the machine's own name at a loopback address."""
    own = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: own)
    squatter = squat("0.0.0.0")
    with pytest.raises(ListenerError, match="not by one of"):
        check_listener(f"http://{host}:{squatter.port}", os.geteuid())


@pytest.mark.parametrize("is_of_hub", [False, True], ids=["the gateway", "the user's own server"])
def test_no_request_of_the_client_reaches_another_accounts_listener(
    squat: Callable[..., Squatter], is_of_hub: bool
) -> None:
    squatter = squat()
    url = f"http://127.0.0.1:{squatter.port}/"
    own = {"JUPYTERHUB_USER": "ada", "JUPYTERHUB_SERVICE_URL": url, "JUPYTERHUB_API_TOKEN": "a-secret"}
    gateway = {
        "JUPYTER_GATEWAY_URL": url,
        "JUPYTER_GATEWAY_AUTH_TOKEN": "a-secret",
        ACCOUNT_VARIABLE: str(os.geteuid()),
    }
    with Client(find_server(own if is_of_hub else gateway), retries=Retries(attempts=1)) as client:
        with pytest.raises(NoAnswerError, match="is held by a process of the account"):
            client.status()
        with pytest.raises(NoAnswerError, match="No token is sent there"):
            next(iter(client.events(patience_seconds=0)))
    assert squatter.heard() == ""


def test_a_clients_account_that_is_no_number_is_told() -> None:
    with pytest.raises(ClientError, match="Use the number of the gateway's account"):
        find_server({"JUPYTER_GATEWAY_URL": "http://127.0.0.1:1/", ACCOUNT_VARIABLE: "ada"})


def test_the_more_exact_address_counts_as_it_does_for_the_kernel(squat: Callable[..., Squatter]) -> None:
    with socket.socket() as gateway:
        gateway.bind(("127.0.0.1", 0))
        gateway.listen()
        port = gateway.getsockname()[1]
        squat("127.0.0.2", port)
        check_listener(f"http://127.0.0.1:{port}", os.geteuid())
        with pytest.raises(ListenerError, match="not by one of"):
            check_listener(f"http://127.0.0.2:{port}", os.geteuid())


def test_a_free_port_gets_nothing_and_other_machines_are_not_looked_at() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(ListenerError, match="no process listens there"):
            check_listener(f"http://127.0.0.1:{free.getsockname()[1]}", os.geteuid())
    for url in ("http://10.1.2.3:8890", "https://gpu.example.org", "http://[2001:db8::1]:8890"):
        check_listener(url, os.geteuid())


def test_root_may_listen_for_the_gateway() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can listen as root")
    with socket.socket() as gateway:
        gateway.bind(("127.0.0.1", 0))
        gateway.listen()
        check_listener(f"http://127.0.0.1:{gateway.getsockname()[1]}", ANOTHER)


def test_an_account_that_is_no_number_is_refused() -> None:
    assert account_in({}) is account_in({ACCOUNT_VARIABLE: ""}) is None
    assert account_in({ACCOUNT_VARIABLE: "999"}) == 999
    with pytest.raises(ListenerError, match="Use the number"):
        account_in({ACCOUNT_VARIABLE: "aliquot"})
