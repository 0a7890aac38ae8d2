"""Measure what the hook adds to a driver call on this machine's GPU: paired differences.

Two programs stay alive, one bare and one through the hook, and are asked in ABBA order; the device
is idle in between. `--gpu softgpu` is a dry run for developers of this benchmark. The benchmark
changes none of the device's settings.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from report import ROOT, Row, publish, read_arguments
from sampling import LOG, Program, added
from subjects import a_kernel, clean_environment, compile_c

from jupyter_aliquot.gpu_hook import paths

# The program's measure, and calls in one sample: so few that no queue of the driver is ever full.
CALLS = {
    "cuLaunchKernel, issued": ("launch", 3000),
    "cuLaunchKernel and wait": ("launch_and_wait", 1500),
    "cuGraphLaunch, 1 node": ("graph_1", 1500),
    "cuGraphLaunch, 100 nodes": ("graph_100", 300),
    "cuGraphLaunch, 1,000 nodes": ("graph_1000", 45),
    "cuMemAlloc + cuMemFree, 4 KiB": ("alloc_4k", 600),
    "cuMemAlloc + cuMemFree, 2 MiB": ("alloc_2m", 300),
    "cuMemAlloc + cuMemFree, 64 MiB": ("alloc_64m", 150),
    "cuMemGetInfo": ("mem_info", 600),
}
SMOKE = {"gpu": "softgpu", "rounds": 2}
VERSION = Path("/proc/driver/nvidia/version")


def describe(kind: str, device: str) -> str:
    """Return the device's own name, and the driver's release or its substitute.

    So reports of the software GPU and of a GPU cannot be confused.
    """
    if kind == "softgpu":
        return f"{device} (dry run: compiled GPU code is timed there, not executed)"
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", VERSION.read_text()) if VERSION.exists() else None
    return f"{device}, driver {found[1] if found else 'unknown'}"


def sample(bare: Program, hooked: Program, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Return nanoseconds by call, bare and hooked."""
    samples: dict[str, tuple[list[float], list[float]]] = {call: ([], []) for call in CALLS}
    for number in range(rounds):
        for call, (measure, count) in CALLS.items():
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                samples[call][which].append((bare, hooked)[which].ask(measure, count))
        print(f"\rrounds: {number + 1} of {rounds}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return samples


def rows_of(samples: dict[str, tuple[list[float], list[float]]]) -> list[Row]:
    rows = []
    for call, (bare, hooked) in samples.items():
        middle = statistics.median(bare)
        more = added(hooked, bare)
        rows += [
            Row(f"{call}, bare", middle, "ns"),
            Row("  added", more, "ns"),
            Row("  added", 100 * more / middle, "%"),
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", choices=("nvidia", "softgpu"), default="nvidia", help="what to measure on")
    parser.add_argument("--rounds", type=int, default=30, help="samples of each call, bare and hooked")
    asked = read_arguments(parser, SMOKE)
    try:
        driver = paths.choose_driver(asked.gpu)
    except paths.PathError as error:
        raise SystemExit(str(error)) from error
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    LOG.unlink(missing_ok=True)
    try:
        client = compile_c("gpu_client.c", folder / "gpu_client", str(driver.cuda))
        with a_kernel(folder / "node", asked.gpu) as kernel:
            shared = {"BENCH_BUILTINS": str(ROOT / "gpu_hook" / "builtins.ptx")}
            state = {name: kernel.env[name] for name in kernel.env if name.startswith("ALIQUOT_SOFTGPU_")}
            plain = {**clean_environment(), **shared, **state, "LD_LIBRARY_PATH": str(driver.cuda.parent)}
            plain["CUDA_VISIBLE_DEVICES"] = kernel.env["CUDA_VISIBLE_DEVICES"]
            bare = Program("bare", [client], plain, None)
            hooked = Program("hooked", [client], {**kernel.env, **shared}, None)
            samples = sample(bare, hooked, asked.rounds)
            bare.close()
            hooked.close()
            device = describe(asked.gpu, kernel.device)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{device} · {datetime.date.today().isoformat()}")
    raise SystemExit(0 if publish(asked, "hook-gpu", device, rows_of(samples)) else 1)


if __name__ == "__main__":
    main()
