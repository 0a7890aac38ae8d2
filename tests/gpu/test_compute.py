"""Compute on this machine's GPU: shares of its time, classes, and graphs while the hook paces.

The tests know a program's GPU time without the agent: its steps are equal, and were timed alone.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

MIB = 1 << 20
SETTLE_SECONDS = 2.0
WINDOW_SECONDS = 4.0
HOG = ("length_us=200", "launches=50")
FINE = ("length_us=50", "launches=100")
# Steps so long that the time between two of them, in which the program requests nothing, hardly
# counts.
ALWAYS = ("length_us=200", "launches=250")
ALWAYS_FINE = ("length_us=50", "launches=1000")
INPUT_BOUND = ("length_us=200", "launches=20", "pause_us=8000")
GRAPHS = ("length_us=100", "launches=20", "kind=graph", "duty=0.5")
REPLAYS = """
import json, torch
total = torch.zeros(1 << 20, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    warm = total + 1
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    total += 1
total.zero_()
for _ in range(200):
    graph.replay()
print(json.dumps(float(total.mean())))
"""


class Load:
    """gpu_load.c in a kernel of its own on the first device."""

    def __init__(self, node: Any, name: str, worker: Any) -> None:
        self._node, self.name, self._worker = node, name, worker

    def begin(self) -> None:
        self._worker.start()
        self._worker.await_ready()
        self._worker.begin()

    def end(self) -> list[Any]:
        return list(self._worker.end())

    def close(self) -> None:
        self._worker.close()

    def told(self) -> dict[str, Any]:
        """Return the agent's report of the kernel."""
        kernels = self._node.ask("status")["kernels"]
        return dict(next(one for one in kernels if one["kernel_id"] == self.name)["devices"][0])

    def own_seconds(self) -> float:
        return float(self.told()["compute"]["own_seconds"])


@pytest.fixture(scope="module")
def a_program(tmp_path_factory: pytest.TempPathFactory, a_node: Any) -> Path:
    from compute_gpu import compile_load

    return Path(compile_load(tmp_path_factory.mktemp("load"), a_node.driver.cuda))


@pytest.fixture
def a_load(a_node: Any, a_program: Path, tmp_path: Path) -> Iterator[Callable[..., Load]]:
    """Make loads: ``a_load("name", HOG, hundredths=25, workload_class="production")``."""
    from gpu_loads.node import environment_of
    from gpu_loads.workers import Worker

    loads: list[Load] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:  # reservations live while this is open
        holder.connect(str(a_node.socket_path))
        answers = holder.makefile("rb")

        def make(name: str, arguments: tuple[str, ...], hundredths: int, workload_class: str = "production") -> Load:
            uuid = a_node.ask("status")["devices"][0]["uuid"]
            asked = {"id": 1, "op": "reserve", "kernel_id": name, "owner": "test", "label": "", "attributes": {}}
            asked |= {"hundredths": hundredths, "memory_limit": 128 * MIB, "workload_class": workload_class}
            asked |= {"placement": [{"uuid": uuid, "hundredths": hundredths}]}
            holder.sendall(json.dumps(asked).encode() + b"\n")
            answer = json.loads(answers.readline())
            assert answer.get("ok"), answer
            env = environment_of(answer["grant"], a_node.bare_env)
            env["ALIQUOT_BUILTINS"] = str(ROOT / "gpu_hook" / "builtins.ptx")
            command = [str(a_program), *arguments]
            loads.append(Load(a_node, name, Worker(name, command, env, tmp_path / f"{name}.log", can_repeat=False)))
            return loads[-1]

        yield make
        for load in loads:
            load.close()
            a_node.ask("release", kernel_id=load.name)
        answers.close()


def wait(seconds: float) -> None:
    """Wait for a span of the device's time that the test measures."""
    time.sleep(seconds)


def step_alone(load: Load) -> float:
    """Return the seconds of a step by the device's events, while no other program works."""
    load.begin()
    wait(1.0)
    return statistics.median(step.length for step in load.end()) / 1e6


def run(*loads: Load) -> tuple[list[list[Any]], list[float], list[float]]:
    """Run all loads at once, and measure one window after they settled.

    Return each one's steps, and its own time by the agent and by NVML.
    """
    for load in loads:
        load.begin()
    wait(SETTLE_SECONDS)
    before = [(load.own_seconds(), load.told()["busy_seconds"]) for load in loads]
    began = time.monotonic()
    wait(WINDOW_SECONDS)
    after = [(load.own_seconds(), load.told()["busy_seconds"]) for load in loads]
    took = time.monotonic() - began
    first = SETTLE_SECONDS * 1e6
    steps = [[step for step in load.end() if first <= step.begin < first + took * 1e6] for load in loads]
    own = [late[0] - early[0] for early, late in zip(before, after, strict=True)]
    busy = [late[1] - early[1] for early, late in zip(before, after, strict=True)]
    return steps, own, busy


def test_attribution_says_what_each_takes_alone(a_load: Callable[..., Load]) -> None:
    hog, fine = a_load("hog", HOG, 50), a_load("fine", FINE, 50)
    lengths = step_alone(hog), step_alone(fine)
    steps, own, busy = run(hog, fine)
    known = [len(some) * length for some, length in zip(steps, lengths, strict=True)]
    print(f"own by attribution {own}, by steps {known}, busy by NVML {busy} s of {WINDOW_SECONDS}")
    assert sum(own) <= 1.05 * WINDOW_SECONDS
    for found, want in zip(own, known, strict=True):
        assert found == pytest.approx(want, rel=0.15)


def test_nvml_tells_the_same_division(a_load: Callable[..., Load]) -> None:
    hog, fine = a_load("hog", HOG, 25), a_load("fine", FINE, 75)
    _, own, busy = run(hog, fine)
    if not any(busy) and os.environ["ALIQUOT_GPU"] == "nvidia":
        pytest.skip("NVML tells no utilisation by process of this GPU, as under MIG: neither has any")
    assert all(busy), busy
    print(f"own by attribution {own}, busy by NVML {busy}")
    assert own[0] / sum(own) == pytest.approx(busy[0] / sum(busy), abs=0.12)  # NVML samples some ten times a second


@pytest.mark.parametrize("other", [ALWAYS, ALWAYS_FINE], ids=["alike", "shorter launches"])
def test_shares_are_one_to_three_where_both_want_the_device(
    a_load: Callable[..., Load], other: tuple[str, ...]
) -> None:
    small, large = a_load("small", ALWAYS, 25), a_load("large", other, 75)
    lengths = step_alone(small), step_alone(large)
    (some, more), _, _ = run(small, large)
    used = len(some) * lengths[0], len(more) * lengths[1]
    share = used[0] / sum(used)
    print(f"of what both used the small one had {100 * share:.1f} %")
    assert share == pytest.approx(0.25, abs=0.05)


def test_whoever_is_alone_gets_all(a_load: Callable[..., Load]) -> None:
    small, idle = a_load("small", HOG, 25), a_load("idle", FINE, 75)
    length = step_alone(small)
    idle.begin()
    idle.end()
    (steps,), _, _ = run(small)
    assert len(steps) * length > 0.8 * WINDOW_SECONDS


@pytest.mark.parametrize("production", [INPUT_BOUND, GRAPHS], ids=["input-bound", "graphs"])
def test_opportunistic_work_has_productions_pauses_alone(
    a_load: Callable[..., Load], production: tuple[str, ...]
) -> None:
    first = a_load("first", production, 50)
    hog = a_load("hog", HOG, 50, "opportunistic")
    alone = step_alone(first)
    (steps, taken), _, _ = run(first, hog)
    beside = statistics.median(step.length for step in steps) / 1e6
    print(f"production's step {1e3 * alone:.2f} ms alone, {1e3 * beside:.2f} ms beside; {len(taken)} steps of the hog")
    assert beside < 1.25 * alone
    assert taken


def test_torch_captures_and_replays_while_it_is_paced(
    a_load: Callable[..., Load], a_kernel: Any, needs: Callable[..., None]
) -> None:
    needs("torch")
    hog = a_load("hog", HOG, 25)
    hog.begin()  # from now on the device is shared: the agent measures all work there or holds it back
    assert a_kernel.run(REPLAYS) == 200.0
    assert hog.end()
