"""Two halves of two GPUs become a whole one: a plan of moves that is shown, then run, all parts real."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start
from memory_cells import CHECK, FILL, GPU

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

MOVES = "/aliquot/api/v1/moves"
WHERE = "print(bytes(call(cu.cuDeviceGetUuid(call(cu.cuDeviceGet(0)))).bytes).hex())"


def start_agent(folder: Path, environment: dict[str, str]) -> Any:
    """Start an agent with two software GPUs, which are not overcommitted."""
    words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--overcommit", "1"]
    words += ["--softgpu-devices", "2", "--softgpu-memory", "1GiB"]
    with (folder / "agent.log").open("a") as log:
        return warm_start.start(warm_start.AGENT, words, env=environment, stdout=log, stderr=log)


class TheAgent:
    """The agent of a test, which may be replaced."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._made = (folder, environment)
        self.process = start_agent(*self._made)

    def replace(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=90)
        self.process = start_agent(*self._made)


@pytest.fixture
def an_agent(a_folder: Path, an_environment: dict[str, str]) -> Iterator[TheAgent]:
    agent = TheAgent(a_folder, an_environment)
    yield agent
    agent.process.terminate()
    agent.process.wait(timeout=90)
    remove_state(softgpu_state_path(RuntimeDir(a_folder / "run")))


def index_of(kernel: Any) -> int | None:
    devices = (kernel.on_node() or {}).get("devices") or [{}]
    found: int | None = devices[0].get("index")
    return found


def reserved(server: Any) -> list[float]:
    return [device["reserved_gpus"] for device in server.status()["devices"]]


@pytest.fixture
def halves(a_server: Any, eventually: Callable[..., Any]) -> dict[str, Any]:
    """Two kernels with memory, each on half of a GPU of its own, and where their memory is."""
    first, other, second = (a_server.start("python3.gpu-0.5") for _ in range(3))
    places = [
        eventually(lambda one=one: index_of(one) is not None and [index_of(one)]) for one in (first, other, second)
    ]
    assert places == [[0], [0], [1]]
    other.end()
    at = {}
    for seed, kernel in enumerate((first, second)):
        assert kernel.run(GPU).status == "ok"
        at[kernel.id] = kernel.run(FILL.format(seed=seed, mebibytes=64 + 64 * seed)).text.split()
    eventually(lambda: reserved(a_server) == [0.5, 0.5])
    return {"first": first, "second": second, "at": at}


def plan_with_moves(server: Any, eventually: Callable[..., Any], query: str = "") -> Any:
    """Return the plan once the kernels are idle, as their relays report."""
    return eventually(lambda: (plan := server.call("GET", f"{MOVES}{query}"))["moves"] and plan)


def is_whole(halves: dict[str, Any], name: str) -> bool:
    kernel = halves[name]
    return bool(kernel.run(CHECK).text.split() == [*halves["at"][kernel.id], "True"])


@pytest.mark.timeout(300)
def test_a_waiting_request_gets_its_gpu_by_the_plan_that_was_shown(
    a_server: Any, halves: dict[str, Any], eventually: Callable[..., Any], a_folder: Path
) -> None:
    waiting = a_server.start("python3.gpu-1")
    eventually(lambda: (waiting.on_node() or {}).get("state") == "queued")
    plan = plan_with_moves(a_server, eventually)
    assert plan["size"] == {"size": "gpu-1", "gpus": 1.0, "kernel_id": waiting.id}
    (move,) = plan["moves"]
    assert (move["kernel_id"], move["source_index"], move["target_index"]) == (halves["first"].id, 0, 1)
    assert [(gpu["free_gpus"], gpu["free_gpus_after"]) for gpu in plan["gpus"]] == [(0.5, 1.0), (0.5, 0.0)]
    assert (index_of(halves["first"]), reserved(a_server)) == (0, [0.5, 0.5]), "a plan that is shown changes nothing"

    with pytest.raises(a_server.refusal, match=r"409: .*is not made any more"):
        a_server.call("POST", MOVES, {"digest": "0" * 12})
    began = a_server.call("POST", MOVES, {"digest": plan["digest"]})
    assert began["run"]["state"] == "running"

    def run_over() -> Any:
        assert max(reserved(a_server)) <= 1.0
        run = a_server.call("GET", MOVES)["run"]
        return run if run["state"] == "over" else None

    run = eventually(run_over)
    assert [(one["outcome"], one["reason"]) for one in run["moves"]] == [("done", None)]
    eventually(lambda: (waiting.on_node() or {}).get("state") == "on_gpu")
    assert index_of(waiting) == 0
    eventually(lambda: index_of(halves["first"]) == 1)
    assert reserved(a_server) == [1.0, 1.0]
    assert is_whole(halves, "first")
    assert is_whole(halves, "second")
    assert halves["first"].run(WHERE).text == halves["second"].run(WHERE).text
    audit = (next(a_folder.rglob("audit.jsonl"))).read_text().splitlines()
    told = [json.loads(line) for line in audit]
    assert [one["detail"] for one in told if one["action"] == "move"] == [
        f"{halves['first'].id} from gpu0 to gpu1: done"
    ]

    halves["first"].server.call("POST", f"/api/kernels/{halves['first'].id}/restart", {})
    halves["first"].reconnect()
    assert halves["first"].run(GPU + WHERE).text == halves["second"].run(WHERE).text, "a restart stays there"


@pytest.mark.timeout(300)
def test_a_plan_is_shown_and_run_by_the_command(
    a_server: Any, halves: dict[str, Any], eventually: Callable[..., Any], an_environment: dict[str, str]
) -> None:
    environment = {
        **os.environ,
        **an_environment,
        "JUPYTER_GATEWAY_URL": a_server.url,
        "JUPYTER_GATEWAY_AUTH_TOKEN": a_server.token,
    }

    def command(*words: str) -> tuple[int, str]:
        program = "from jupyter_aliquot.gateway.cli.app import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, "defragment", *words], env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    plan = plan_with_moves(a_server, eventually, "?size=gpu-1")
    code, text = command("--size", "1")
    assert code == 0, text
    assert "gpu0 0.5 → 1, gpu1 0.5 → 0" in text
    assert f"aliquot defragment --size 1 --apply {plan['digest']}" in text
    assert json.loads(command("--size", "1", "--json")[1])["digest"] == plan["digest"]
    assert "3f9c1b52a077 is not made any more" in command("--size", "1", "--apply", "3f9c1b52a077")[1]
    code, text = command("--size", "1", "--apply", plan["digest"])
    assert (code, "done" in text) == (0, True), text
    assert is_whole(halves, "first")
    assert "fits on" in command("--size", "1")[1]
    assert "No moves make room" in command("--size", "2")[1]
    for words, want_code, want in (
        (("--size", "huge"), 2, "huge"),
        (("--node", "nowhere"), 1, "the nodes are"),
        (("--size", "8"), 1, "2 GPUs of"),
    ):
        code, text = command(*words)
        assert (code, want in text) == (want_code, True), text


@pytest.mark.timeout(300)
def test_a_busy_kernel_is_told_and_not_moved(
    a_server: Any, halves: dict[str, Any], eventually: Callable[..., Any]
) -> None:
    plan = plan_with_moves(a_server, eventually, "?size=gpu-1")
    cells = [halves[name].send("import time; print('in', flush=True); time.sleep(600)") for name in ("first", "second")]
    for name in ("first", "second"):
        halves[name].wait_for_text("in")
    told = eventually(
        lambda: (
            (found := a_server.call("GET", f"{MOVES}?size=gpu-1"))["moves"] == [] and len(found["stays"]) == 2 and found
        )
    )
    assert all("busy" in one["reason"] for one in told["stays"])
    assert "no kernel can move" in told["reason"]
    with pytest.raises(a_server.refusal, match=r"409: .*is not made any more"):
        a_server.call("POST", MOVES, {"digest": plan["digest"], "size": "gpu-1"})
    assert [index_of(halves[name]) for name in ("first", "second")] == [0, 1]
    assert len(cells) == 2
    for name in ("first", "second"):
        a_server.call("POST", f"/api/kernels/{halves[name].id}/interrupt", {})


@pytest.mark.timeout(300)
def test_an_agent_that_is_killed_during_a_move_neither_loses_nor_counts_twice(
    a_server: Any, halves: dict[str, Any], eventually: Callable[..., Any], an_agent: TheAgent
) -> None:
    plan = plan_with_moves(a_server, eventually, "?size=gpu-1")
    a_server.call("POST", MOVES, {"digest": plan["digest"], "size": "gpu-1"})
    an_agent.replace()

    def run_over() -> Any:
        with contextlib.suppress(a_server.refusal):
            run = a_server.call("GET", MOVES)["run"]
            return run if run["state"] == "over" else None

    run = eventually(run_over)
    (move,) = run["moves"]
    want = {"done": (1, [0.0, 1.0]), "failed": (0, [0.5, 0.5])}[move["outcome"]]
    eventually(lambda: (index_of(halves["first"]), reserved(a_server)) == want)
    assert is_whole(halves, "first")
    assert is_whole(halves, "second")
    assert index_of(halves["second"]) == 1
    devices = eventually(lambda: [one["used_bytes"] >> 20 for one in a_server.status()["devices"]])
    assert sum(devices) < 1024, "nothing is held twice"
