"""A real Hub with two real gateways: a user chooses one on the spawn page, and kernels run there."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hub_gateway import TOKEN, start_gateway
from hub_kernels import run_cell
from hub_process import PASSWORD, HubProcess, hub_problem, until
from hub_remains import server_environment
from hub_visitor import HubUser
from ports import free_port

from jupyter_aliquot.gateway.doctor.gateways import look_at_gateways
from jupyter_aliquot.gateway.doctor.runner import FAIL, OK

SECONDS = 120.0
SECOND = "gpu-2"


@pytest.fixture(scope="module")
def second_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def a_hub(second_port: int) -> Iterator[HubProcess]:
    """A Hub with its own gateway `aliquot`, with `gpu-2`, `gpu-3` at the address of another, and `gpu-4` nowhere."""
    if problem := hub_problem():
        pytest.skip(problem)
    second = {"name": SECOND, "url": f"http://127.0.0.1:{second_port}", "api_token": TOKEN, "label": "room 2"}
    misnamed = {"name": "gpu-3", "url": "http://localhost:GATEWAY_PORT", "api_token": f"{TOKEN}-3"}
    away = {"name": "gpu-4", "url": f"http://127.0.0.1:{free_port()}", "api_token": f"{TOKEN}-4"}
    with HubProcess(with_lab=False, others=(second, misnamed, away)) as hub:
        yield hub


@pytest.fixture(scope="module")
def pages_token(a_hub: HubProcess, second_port: int) -> str:
    """The header that the spawn page sends to the program that holds `gpu-2`'s port before the gateway does."""
    came: list[str] = []

    class Program(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.headers["Authorization"] or "")
            self.send_error(503)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", second_port), Program) as program:
        threading.Thread(target=program.serve_forever, daemon=True).start()
        user = HubUser(a_hub.url, "carol", PASSWORD)
        # The Hub itself asks each service without a token when it starts.
        found = until(lambda: rows(user) and [one for one in came if one], SECONDS)
        program.shutdown()
    return str(found[0])


@pytest.fixture(scope="module")
def second_gateway(a_hub: HubProcess, second_port: int, pages_token: str) -> Iterator[subprocess.Popen[bytes]]:
    assert pages_token
    gateway = start_gateway(a_hub, limits={}, name=SECOND, port=second_port)
    yield gateway
    gateway.send_signal(signal.SIGTERM)
    try:
        gateway.wait(SECONDS)
    finally:
        gateway.kill()
        gateway.wait()


def rows(user: HubUser) -> dict[str, str]:
    """Return the text of each gateway on the spawn page; that of the marked one ends in a star."""
    status, page = user.get("hub/spawn")
    assert status == 200, page
    found = re.findall(r'name="gpu_server" [^>]*value="([^"]*)"( checked)?> <label [^>]*>([^<]*)</label>', page)
    return {name: f"{text} *" if mark else text for name, mark, text in found}


def wait_for_rows(user: HubUser, **want: str) -> dict[str, str]:
    """Wait until the page of a user without a server shows these texts; return all."""

    def shown() -> dict[str, str]:
        found = rows(user)
        return found if all(found[name.replace("_", "-")] == text for name, text in want.items()) else {}

    found: dict[str, str] = until(shown, SECONDS)
    return found


def kernels_of(hub: HubProcess, name: str, token: str) -> list[str]:
    """Return the ids of the kernels at a gateway, asked through the Hub's proxy."""
    return [one["id"] for one in hub.gateway("api/kernels", token=token, name=name)]


def options_of(hub: HubProcess, user: str) -> dict[str, Any]:
    options: dict[str, Any] = hub.api(f"users/{user}")["servers"][""]["user_options"]
    return options


@pytest.mark.usefixtures("second_gateway")
def test_a_users_kernels_run_on_the_gateway_that_the_user_chose(a_hub: HubProcess) -> None:
    alice = HubUser(a_hub.url, "alice", PASSWORD)
    wait_for_rows(alice, aliquot="aliquot · 1 of 1 GPU free *", gpu_2="gpu-2 · room 2 · 1 of 1 GPU free")
    alice.post("hub/spawn", gpu_server=SECOND, gpu="0.25")
    a_hub.wait_for_server("alice")
    assert options_of(a_hub, "alice").items() >= {"gpu_server": SECOND, "gpu": "0.25"}.items()
    token = a_hub.token_of("alice")
    kernel = a_hub.server("alice", "api/kernels", "POST", {"name": "python3"}, token=token)
    assert kernel["name"] == "python3.gpu-0.25"
    assert (kernels_of(a_hub, SECOND, token), kernels_of(a_hub, "aliquot", token)) == ([kernel["id"]], [])
    where = "import os; print(os.getcwd())"
    printed = run_cell(f"{a_hub.url}/user/alice", token, kernel["id"], where)
    assert printed.strip() == str(a_hub.home / SECOND), "the folder of the second gateway"
    wait_for_rows(HubUser(a_hub.url, "carol", PASSWORD), gpu_2="gpu-2 · room 2 · 0.75 of 1 GPU free")


@pytest.mark.usefixtures("second_gateway")
def test_a_servers_token_for_its_gateway_does_not_open_another(a_hub: HubProcess) -> None:
    a_hub.start_server("bob", gpu_server=SECOND, gpu="none")
    token = server_environment(a_hub.home, "bob")["JUPYTER_GATEWAY_AUTH_TOKEN"]
    kernels_of(a_hub, SECOND, token)
    with pytest.raises(urllib.error.HTTPError) as caught:
        kernels_of(a_hub, "aliquot", token)
    assert caught.value.code == 403


@pytest.mark.usefixtures("second_gateway")
@pytest.mark.parametrize(
    ("method", "path", "body", "want"),
    [
        ("GET", "aliquot/api/v1/status", None, 200),
        ("GET", "api/kernels", None, 403),
        ("POST", "api/kernels", {"name": "python3"}, 403),
        ("GET", "api/me", None, 403),
        ("GET", "aliquot/api/v1/kernels", None, 403),
        ("GET", "aliquot/api/v1/status/", None, 403),
        ("POST", "aliquot/api/v1/status", {}, 403),
        ("DELETE", "api/sessions/none", None, 403),
    ],
)
def test_the_pages_token_reads_the_status_and_does_nothing_else(
    second_port: int, pages_token: str, method: str, path: str, body: Any, want: int
) -> None:
    """Another program may have got it: one that held the port while the gateway was down."""
    url = f"http://127.0.0.1:{second_port}/services/{SECOND}/{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"Authorization": pages_token})

    def answer() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""  # the gateway starts

    code, said = until(lambda: found if (found := answer())[0] else None, SECONDS)
    assert (code, want == 200 or "and nothing else" in said) == (want, True), said


@pytest.mark.usefixtures("second_gateway")
def test_a_start_that_names_no_gateway_keeps_the_one_that_it_got(a_hub: HubProcess) -> None:
    a_hub.start_server("dora", gpu="0.1")
    chosen = options_of(a_hub, "dora")["gpu_server"]
    with contextlib.closing(sqlite3.connect(a_hub.home / "hub.sqlite")) as database:
        ours = "SELECT user_options FROM spawners JOIN users ON users.id = user_id WHERE users.name = 'dora'"
        ((stored,),) = database.execute(ours).fetchall()
    # A Hub that restarts knows no more than its database.
    assert json.loads(stored) == {"gpu": "0.1", "gpu_server": chosen}
    token = a_hub.token_of("dora")
    kernel = a_hub.server("dora", "api/kernels", "POST", {"name": "python3"}, token=token)
    assert kernels_of(a_hub, chosen, token) == [kernel["id"]]
    a_hub.server("dora", f"api/kernels/{kernel['id']}", "DELETE", token=token)


@pytest.mark.usefixtures("second_gateway")
def test_the_page_tells_gateways_that_are_down_or_have_another_name(a_hub: HubProcess) -> None:
    found = wait_for_rows(HubUser(a_hub.url, "carol", PASSWORD), gpu_3="gpu-3 · refuses this Hub")
    assert found["gpu-4"] == "gpu-4 · down"


@pytest.mark.usefixtures("second_gateway")
def test_the_doctor_looks_at_each_gateway(a_hub: HubProcess) -> None:
    a_hub._config.chmod(0o600)
    user = HubUser(a_hub.url, "carol", PASSWORD)
    until(lambda: "free" in rows(user)[SECOND], SECONDS)
    found = {one.found: one for one in look_at_gateways(a_hub._config, {})}
    assert next(iter(found)).endswith(
        "names 4: aliquot, gpu-2, gpu-3, gpu-4. All other checks are of this machine alone"
    )
    told = {text.split()[0]: one.state for text, one in found.items() if " at http" in text}
    assert told == {"aliquot": OK, "gpu-2": OK, "gpu-3": FAIL, "gpu-4": FAIL}
    assert {f"the Hub knows the api_token of {name}" for name in ("gpu-2", "gpu-3", "gpu-4")} <= set(found)
    assert all(one.remedy for one in found.values() if one.state == FAIL)
    assert not [text for one in found.values() for text in (one.found, one.remedy) if TOKEN in text]


@pytest.mark.soak(alone="starts one more gateway")
def test_a_choice_that_went_down_is_told_and_another_one_starts(
    a_hub: HubProcess, second_gateway: subprocess.Popen[bytes]
) -> None:
    a_hub.start_server("ada", gpu_server=SECOND, gpu="none")
    a_hub.stop_server("ada")
    second_gateway.send_signal(signal.SIGTERM)
    second_gateway.wait(SECONDS)
    ada = HubUser(a_hub.url, "ada", PASSWORD)
    with pytest.raises(urllib.error.HTTPError) as caught:
        a_hub.start_server("ada")
    said = caught.value.read().decode()
    assert (caught.value.code, "The GPU server gpu-2 does not answer. Choose another (aliquot)" in said) == (409, True)
    wait_for_rows(ada, aliquot="aliquot · 1 of 1 GPU free *", gpu_2="gpu-2 · room 2 · down")
    _, page = ada.post("hub/spawn", gpu_server=SECOND, gpu="none")
    assert "The GPU server gpu-2 does not answer" in page
    assert 'name="gpu_server"' in page, "the form is there again"
    ada.post("hub/spawn", gpu_server="aliquot", gpu="none")
    a_hub.wait_for_server("ada")
    token = a_hub.token_of("ada")
    kernel = a_hub.server("ada", "api/kernels", "POST", {"name": "python3"}, token=token)
    assert kernels_of(a_hub, "aliquot", token) == [kernel["id"]]
