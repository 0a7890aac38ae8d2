"""Count the instructions that the hook adds to a driver call, with callgrind on the null driver.

The counts are the same in every run. `--check` compares with benchmarks/hook/instructions.json and
fails on growth; `--record` writes that file. benchmarks/hook.py measures times; instructions show
where a change made a call longer, on a busy machine, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from subjects import a_kernel, build, own_subjects

RECORD = Path(__file__).resolve().parent / "hook" / "instructions.json"
MEASURES = {
    "cuLaunchKernel": "launch",
    "cuLaunchKernelEx": "launch_ex",
    "cuGraphLaunch": "graph_launch",
    "cuMemcpyHtoDAsync": "copy",
    "cuMemsetD8Async": "set",
    "cuStreamQuery": "stream_query",
    "cuMemGetInfo": "mem_info",
    "cuMemAlloc + cuMemFree": "alloc_free",
}
FEW_CALLS, MANY_CALLS = 500, 2500  # the difference excludes instructions of first calls
GROWTH, GROWTH_OTHER_TOOLS = 1.10, 1.25
_COLLECTED = re.compile(r"Collected : (\d+)")


def tools() -> dict[str, str]:
    """Return the versions of the tools, which the counts depend on next to our sources."""
    compiler = shutil.which("cc") or "gcc"
    version = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    return {"machine": platform.machine(), "compiler": f"gcc {version}", "libc": " ".join(platform.libc_ver())}


def collect(client: Path, env: dict[str, str], measure: str, calls: int) -> int:
    """Return the instructions in and below the function that makes the calls, on its own thread."""
    options = ["--tool=callgrind", f"--callgrind-out-file={os.devnull}", "--toggle-collect=run_*"]
    command = ["valgrind", *options, str(client), "once", measure, str(calls)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    found = _COLLECTED.search(done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(
            f"Started callgrind to count {measure}, but it ended with code {done.returncode}:\n{done.stderr}"
        )
    return int(found[1])


def count_added() -> dict[str, int]:
    """Count the instructions that ours adds to one call of each measure."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    try:
        built = build(folder)
        with a_kernel(folder / "node") as kernel, ThreadPoolExecutor(2) as pool:
            envs = {one.name: one.env for one in own_subjects(built, kernel)}
            jobs = {
                (name, subject, calls): pool.submit(collect, built.client, envs[subject], measure, calls)
                for name, measure in MEASURES.items()
                for subject in ("bare", "ours")
                for calls in (FEW_CALLS, MANY_CALLS)
            }
            counts = {key: job.result() for key, job in jobs.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)

    def of_one_call(name: str, subject: str) -> float:
        return (counts[name, subject, MANY_CALLS] - counts[name, subject, FEW_CALLS]) / (MANY_CALLS - FEW_CALLS)

    return {name: round(of_one_call(name, "ours") - of_one_call(name, "bare")) for name in MEASURES}


def compare(found: dict[str, int], record: dict[str, object], factor: float) -> list[str]:
    """Return one line for each call that grew beyond the factor."""
    recorded = record["added"]
    assert isinstance(recorded, dict)
    grown = {name: value for name, value in found.items() if value > recorded.get(name, 0) * factor}
    return [f"{name}: recorded {recorded.get(name, 0)} instructions, counted {value}" for name, value in grown.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    kind.add_argument("--check", action="store_true", help="fail where a call grew by more than a tenth")
    asked = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is needed, but is not installed. Install it (Debian: apt-get install valgrind)")
    found = count_added()
    for name, value in found.items():
        print(f"{name}: {value} instructions added")
    if asked.record:
        RECORD.write_text(json.dumps({**tools(), "added": found}, indent=2) + "\n")
    if not asked.check:
        return
    record = json.loads(RECORD.read_text())
    is_same = all(record[name] == value for name, value in tools().items())
    grown = compare(found, record, GROWTH if is_same else GROWTH_OTHER_TOOLS)
    if grown:
        sys.exit("\n".join([*grown, "if this is worth it, record it: python benchmarks/instructions.py --record"]))


if __name__ == "__main__":
    main()
