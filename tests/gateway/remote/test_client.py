"""The client against a user's own server in gateway mode: what it says is the gateway's answer, and its kernels run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_aliquot.client import Client, NoAnswerError, NotAllowedError, NotFoundError, Retries

from .conftest import TOKENS, Server


def test_the_client_works_through_a_users_server(a_gateway: Server, own_servers: Callable[..., list[Server]]) -> None:
    [own] = own_servers("alice")
    with Client(own.url, own.token) as through, Client(a_gateway.url, TOKENS["alice"]) as direct:
        assert through.status()["user"]["name"] == direct.status()["user"]["name"] == "alice"
        assert through.openapi() == direct.openapi()
        kernel_id = through.start_kernel("python3")["id"]
        result = through.run_code(kernel_id, "import sys; print(6 * 7, file=sys.stdout); 'a result'")
        assert (result.text, result.error) == ("42\n'a result'\n", None)
        assert through.run_code(kernel_id, "1 / 0").error == "ZeroDivisionError: division by zero"
        with pytest.raises(NotFoundError):
            through.kernel("no-such-kernel")
        through.end_kernel(kernel_id)
        with pytest.raises(NotFoundError):
            through.end_kernel(kernel_id)


SEND_BUFFERS = """
kernel = get_ipython().kernel
data = {"data": {"text/plain": "a figure"}, "metadata": {}}
of_cell = {"parent": kernel.get_parent(), "buffers": [bytes([0, 255])]}
sent = kernel.session.send(kernel.iopub_socket, "display_data", data, **of_cell)
"""


def test_code_that_sends_buffers_or_ends_its_kernel_ends_for_the_client(a_gateway: Server) -> None:
    with Client(a_gateway.url, TOKENS["alice"]) as client:
        kernel_id = client.start_kernel("python3")["id"]
        assert client.run_code(kernel_id, SEND_BUFFERS).text == "a figure\n"
        with pytest.raises(NoAnswerError, match="died or was restarted"):
            client.run_code(kernel_id, "import os; os.kill(os.getpid(), 9)", timeout_seconds=300)


def test_events_and_code_need_the_servers_token(a_gateway: Server) -> None:
    with Client(a_gateway.url, "a-wrong-token", Retries(attempts=1)) as client:
        with pytest.raises(NotAllowedError):
            next(iter(client.events()))
        with pytest.raises(NotAllowedError):
            client.run_code("00000000-0000-0000-0000-000000000000", "1")


def test_work_on_the_gateway_is_activity_of_the_users_server(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    """Look as the server of a Hub does: no page is open, and no other request counts."""
    [own] = own_servers("alice")
    untracked = "no_track_activity=1"
    with Client(own.url, own.token) as through, Client(a_gateway.url, TOKENS["alice"]) as direct:
        kernel_id = through.start_kernel("python3")["id"]
        before = own.ask("GET", f"api/status?{untracked}").body["last_activity"]
        direct.run_code(kernel_id, "1")
        assert own.ask("GET", f"api/status?{untracked}").body["last_activity"] > before
