"""Measure what the hook adds to a step of short kernels, in three situations.

A kernel alone on its device, where the hook measures nothing; a kernel next to an idle kernel,
where the hook measures the GPU time of both; and a paced kernel, next to normal-priority work that
computes and pauses.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .context import Context
from .steps import KERNEL_BYTES, PROBE

ROUNDS = 3
STEPS = 200
# A rehearsal has each order of bare and hooked once, and few of the steps that wait for their pace:
# its figures do not count.
SOFTGPU_ROUNDS, SOFTGPU_PACED_STEPS = 2, 40
MOST_PERCENT = 1.0  # of a step, for measuring alone
BARE, ALONE, BESIDE = "bare", "hooked, alone", "hooked, beside an idle kernel"
PACED = "opportunistic, beside production that pauses"  # its steps include waiting for its pace
PAUSE_US = 20_000


def run(context: Context) -> None:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    try:
        _measure(context, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(context: Context, folder: Path) -> None:
    shim = context.paths().shim_dir() / "libcuda.so.1"
    from compute_gpu import base_environment, compile_load
    from gpu_loads.node import a_node
    from gpu_loads.workers import Worker

    driver = context.driver()
    base = {**base_environment(driver, folder / "node"), "LD_LIBRARY_PATH": str(driver.cuda.parent)}
    command = [str(compile_load(folder, driver.cuda)), "length_us=100", "launches=10", f"pause_us={PAUSE_US}"]
    kernels = {"first": "production", "second": "production", "third": "opportunistic"}
    with a_node(folder / "node", context.gpu, "measured", kernels, KERNEL_BYTES, base) as node:
        bare, runtime = (driver.cuda, base), folder / "node"
        first, third = ((shim, node.environments[name]) for name in ("first", "third"))
        _compare(context, runtime, ALONE, bare, first)
        other = Worker("second", command, node.environments["second"], context.file("second.log"), can_repeat=False)
        try:
            other.start()
            other.await_ready()
            percent, _ = _compare(context, runtime, BESIDE, bare, first)
            other.begin()
            _, paces = _compare(context, runtime, PACED, bare, third, "third")
        finally:
            other.close()
    if "paced" not in paces:
        context.fail(
            f"an opportunistic kernel beside production was never paced: {', '.join(sorted(paces)) or 'not seen'}"
        )
    if percent > MOST_PERCENT and not context.is_soft:
        context.fail(f"measuring adds {percent:.1f} % to a step of short kernels, more than {MOST_PERCENT:g}")


def _compare(
    context: Context,
    runtime: Path,
    way: str,
    bare_program: tuple[Path, Mapping[str, str]],
    hooked_program: tuple[Path, Mapping[str, str]],
    kernel_id: str = "first",
) -> tuple[float, set[str]]:
    """Measure the steps bare and hooked, in turn.

    Return the percent that the hook adds, and the kernel's paces.
    """
    libraries = (bare_program, hooked_program)
    times: tuple[list[float], list[float]] = ([], [])
    paces: set[str] = set()
    steps = SOFTGPU_PACED_STEPS if context.is_soft and way == PACED else STEPS
    for number in range(SOFTGPU_ROUNDS if context.is_soft else ROUNDS):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            library, env = libraries[which]
            with _watched(runtime, kernel_id, paces if which else set()):
                done = context.run([str(PROBE), str(library), "steps", str(steps)], 20, env)
            lines = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
            if done.code != 0 or not lines:
                raise RuntimeError(f"a step {way if which else BARE}: {lines[0] if lines else done.why}")
            times[which].append(lines[0]["step_us"])
    bare, hooked = (statistics.median(some) for some in times)
    percent = 100 * (hooked / bare - 1)
    context.tell(step=way, bare_us=bare, hooked_us=hooked, added_percent=round(percent, 2), paces=sorted(paces))
    return percent, paces


@contextmanager
def _watched(runtime: Path, kernel_id: str, paces: set[str]) -> Iterator[None]:
    """Record how the agent paces a kernel meanwhile."""
    from jupyter_aliquot.gpu_hook.client import client

    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.1):
            status: dict[str, Any] = client.query("status", runtime_dir=runtime)
            one = next(kernel for kernel in status["kernels"] if kernel["kernel_id"] == kernel_id)
            if compute := one["devices"][0].get("compute"):  # none before its first look
                paces.add(str(compute["pace"]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
