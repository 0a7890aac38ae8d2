"""The first minutes on a GPU: no phase stops another.

A machine that lacks a tool says so in one line.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gpu_headers  # noqa: E402
import gpu_tests  # noqa: E402
from gpu_first import device_facts, frameworks, kernel_log, machine_facts, phases, runner  # noqa: E402
from gpu_first.context import Context, Done  # noqa: E402
from gpu_first.phases import PHASES, Phase  # noqa: E402

FIRST = str(ROOT / "tools" / "gpu_first")
# A phase as the runner starts it: its name says its action.
A_PHASE = """
    import argparse, json, os, pathlib, signal, subprocess, sys, time
    parser = argparse.ArgumentParser()
    for name in ("--phase", "--gpu", "--work", "--budget"):
        parser.add_argument(name)
    asked = parser.parse_args()
    def tell(**record):
        with (pathlib.Path(asked.work) / f"{asked.phase}.findings").open("a") as file:
            file.write(json.dumps(record) + "\\n")
    tell(found={"pid": os.getpid()})
    if asked.phase == "lacks":
        tell(says="No compiler is here.", stops=["compiler"])
    elif asked.phase == "fails":
        sys.exit("it broke")
    elif asked.phase == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif asked.phase == "hangs":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "600"], preexec_fn=os.setpgrp)
        tell(found={"child": child.pid})
        signal.pause()
"""
RUNS = """
    import sys
    sys.path.insert(0, {tools!r})
    from gpu_first import runner
    runner.LAST_WORDS_SECONDS = runner.INTERRUPTED_SECONDS = 0.3
    from gpu_first.phases import Phase
    from pathlib import Path
    phases = [Phase(name, {limit}, needs, (), print) for name, needs in {phases!r}]
    sys.exit(runner.Runner("nvidia", Path({out!r}), {budget}, [sys.executable, {phase!r}]).run_all(phases))
"""


def start(
    folder: Path, phases: Sequence[tuple[str, tuple[str, ...]]], limit: float = 20, budget: float = 60
) -> subprocess.Popen[str]:
    """Start the runner in a process of its own, over phases that the test made up."""
    phase, run = folder / "a_phase.py", folder / "run.py"
    phase.write_text(textwrap.dedent(A_PHASE))
    values = {"tools": str(ROOT / "tools"), "out": str(folder), "phase": str(phase)}
    run.write_text(textwrap.dedent(RUNS).format(limit=limit, budget=budget, phases=list(phases), **values))
    return subprocess.Popen([sys.executable, str(run)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def results(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "first.jsonl").read_text().splitlines()
    return {record["phase"]: record for record in map(json.loads, lines)}


def test_a_failure_a_crash_and_a_hang_stop_no_other_phase(tmp_path: Path) -> None:
    names = ("fails", "crashes", "hangs", "works")
    run = start(tmp_path, [(name, ()) for name in names], limit=1.5)
    said, _ = run.communicate(timeout=60)
    found = results(tmp_path)
    assert {name: found[name]["outcome"] for name in names} == {
        "fails": "failed", "crashes": "failed", "hangs": "stopped", "works": "ok",
    }  # fmt: skip
    assert found["fails"]["says"] == ["exit 1: it broke"]
    assert found["hangs"]["says"] == ["stopped at its limit of 2 s"]
    assert run.returncode == 1
    assert [line.split()[1] for line in said.splitlines() if line.startswith("hangs  ")] == ["stopped"]
    (child,) = [one["child"] for one in found["hangs"]["found"] if "child" in one]
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()


def test_what_a_machine_lacks_skips_the_phases_that_need_it_and_no_other(tmp_path: Path) -> None:
    run = start(tmp_path, [("lacks", ()), ("compiles", ("compiler",)), ("works", ("gpu",))])
    assert run.wait(60) == 0
    found = results(tmp_path)
    assert (found["compiles"]["outcome"], found["compiles"]["says"]) == ("skipped", ["No compiler is here."])
    assert found["works"]["outcome"] == "ok"


def test_a_phase_that_the_budget_does_not_hold_is_left_out(tmp_path: Path) -> None:
    run = start(tmp_path, [("works", ())], budget=runner.ENDING_SECONDS + 1)
    assert run.wait(60) == 0
    assert results(tmp_path)["works"]["says"] == ["the budget is spent"]
    assert "works" in (tmp_path / "summary.txt").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_still_writes_the_summary(number: signal.Signals, tmp_path: Path) -> None:
    run = start(tmp_path, [("works", ()), ("hangs", ()), ("lacks", ())], limit=50)
    assert run.stdout is not None
    while "hangs" not in run.stdout.readline():
        assert run.poll() is None
    run.send_signal(number)
    said = run.stdout.read()
    assert run.wait(30) == 1
    found = results(tmp_path)
    assert {name: one["outcome"] for name, one in found.items()} == {
        "works": "ok", "hangs": "stopped", "lacks": "skipped",
    }  # fmt: skip
    assert found["hangs"]["says"] == found["lacks"]["says"] == ["interrupted"]
    assert "interrupted" in (tmp_path / "summary.txt").read_text()
    assert (tmp_path / "details.tar.gz").exists()
    assert "written:" in said


@pytest.fixture(scope="module")
def a_fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = str(Path(__file__).with_name("fake_nvml.c"))
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", source, "-o", str(library)], check=True)
    return library


@pytest.mark.parametrize(
    ("machine", "want_line", "want_stops"),
    [
        ({}, "", ()),
        ({"FAKE_DRIVER": "470.82.01"}, "The driver is 470.82.01", ("hook",)),
        ({"FAKE_MIG": "0"}, "", ()),
        ({"FAKE_MIG": "1"}, "gpu0: MIG is on for Fake GPU", ("agent",)),
        ({"FAKE_DEVICES": "3", "FAKE_MIG": "0,1,0"}, "gpu1: MIG is on for Fake GPU. The node agent divides whole", ()),
        ({"FAKE_USED_GIB": "40"}, "", ()),
        ({"FAKE_DEVICES": "2", "FAKE_USED_GIB": "0,79"}, "gpu1: 1.0 of 80.0 GiB are free", ("room",)),
        (
            {"FAKE_USED_GIB": "79"},
            "gpu0: 1.0 of 80.0 GiB are free, 6.0 GiB are needed; process 4321 has 79.0 GiB",
            ("room",),
        ),
    ],
)
def test_a_machine_that_cannot_run_all_says_why_in_one_line(
    machine: dict[str, str],
    want_line: str,
    want_stops: tuple[str, ...],
    a_fake_nvml: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    found = list(device_facts.complaints(device_facts.read_devices(a_fake_nvml)))
    assert len(found) == bool(want_line)
    for line, stops in found:
        assert line.startswith(want_line)
        assert stops == want_stops
        assert "\n" not in line


def test_nvml_that_does_not_start_is_one_line(a_fake_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_INIT", "9")
    with pytest.raises(device_facts.NvmlError, match=r"nvmlInit of .* answered 9; nvidia-smi says more$"):
        device_facts.read_devices(a_fake_nvml)


XID = "2026-11-27T14:00:00,1+0000 NVRM: Xid (PCI:0000:01:00): 31, pid=7, MMU Fault"


def test_the_summary_tells_the_xids_that_came_while_the_phases_ran() -> None:
    log = ["old NVRM: Xid (PCI:0000:01:00): 79", "usb 1-1: new device"]
    watch = kernel_log.XidWatch(lambda: log)
    assert watch.report() == ["Xids in the kernel's log: none"]
    log.append(XID)
    assert watch.report() == ["Xids in the kernel's log: 1", f"  {XID}"]


def test_a_log_that_cannot_be_read_is_said_with_its_reason() -> None:
    def read() -> list[str]:
        return kernel_log.read_log(("sh", "-c", "echo 'dmesg: read kernel buffer failed: not permitted' >&2; exit 1"))

    want = "Xids: the kernel's log cannot be read: dmesg: read kernel buffer failed: not permitted"
    assert kernel_log.XidWatch(read).report() == [want]


def test_without_headers_the_phases_that_compile_are_left_out_in_one_line_and_the_others_run(
    a_context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries are there: built before, or carried."""
    monkeypatch.setattr(gpu_headers, "_candidates", lambda variable: iter(()))
    monkeypatch.setattr(a_context, "run", lambda *words, **more: Done(0, "", "", 0.0))
    monkeypatch.setattr(phases, "run_program", lambda *words: (Done(0, "", "", 0.0), "main"))
    monkeypatch.setattr(phases, "PROBE", a_context.file("probe"))
    phases.build(a_context)
    complaints = [record for record in records(a_context) if record.get("stops")]
    assert [stop for record in complaints for stop in record["stops"]] == ["compiler", "probe"]
    for record in complaints:
        assert record["says"].startswith(
            "cuda.h is neither in NVIDIA's wheels nor under /usr/local/cuda: set CUDA_INCLUDE"
        )
    runs = {phase.name for phase in PHASES if not {"compiler", "probe"} & set(phase.needs)}
    assert runs == {"facts", "build", "shim", "frameworks"}


def test_every_phase_whose_programs_make_contexts_needs_room() -> None:
    """On a full card each would fail with out of memory, and hide its result."""
    without = {phase.name for phase in PHASES if "room" not in phase.needs}
    assert without == {"facts", "build", "resolver"}


def test_each_complaint_leaves_phases_that_still_run() -> None:
    for lacking in ("hook", "agent", "room", "compiler", "probe", "native", "gpu"):
        runs = [phase.name for phase in PHASES if lacking not in phase.needs]
        assert {"facts", "build"} <= set(runs)
        assert len(runs) < len(PHASES), f"no phase needs {lacking}, so that nothing is skipped without it"


def run_command(folder: Path, gpu: str, *phases: str) -> None:
    """Run the command with no program on the path: earlier builds stay as they are."""
    command = [sys.executable, FIRST, "--gpu", gpu, "--out", str(folder)]
    for phase in phases:
        command += ["--only", phase]
    subprocess.run(command, capture_output=True, timeout=60, check=False, env={**os.environ, "PATH": str(folder)})


@pytest.mark.soak(alone="builds for a bare machine once more")
def test_without_a_gpu_it_says_so_and_the_build_still_runs(tmp_path: Path) -> None:
    if gpu_tests.has_nvidia():
        pytest.skip("this machine has an NVIDIA driver")
    command = [
        sys.executable,
        FIRST,
        "--gpu",
        "nvidia",
        "--out",
        str(tmp_path),
        "--only",
        "facts",
        "--only",
        "resolver",
    ]
    subprocess.run(command, capture_output=True, timeout=60, check=False)
    found = results(tmp_path)
    assert found["facts"]["outcome"] == "ok"
    assert found["facts"]["says"] == found["resolver"]["says"]
    assert found["facts"]["says"][0].startswith("No NVIDIA driver is here")
    assert found["resolver"]["outcome"] == "skipped"


def test_without_compiler_and_cmake_the_build_says_what_is_missing(tmp_path: Path) -> None:
    """The message also names the phases that this costs.

    The folder is a copy of nothing, so that no build of this tree is touched.
    """
    env = {**os.environ, "PATH": str(tmp_path)}
    command = [
        sys.executable,
        FIRST,
        "--gpu",
        "softgpu",
        "--out",
        str(tmp_path),
        "--only",
        "build",
        "--only",
        "resolver",
    ]
    subprocess.run(command, capture_output=True, timeout=60, check=False, env=env)
    found = results(tmp_path)
    assert found["build"]["outcome"] == "failed"
    assert any("needs CMake" in line for line in found["build"]["says"])
    assert any("neither cc nor gcc: install gcc" in line for line in found["build"]["says"])
    assert found["resolver"]["outcome"] == "skipped"


@pytest.fixture
def a_context(tmp_path: Path) -> Context:
    return Context("frameworks", "softgpu", tmp_path, 60.0)


def records(context: Context) -> list[dict[str, Any]]:
    lines = (context.work / f"{context.phase}.findings").read_text().splitlines()
    return [json.loads(line) for line in lines]


def told(context: Context) -> list[dict[str, Any]]:
    return [record["found"] for record in records(context) if "found" in record]


@pytest.mark.parametrize(
    ("log", "want"),
    [(b"<6>[    0.000000] Starting gVisor...\n", True), (b"<6>[0.0] Linux version 6.1\n", False), (None, False)],
)
def test_gvisor_is_a_complaint_that_skips_phases_with_the_agent(
    log: bytes | None, want: bool, a_context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def klogctl(action: int, text: Any, size: int) -> int:
        if log is None:
            return -1  # not permitted
        text.raw = log.ljust(size, b"\0")
        return len(log)

    sandbox = gpu_tests.load_source("sandbox")
    monkeypatch.setattr(sandbox.ctypes, "CDLL", lambda name: SimpleNamespace(klogctl=klogctl))
    assert sandbox.is_gvisor() is want
    monkeypatch.undo()
    monkeypatch.setattr(
        gpu_tests, "load_source", lambda name: SimpleNamespace(is_gvisor=lambda: want, GVISOR="gVisor: unsupported")
    )
    monkeypatch.setattr(machine_facts, "_tell_device", lambda context, library: None)
    machine_facts.run(a_context)
    stops = [record["stops"] for record in records(a_context) if "gVisor: unsupported" in record.get("says", "")]
    assert stops == [["agent"]] * want


def test_the_facts_tell_what_the_kernel_can_do_with_pages(a_context: Context) -> None:
    assert {"wipe_on_fork", "populate_read", "populate_write"} <= machine_facts.probe_system_calls().keys()


@pytest.mark.parametrize(
    ("last_line", "want_result", "want_failed"),
    [
        ("print(json.dumps({'total': 7, 'ok': True}))", "ok", False),
        ("print(json.dumps({'total': 7, 'ok': False}))", "a wrong result", True),
        ("raise SystemExit('the driver said no')", "exit 1: the driver said no", True),
    ],
)
def test_a_frameworks_script_has_one_result(
    last_line: str, want_result: str, want_failed: bool, a_context: Context
) -> None:
    program = frameworks.Program("one", ("json",), f"import json\n{last_line}\n", computes=False)
    assert frameworks.try_program(a_context, program, dict(os.environ), "bare") == want_result
    (found,) = told(a_context)
    assert (found["framework"], found["result"], a_context.has_failed) == ("one", want_result, want_failed)


def test_a_wrong_result_of_compiled_code_fails_nothing_where_none_is_executed(a_context: Context) -> None:
    program = frameworks.Program("one", ("json",), "import json\nprint(json.dumps({'total': 7, 'ok': False}))\n")
    frameworks.try_program(a_context, program, dict(os.environ), "bare")
    assert (told(a_context)[0]["result"], a_context.has_failed) == ("the software GPU executes no compiled code", False)


def test_a_framework_that_is_not_installed_is_a_result_and_no_failure(a_context: Context) -> None:
    program = frameworks.Program("none", ("no_such_framework",), "")
    frameworks.try_program(a_context, program, {}, "bare")
    assert told(a_context)[0]["result"] == "not installed: no_such_framework"
    assert not a_context.has_failed


def test_a_function_that_the_table_lacks_fails_the_phase(a_context: Context) -> None:
    log = a_context.file("hook.log")
    log.write_text("aliquot: event=unknown_symbol name=cuNewLaunch\n" * 2)
    frameworks.tell_unknown(a_context, log)
    assert told(a_context) == [{"unknown_symbols": ["cuNewLaunch"]}]
    assert a_context.has_failed


def test_the_page_has_each_phase_with_its_limit_and_its_rows_and_tells_what_each_row_changes() -> None:
    page = (ROOT / "docs" / "how-to" / "first-minutes-on-a-gpu.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    told = {row[0].strip("`"): row for row in rows}
    for phase in PHASES:
        assert told[phase.name][1] == f"{phase.seconds:g} s"
        assert told[phase.name][3] == ", ".join(phase.retires)
    numbers = {row for phase in PHASES for row in phase.retires if row.isdigit()}
    assert numbers <= set(told), f"no outcome is told of rows {sorted(numbers - set(told))}"
    named = set(re.findall(r"`((?:gpu_hook|gateway|benchmarks)/[^`*]+)`", page))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_phases_fit_into_ten_minutes_of_a_command() -> None:
    """The limits of all phases may exceed the budget by seldom-used time, at most by a fifth."""
    whole = sum(phase.seconds for phase in PHASES if not phase.is_optional)
    assert whole <= 575 * 1.2
    assert all(isinstance(phase, Phase) and phase.seconds <= 300 for phase in PHASES)
