"""Cells lost when a gateway is killed between a page's send and the relay's read.

No cell runs twice, and the outputs endpoint names each lost one, on the user's own server in
gateway mode and on the gateway itself.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from started import stopped

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.client.control import read_relay_records

from .conftest import Server
from .restless_page import RestlessPage
from .test_gateway_away import LONG
from .test_remote_kernels import a_session


@pytest.fixture(params=["local", "gateway"])
def a_page(
    request: pytest.FixtureRequest, a_lasting_gateway: Server, own_servers: Callable[..., list[Server]]
) -> Iterator[RestlessPage]:
    """A page whose kernel counts in ``runs`` how often each cell ran, for each server mode."""
    server = a_lasting_gateway
    if request.param == "gateway":
        [server] = own_servers("alice", gateway=a_lasting_gateway, more=LONG)
    page = RestlessPage(server, a_session(server)["kernel"]["id"])
    try:
        page.run("runs = {}")
        yield page
    finally:
        page.close()


def count(page: RestlessPage, name: str) -> str:
    return page.execute(f"runs[{name!r}] = runs.get({name!r}, 0) + 1")


def runs(page: RestlessPage) -> dict[str, int]:
    found: dict[str, int] = json.loads(page.run("import json; print(json.dumps(runs))"))
    return found


def cells(page: RestlessPage, *sent: str) -> dict[str, Any]:
    """Return the server's report of the kernel's cells, and of requests that the page sent."""
    query = "".join(f"&sent={msg_id}" for msg_id in sent)
    path = f"aliquot/api/v1/kernels/{page.kernel_id}/outputs?messages=no&session={page.session}{query}"
    answer = page.server.ask("GET", path)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.body
    return found


def kill_without_a_look(gateway: Server, send: Callable[[], str]) -> str:
    """Kill the gateway before it reads the message of ``send``, which has reached its socket."""
    assert gateway.process is not None
    os.kill(gateway.process.pid, signal.SIGSTOP)
    sent = send()
    gateway.end(signal.SIGKILL)
    return sent


def test_a_cell_that_the_gateway_had_not_read_never_runs_and_is_named_as_lost(
    a_lasting_gateway: Server, a_page: RestlessPage
) -> None:
    before = count(a_page, "before")
    a_page.find(before, "execute_reply")
    lost = kill_without_a_look(a_lasting_gateway, lambda: count(a_page, "lost"))
    a_lasting_gateway.start()
    after = count(a_page, "after")
    a_page.find(after, "execute_reply")
    assert cells(a_page, before, lost, after)["not_received"] == [lost]
    assert runs(a_page) == {"before": 1, "after": 1}
    assert a_page.answers[lost] == []


def test_a_cell_that_the_relay_had_not_read_runs_once_and_is_not_named(
    a_lasting_gateway: Server, a_page: RestlessPage
) -> None:
    [relay] = read_relay_records(RuntimeDir(a_lasting_gateway.folder / "run"))
    with stopped(relay.pid):
        late = count(a_page, "late")
        a_lasting_gateway.until(lambda: late in [cell["msg_id"] for cell in cells(a_page)["cells"]])
        a_lasting_gateway.end(signal.SIGKILL)
    a_lasting_gateway.start()
    a_page.find(late, "execute_reply")
    assert cells(a_page, late)["not_received"] == []
    assert runs(a_page) == {"late": 1}


def test_nothing_is_named_as_lost_of_a_kernel_that_is_there(a_page: RestlessPage) -> None:
    assert cells(a_page)["not_received"] == []
    assert a_page.server.ask("GET", f"aliquot/api/v1/kernels/{a_page.kernel_id}/outputs?sent={'x' * 300}").status == 400
