"""A gateway is killed while a page on its user's own server sends: each cell runs once, and each has its answer."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import Server
from .restless_page import RestlessPage
from .test_gateway_away import LONG
from .test_remote_kernels import a_session


@pytest.fixture
def a_page(a_lasting_gateway: Server, own_servers: Callable[..., list[Server]]) -> Iterator[RestlessPage]:
    """With a kernel that counts in ``runs`` how often each cell ran."""
    [mine] = own_servers("alice", gateway=a_lasting_gateway, more=LONG)
    page = RestlessPage(mine, a_session(mine)["kernel"]["id"])
    try:
        # Past the first seconds, in which nobody knows what was asked of a kernel before it began.
        page.run("runs = {}; import time; time.sleep(6)")
        yield page
    finally:
        page.close()


def counting(name: str) -> str:
    return f"runs[{name!r}] = runs.get({name!r}, 0) + 1"


def check(page: RestlessPage, cells: dict[str, str], longest: float) -> None:
    """``cells``: the ids of requests by the names that they count. ``longest``: how long a gateway was away at most.

    On a machine so slow that this is long, what was lost is answered, and not run.
    """
    if longest > 25.0:
        ends = {name: page.find(cell, "execute_reply")["content"] for name, cell in cells.items()}
        cells = {name: cell for name, cell in cells.items() if ends[name].get("ename") != "NotRun"}
    found = json.loads(page.run("import json; print(json.dumps(runs))"))
    assert {name: count for name, count in found.items() if count != 1} == {}, "they ran twice"
    assert set(cells) - set(found) == set(), "they never ran"
    assert list(found) == list(cells), "in their order"
    for cell in cells.values():
        assert page.find(cell, "execute_reply")["content"]["status"] == "ok", page.answers[cell]
        assert sum(message["msg_type"] == "execute_reply" for message in page.answers[cell]) == 1


def kill_without_a_look(gateway: Server, send: Callable[[], Any]) -> Any:
    """What ``send`` sends reaches the gateway's socket, and never the gateway."""
    assert gateway.process is not None
    os.kill(gateway.process.pid, signal.SIGSTOP)
    sent = send()
    gateway.end(signal.SIGKILL)
    return sent


def test_an_answer_that_died_with_the_gateway_is_given_and_a_cell_that_was_interrupted_meanwhile_is_not_run(
    a_lasting_gateway: Server, a_page: RestlessPage
) -> None:
    asking = a_page.execute("print('hello', input('who? '))")
    question = a_page.find(asking, "input_request")["header"]
    answer = {"value": "Ada", "status": "ok"}
    kill_without_a_look(a_lasting_gateway, lambda: a_page.send("input_reply", answer, channel="stdin", parent=question))
    a_lasting_gateway.start()
    assert a_page.find(asking, "stream")["content"]["text"] == "hello Ada\n"
    assert a_page.find(asking, "execute_reply")["content"]["status"] == "ok"

    lost = kill_without_a_look(a_lasting_gateway, lambda: a_page.execute(counting("interrupted")))
    assert a_page.server.ask("POST", f"api/kernels/{a_page.kernel_id}/interrupt").status in (500, 503, 599)
    a_lasting_gateway.start()
    assert a_page.find(lost, "execute_reply")["content"]["ename"] == "NotRun"
    assert a_page.run("print(runs)") == "{}\n"


LONG_RUN = (pytest.mark.soak, pytest.mark.skipif("ALIQUOT_SOAK" not in os.environ, reason="takes minutes: make soak"))


@pytest.mark.parametrize(("rounds", "each"), [(2, 12), pytest.param(20, 60, marks=LONG_RUN)])
def test_a_gateway_that_is_killed_again_and_again_among_cells_loses_none_and_runs_none_twice(
    a_lasting_gateway: Server, a_page: RestlessPage, rounds: int, each: int
) -> None:
    moments, cells, longest = random.Random(8), dict[str, str](), 0.0

    def send(count: int) -> None:
        for _ in range(count):
            name = f"cell {len(cells)}"
            cells[name] = a_page.execute(counting(name))
            if len(cells) % 7 == 0 and not is_stopped:
                a_page.find(cells[name], "execute_reply")

    for number in range(rounds):
        before, is_stopped = moments.randrange(1, each - 4), False
        send(before)
        is_stopped, since = True, time.monotonic()
        if number % 2 == 0:
            kill_without_a_look(a_lasting_gateway, lambda: send(3))
        else:
            send(3)
            a_lasting_gateway.end(signal.SIGKILL)
        send(each - before - 3)
        a_lasting_gateway.start()
        a_page.run("pass")  # it is back before the next kill
        longest = max(longest, time.monotonic() - since)
    check(a_page, cells, longest)
    assert a_page.connections > rounds
