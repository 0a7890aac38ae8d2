"""Two replicas of a gateway: when the leader is killed, the other serves its kernels, sessions and queue.

A cell that prints all the while loses no line, nor its reply.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.system.conftest import Kernel, wait_until
from tests.system.survival.conftest import Tab

from .conftest import Ring

LEASE = "--KernelPods.lease=gateway"
# It prints until there is a file, and then how often it printed.
CELL = """
import os, time
n = 0
while not os.path.exists({path!r}):
    print("line", n, flush=True); n += 1; time.sleep(0.02)
print("lines:", n)
"""


def check_printed(ring: Ring, tab: Tab, cell: str) -> None:
    """Check that the page got each line of the cell, in order, and its reply.

    What the killed gateway had not acknowledged comes twice: the last of what it had passed on.
    """
    tab.reconnect(ring.server)  # type: ignore[arg-type]
    before = len(tab.seen)
    (ring.folder / "go").touch()
    told = tab.text(cell).splitlines()
    lines = len(told) - 1
    assert told == [*(f"line {n}" for n in range(lines)), f"lines: {lines}"], ring.logs()
    assert tab.find(cell, "execute_reply")["content"]["status"] == "ok"
    assert tab.doubled <= before // 2, f"{tab.doubled} of {before} messages came twice"
    tab.close()


def test_the_second_replica_serves_kernels_sessions_and_queue_of_a_killed_one(the_ring: Ring) -> None:
    the_ring.restart(lambda: None, LEASE)
    leader = the_ring.server
    asked = {"path": "deep/train.ipynb", "name": "train", "type": "notebook", "kernel": {"name": "box.gpu-1"}}
    session = leader.call("POST", "/api/sessions", asked)
    kernels = [Kernel(leader, session["kernel"]["id"]), leader.start("box.gpu-1")]
    for number, kernel in enumerate(kernels):
        assert kernel.run(f"here = {number}").status == "ok", the_ring.logs()
    queued = leader.start("box.gpu-1")
    wait_until(lambda: (queued.on_node() or {}).get("state") == "queued")
    wait_until(lambda: the_ring.documents("session"))

    tab = Tab(leader, kernels[1].id)  # type: ignore[arg-type]  # it has what a Gateway has
    cell = tab.execute(CELL.format(path=str(the_ring.folder / "go")))
    tab.wait_for_text("line 3\n")
    with ThreadPoolExecutor(1) as threads:
        standby = threads.submit(the_ring.serve, LEASE, run="run2")
        wait_until(lambda: any("waiting replica=" in one.read_text() for one in the_ring.newest_log()))
        leader.process.kill()
        leader.process.wait(30)
        the_ring.lose_gateways_machine()
        the_ring.follow(standby.result())

    check_printed(the_ring, tab, cell)

    again = [Kernel(the_ring.server, kernel.id) for kernel in kernels]
    assert [kernel.run("print(here)").text for kernel in again] == ["0\n", "1\n"], the_ring.logs()
    (found,) = the_ring.server.call("GET", "/api/sessions")
    assert (found["id"], found["path"], found["kernel"]["id"]) == (session["id"], asked["path"], kernels[0].id)
    waiting = Kernel(the_ring.server, queued.id)
    assert (waiting.on_node() or {})["state"] == "queued"
    again[1].end()
    assert waiting.run("print(2)").text == "2\n", the_ring.logs()
    for kernel in (again[0], waiting):
        kernel.end()
    wait_until(the_ring.is_empty)
    wait_until(lambda: not the_ring.documents("record"))
    the_ring.restart()
