"""Steps that several phases share: run tests, benchmarks, the probe or a program."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpu_probes
import gpu_tests

from .context import Context, Done

PROBE = gpu_tests.BUILD / "gpu_probe"
PROGRAMS_LOG = gpu_tests.ROOT / "build" / "bench" / "programs.log"
MOST_FAILURES = 40
KERNEL_BYTES = 1 << 30  # of a kernel whose programs take little memory: it also covers a context


def run_tests(context: Context, name: str, *arguments: str, seconds: float = 0.0, workers: int = 0) -> None:
    """Run a part of the tests; each failure is a finding with its reason.

    Args:
        context: of the phase.
        name: of the part, for the findings.
        arguments: pytest's: files and selection.
        seconds: the limit; 0 means the phase's.
        workers: the number of parallel workers, if pytest-xdist is installed.
    """
    reports = context.file(f"{name}.jsonl")
    plugins = ["-p", "pytest_timeout", "-p", "gpu_first.reports"]
    if workers > 1 and importlib.util.find_spec("xdist") is not None:
        plugins += ["-p", "xdist.plugin", "-n", str(min(workers, os.cpu_count() or 1))]
    # Only these plugins: others on the machine must not decide the result.
    env = {**context.environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "ALIQUOT_TEST_REPORTS": str(reports)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugins, "--timeout=120", "-q", *arguments]
    try:
        done = context.run(command, seconds, env)
    except KeyboardInterrupt:
        _tell_reports(context, name, reports, "the phase's limit")
        raise
    ended = "" if done.code in (0, 1) else done.why
    _tell_reports(context, name, reports, ended)


def _tell_reports(context: Context, name: str, reports: Path, ended: str) -> None:
    records = [json.loads(line) for line in reports.read_text().splitlines()] if reports.exists() else []
    counts = Counter(record["outcome"] for record in records)
    failed = [record for record in records if record["outcome"] == "failed"]
    reasons = Counter(record["why"] for record in records if record["outcome"] == "skipped")
    context.tell(
        part=name, **counts, skipped_because=dict(reasons.most_common(8)), **({"ended": ended} if ended else {})
    )
    for record in failed[:MOST_FAILURES]:
        context.tell(part=name, failed=record["test"], why=record["why"])
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        context.fail(f"{name}: {failed[0]['test'].rpartition('::')[2]} failed{more}")
    if ended:
        context.fail(f"{name}: ended after {len(records)} tests: {ended}")
    elif not counts["passed"] and not failed:
        context.fail(f"{name}: no test was executed: {', '.join(reasons) or 'none was chosen'}")


def run_benchmark(context: Context, name: str, *arguments: str, seconds: float = 0.0, label: str = "") -> None:
    """Run a benchmark; its rows are a finding, a bound that does not hold is a failure."""
    out = context.file(label or name)
    out.mkdir()
    smoke = ["--smoke"] if context.is_soft else []
    command = [sys.executable, f"benchmarks/{name}.py", "--gpu", context.gpu, "--out", str(out), *smoke, *arguments]
    done = context.run(command, seconds)
    written = sorted(out.glob("*.json"))
    for path in written:
        record = json.loads(path.read_text())
        rows = [f"{row['name'].strip()}: {row['value']:.4g} {row['unit']}".strip() for row in record["rows"]]
        context.tell(benchmark=label or name, device=record["device"], rows=rows)
        missed = [row["name"].strip() for row in record["rows"] if row["holds"] is False]
        if missed:
            context.fail(f"{label or name}: {missed[0]} is not within its bound ({len(missed)} in all)")
    if PROGRAMS_LOG.exists():  # output of the benchmark's programs; each benchmark truncates it
        shutil.copy2(PROGRAMS_LOG, out)
    if not written:
        context.fail(f"{label or name}: {done.why}")


def run_probe(context: Context, command: str, *arguments: str, seconds: float = 20.0) -> list[dict[str, Any]]:
    """Run a sub-command of the probe; report its lines as findings and return them."""
    driver = context.driver()
    env = {**context.environment(), **softgpu(context), "ALIQUOT_BUILTINS": str(gpu_probes.BUILTINS)}
    done = context.run([str(PROBE), str(driver.cuda), command, *arguments], seconds, env)
    lines = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    for line in lines:
        context.tell(**line)
    errors = [line["error"] for line in lines if "error" in line]
    if done.code != 0 or not lines:
        context.fail(f"probe {command}: {errors[0] if errors else done.why}")
    return lines


def softgpu(context: Context) -> dict[str, str]:
    """Set the software GPU for the phase's programs without an agent; on a GPU do nothing."""
    if not context.is_soft:
        return {}
    return {
        "ALIQUOT_SOFTGPU_STATE": f"/dev/shm/{context.work.name}-{context.phase}",
        "ALIQUOT_SOFTGPU_MEMORY": "256MiB",
        "LD_LIBRARY_PATH": str(context.driver().cuda.parent),
    }


def run_program(context: Context, source: str, env: Mapping[str, str], seconds: float) -> tuple[Done, Any]:
    """Run Python source; return the JSON value of its last line, or None if it failed before that."""
    path = context.file("program.py")
    path.write_text(source)
    done = context.run([sys.executable, str(path)], seconds, env)
    try:
        value = json.loads(done.out.strip().splitlines()[-1]) if done.code == 0 else None
    except (ValueError, IndexError):
        value = None
    return done, value
