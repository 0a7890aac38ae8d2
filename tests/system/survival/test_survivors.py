"""One gateway with several users is killed.

Their kernels and sessions are there in its next life, and still belong to them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

USERS = {name: f"token-of-{name}" for name in ("alice", "bob", "carol", "ada")}
ADA = USERS["ada"]


@dataclass
class Scene:
    """The state before the kill, and the gateway that came after it."""

    node: Any
    gateway: Any = None
    kernels: dict[str, str] = field(default_factory=dict)
    tabs: dict[str, Any] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    session: Any = None


@pytest.fixture(scope="module")
def scene(world: Any) -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    node = world.Node(folder)
    node.start_agent()
    users = {name: {"token": token, "role": "admin" if name == "ada" else "user"} for name, token in USERS.items()}
    (folder / "gateway.json").write_text(json.dumps({"AliquotIdentityProvider": {"users": users}}))
    made = Scene(node)
    try:
        before(made, world)
        after(made)
        yield made
    finally:
        for tab in made.tabs.values():
            tab.close()
        node.close()
        shutil.rmtree(folder, ignore_errors=True)


def before(scene: Scene, world: Any) -> None:
    gateway = scene.node.serve(f"--config={scene.node.folder}/gateway.json")
    gateway.token = ADA
    gateway.wait_until_up()
    body = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "python3.gpu-0.25"}}
    scene.session = gateway.call("POST", "/api/sessions", body, USERS["alice"])
    scene.kernels["holder"] = scene.session["kernel"]["id"]
    renamed = {"path": "b.ipynb", "name": "b.ipynb"}
    gateway.call("PATCH", f"/api/sessions/{scene.session['id']}", renamed, USERS["alice"])
    for owner, name in (("bob", "asker"), ("alice", "crasher"), ("alice", "leaver"), ("alice", "worker")):
        scene.kernels[name] = gateway.start_kernel("python3", USERS[owner])
    for name in list(scene.kernels):
        tab = scene.tabs[name] = world.Tab(gateway, scene.kernels[name])
        scene.pids[name] = int(tab.run("x = 1; import os; print(os.getpid())"))
    world.wait_until(lambda: gateway.model(scene.kernels["holder"])["execution_state"] == "idle")
    for owner, name in (("bob", "first in line"), ("alice", "second in line")):
        scene.kernels[name] = gateway.start_kernel("python3.gpu-1", USERS[owner])
        world.wait_until(lambda name=name: position(gateway, scene.kernels[name]))  # type: ignore[misc]
    for name, access in (("holder", "read"), ("second in line", "write")):
        path = f"/aliquot/api/v1/kernels/{scene.kernels[name]}/shares/users/carol"
        gateway.call("PUT", path, {"access": access}, USERS["alice"])
    asking = scene.tabs["asker"].execute("print('hello', input('who? '))", stdin=True)
    scene.messages["asking"] = asking
    scene.tabs["asker"].find(asking, "input_request")
    gateway.stop(signal.SIGKILL)
    scene.gateway = gateway
    # While no gateway runs, one kernel crashes and one ends by its user's code.
    os.kill(scene.pids["crasher"], signal.SIGSEGV)
    os.kill(scene.pids["leaver"], signal.SIGTERM)
    for name in ("crasher", "leaver"):
        path = Path(f"/proc/{scene.pids[name]}")
        world.wait_until(lambda path=path: not path.exists())  # type: ignore[misc]


def after(scene: Scene) -> None:
    gateway = scene.node.serve(f"--config={scene.node.folder}/gateway.json", port=scene.gateway.port)
    gateway.token = ADA
    scene.gateway = gateway.wait_until_up()
    for name in ("holder", "asker", "worker"):
        scene.tabs[name].reconnect(gateway)


def position(gateway: Any, kernel_id: str) -> int | None:
    kernels = gateway.call("GET", "/aliquot/api/v1/status")["kernels"]
    return next((kernel["queue_position"] for kernel in kernels if kernel["id"] == kernel_id), None)


def test_kernels_have_their_ids_and_owners(scene: Scene) -> None:
    mine = ("holder", "worker", "second in line")
    want = {"alice": {scene.kernels[name] for name in mine}}
    want["bob"] = {scene.kernels[name] for name in ("asker", "first in line")}
    for user, kernels in want.items():
        listed = scene.gateway.call("GET", "/api/kernels", None, USERS[user])
        assert {kernel["id"] for kernel in listed} == kernels


def test_what_was_shared_still_is_also_of_a_kernel_that_waits(scene: Scene) -> None:
    listed = scene.gateway.call("GET", "/api/kernels", None, USERS["carol"])
    told = {kernel["id"]: (kernel["owner"], kernel["access"]) for kernel in listed}
    assert told == {
        scene.kernels["holder"]: ("alice", "read"),
        scene.kernels["second in line"]: ("alice", "write"),
    }


def test_nobody_reaches_somebody_elses(scene: Scene, world: Any) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/interrupt"), ("POST", "/restart")):
        with pytest.raises(world.Refusal, match="404"):
            scene.gateway.call(method, f"/api/kernels/{scene.kernels['worker']}{path}", None, USERS["bob"])


def test_the_session_is_the_same(scene: Scene) -> None:
    (session,) = scene.gateway.call("GET", "/api/sessions", None, USERS["alice"])
    assert (session["id"], session["path"]) == (scene.session["id"], "b.ipynb")
    assert session["kernel"]["id"] == scene.kernels["holder"]


def test_a_question_that_was_asked_before_is_answered(scene: Scene) -> None:
    tab, asking = scene.tabs["asker"], scene.messages["asking"]
    request = tab.find(asking, "input_request")
    tab.send("input_reply", {"value": "Ada"}, "stdin", request["header"])
    assert tab.text(asking) == "hello Ada\n"


def test_who_waited_waits_in_the_same_order(scene: Scene, eventually: Callable[..., Any]) -> None:
    line = [scene.kernels[name] for name in ("first in line", "second in line")]
    eventually(lambda: [position(scene.gateway, kernel_id) for kernel_id in line] == [1, 2])


def test_what_ended_meanwhile_stays_ended_with_its_reason(scene: Scene, eventually: Callable[..., Any]) -> None:
    crash = eventually(lambda: scene.gateway.ended(scene.kernels["crasher"]))
    leave = eventually(lambda: scene.gateway.ended(scene.kernels["leaver"]))
    assert crash["code"] == "crash"
    assert "segmentation fault" in crash["message"]
    assert leave["code"] in ("crash", "exited")
    running = {kernel["id"] for kernel in scene.gateway.call("GET", "/api/kernels")}
    assert not running & {scene.kernels["crasher"], scene.kernels["leaver"]}


def test_an_adopted_kernel_is_interrupted(scene: Scene) -> None:
    tab = scene.tabs["worker"]
    cell = tab.execute("print('now', flush=True)\nwhile True: pass")
    tab.wait_for_text("now\n")
    scene.gateway.call("POST", f"/api/kernels/{scene.kernels['worker']}/interrupt", None, USERS["alice"])
    assert tab.find(cell, "execute_reply")["content"]["ename"] == "KeyboardInterrupt"


def test_an_adopted_kernel_that_crashes_is_started_again(scene: Scene, eventually: Callable[..., Any]) -> None:
    tab, kernel_id = scene.tabs["worker"], scene.kernels["worker"]
    assert tab.run("print(x)") == "1"
    os.kill(scene.pids["worker"], signal.SIGKILL)
    eventually(lambda: scene.node.processes().get(kernel_id, [0])[0] not in (0, scene.pids["worker"]))
    assert tab.reconnect(scene.gateway).run("print('x' in globals())") == "False"
    # The next server reports it as well.
    (record,) = scene.node.folder.glob(f"data/aliquot/gateways/*/kernels/{kernel_id}.json")
    eventually(lambda: json.loads(record.read_text())["state"] == "running")
    assert "signal 9" in json.loads(record.read_text())["last_crash"]["message"]


def test_an_adopted_kernel_is_restarted_within_its_grant(scene: Scene) -> None:
    tab, kernel_id = scene.tabs["holder"], scene.kernels["holder"]
    scene.gateway.call("POST", f"/api/kernels/{kernel_id}/restart", None, USERS["alice"])
    assert tab.reconnect(scene.gateway).run("print('x' in globals())") == "False"
    assert tab.run("import os; print(os.path.basename(os.environ['JPY_SESSION_NAME']))") == "b.ipynb"
    assert scene.node.held()[kernel_id] == 25


def test_room_goes_to_who_waited_longest(scene: Scene, world: Any, eventually: Callable[..., Any]) -> None:
    first, second = scene.kernels["first in line"], scene.kernels["second in line"]
    scene.gateway.call("DELETE", f"/api/sessions/{scene.session['id']}", None, USERS["alice"])
    eventually(lambda: scene.node.held() == {first: 100})
    tab = scene.tabs["first"] = world.Tab(scene.gateway, first)
    assert tab.run("print(1)") == "1"
    assert position(scene.gateway, second) == 1
