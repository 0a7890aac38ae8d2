"""TGS's experiment on unified memory: what a low-priority kernel that wants more than is left costs a normal one.

The normal kernel's working set fits into its half of the device. The low-priority one wants nearly
all of the device, in one of three ways: placed by Aliquot, as plain unified memory beside unified
memory, and as plain allocations, of which the driver refuses those that do not fit.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from report import ROOT, Row, at_least, at_most
from sampling import Program
from subjects import clean_environment, compile_c

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.client import client

MIB = 1 << 20
BLOCKS = 16  # of the device
# A step of the normal kernel: its time on the device, and the pause before the next.
STEP_MICROSECONDS, PAUSE_MICROSECONDS, LOW_MICROSECONDS = 20_000, 10_000, 200
# A link that fills the device in a quarter of a second, nine steps, as 64 GB/s fill 141 GB in nine steps of 250 ms.
LINK_GBPS = "2"
MOST_SLOWDOWN_PERCENT = 5
LEAST_FACTOR = 2


@dataclass(frozen=True)
class Experiment:
    """The program, the driver, and the device's memory. ``steps`` are measured at a time, in so many rounds."""

    program: Path
    cuda: Path
    device_mib: int
    steps: int
    rounds: int

    @property
    def block_mib(self) -> int:
        return self.device_mib // BLOCKS


@dataclass(frozen=True)
class Outcome:
    """The result of one way: the normal kernel's slow-down, and the low-priority one's memory and steps."""

    slowdown: float
    got: float
    steps_per_second: float


def build_unified(folder: Path, cuda: Path) -> Path:
    return compile_c("../swap/unified.c", folder / "unified", "-pthread", str(cuda))


def measure_unified(experiment: Experiment, folder: Path) -> list[Row]:
    """Return the rows of the three ways."""
    runtime, block = folder / "unified-node", experiment.block_mib
    options = ["--driver", "softgpu", "--softgpu-memory", f"{experiment.device_mib}MiB"]
    os.environ["ALIQUOT_SOFTGPU_LINK_GBPS"] = LINK_GBPS
    client.start_agent(runtime, arguments=options, exit_when_idle_seconds=5, seconds=60)
    del os.environ["ALIQUOT_SOFTGPU_LINK_GBPS"]
    half, more = experiment.device_mib // 2 - block, experiment.device_mib - block
    with (
        _a_grant(runtime, "normal", "production", "vmm", None) as normal,
        _a_grant(runtime, "low", "opportunistic", "managed", experiment.device_mib * MIB) as low,
    ):
        plain = _plain(normal, experiment)
        ours = _run(experiment, (normal, low), ("hold_plain", "hold_plain"), half, more)
        unified = _run(experiment, (plain, plain), ("hold_managed", "hold_managed"), half, more)
        refused = _run(experiment, (plain, plain), ("hold_plain", "hold_plain"), half, more)
    client.query("shutdown", runtime_dir=runtime)
    wanted = more * MIB
    return [
        at_most(
            "a normal kernel beside a low one on unified memory, slow-down", _percent(ours), "%", MOST_SLOWDOWN_PERCENT
        ),
        at_least("  of what it wants, the low one gets", 100 * ours.got / wanted, "%", 100),
        Row("  its steps", ours.steps_per_second, "1/s"),
        at_least("  plain unified memory: the normal kernel's time", unified.slowdown, "x", LEAST_FACTOR),
        Row("  its steps", unified.steps_per_second, "1/s"),
        Row("  plain allocations: slow-down", _percent(refused), "%"),
        Row("  of what it wants, the low one gets", 100 * refused.got / wanted, "%"),
    ]


def _percent(outcome: Outcome) -> float:
    return 100 * (outcome.slowdown - 1)


def _run(
    experiment: Experiment, envs: tuple[dict[str, str], dict[str, str]], ways: tuple[str, str], half: int, more: int
) -> Outcome:
    """Measure the normal kernel's steps alone and beside the other, in turns."""
    command = [experiment.program, str(experiment.block_mib)]
    normal, low = (Program(way, command, env, None) for way, env in zip(ways, envs, strict=True))
    normal.ask("spin_for", STEP_MICROSECONDS)
    normal.ask("pause_for", PAUSE_MICROSECONDS)
    low.ask("spin_for", LOW_MICROSECONDS)
    normal.ask(ways[0], half)
    got = low.ask(ways[1], more)
    slowdowns, low_steps, seconds = [], 0.0, 0.0
    for _ in range(experiment.rounds):
        normal.ask("step", 2)
        alone = normal.ask("step", experiment.steps)
        low.ask("go", 1)
        settling = normal.ask("step", experiment.steps)  # the agent's controller settles within two seconds
        beside = normal.ask("step", experiment.steps)
        low_steps += low.ask("stop", 1)
        seconds += (settling + beside) * experiment.steps / 1e9
        slowdowns.append(beside / alone)
    for program in (normal, low):
        program.close()
    return Outcome(statistics.median(slowdowns), got, low_steps / seconds)


@contextmanager
def _a_grant(
    runtime: Path, kernel_id: str, priority: str, residency: str, limit: int | None
) -> Iterator[dict[str, str]]:
    """Reserve half a device; yield the environment of the kernel's processes."""
    request = {"id": 1, "op": "reserve", "kernel_id": kernel_id, "owner": "bench", "hundredths": 50}
    request |= {"workload_class": priority, "residency": residency, "label": "", "attributes": {}}
    request |= {} if limit is None else {"memory_limit": limit}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:  # the reservation lives while this is open
        holder.connect(str(paths.RuntimeDir(runtime).agent_socket))
        holder.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(holder.makefile("rb").readline())
        if not answer.get("ok"):
            raise SystemExit(f"Requested half a device, but the agent answered {answer}")
        env = {**clean_environment(), "BENCH_BUILTINS": str(ROOT / "gpu_hook" / "builtins.ptx")}
        for name, value in answer["grant"]["env"].items():
            plain = name.removesuffix("_PREPEND")
            rest = os.environ.get(plain) if plain != name else None
            env[plain] = f"{value}:{rest}" if rest else value
        yield env


def _plain(env: dict[str, str], experiment: Experiment) -> dict[str, str]:
    """Return the environment without the hook, on the same device."""
    kept = {name: value for name, value in env.items() if name.startswith(("ALIQUOT_SOFTGPU_", "BENCH_", "CUDA_V"))}
    return {**clean_environment(), **kept, "LD_LIBRARY_PATH": str(experiment.cuda.parent)}
