"""The hook under sanitizers: threads at the quota's edge, an agent that recalls and dies, NVML beside a new page."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aliquot.gpu_hook import paths
from aliquot.gpu_hook.protocol import HookPage

MIB = 1 << 20
HERE = Path(__file__).parent
SOURCES = Path(paths.__file__).resolve().parent / "src"
SHARED = ["entry_points.c", "log.c", "page.c", "settings.c", "socket.c", "version.c"]
NVML = [*SHARED, "observer.c", *sorted(one.name for one in SOURCES.glob("nvml_*.c"))]
NOT_CUDA = {"kernel_start.c", "self_check.c", *NVML} - set(SHARED)
OPTIONS = {
    "address,undefined": {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"},
    "thread": {"TSAN_OPTIONS": f"halt_on_error=1 exitcode=66 suppressions={HERE / 'thread.suppressions'}"},
}


def build(sanitizer: str, folder: Path, include: Path, kind: str = "cuda") -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is needed: install gcc"
    generate = [sys.executable, str(SOURCES / "generate_entry_points.py"), kind, platform.machine()]
    if kind == "cuda":
        generate += [str(folder / "entries"), str(SOURCES / "entry_points.txt")]
        names, main = [one.name for one in sorted(SOURCES.glob("*.c")) if one.name not in NOT_CUDA], "stress.c"
    else:
        newer = SOURCES.parent / "include" / "nvml_names.txt"
        generate += [str(folder / "entries"), str(SOURCES / "nvml_calls.h"), str(include / "nvml.h"), str(newer)]
        names, main = NVML, "nvml_stress.c"
    subprocess.run(generate, check=True)
    program = folder / "stress"
    command = [compiler, "-std=gnu11", "-O1", "-g", "-w", f"-fsanitize={sanitizer}", "-D_GNU_SOURCE", "-pthread"]
    command += [f"-I{folder}", f"-I{include}", f"-I{SOURCES}", f"-I{SOURCES.parent / 'include'}", "-Wl,-Bsymbolic"]
    command += [str(HERE / main), str(folder / "entries.S"), str(folder / "entries.c")]
    subprocess.run([*command, *(str(SOURCES / one) for one in names), "-o", str(program), "-ldl"], check=True)
    return program


@pytest.mark.parametrize("sanitizer", OPTIONS)
def test_threads_at_the_edge_are_clean(sanitizer: str, a_null_node: Any, include_dir: Path, a_folder: Path) -> None:
    program = build(sanitizer, a_folder, include_dir)
    agent = a_null_node.grant(("10" * 16, 24 * MIB))
    env = {**a_null_node.hooked_env, **OPTIONS[sanitizer], "NULL_DRIVER_CHUNK": str(2 * MIB)}
    del env["LD_LIBRARY_PATH"]
    with subprocess.Popen(
        [str(program), "3000"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            connection = agent.process(process.pid)
            agent.recall(connection, 10 * MIB)
            agent.stop()
            agent.start()
            connection = agent.process(process.pid)
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            succeeded, refused = map(int, line.split())
            agent.wait_for(lambda: connection.word(0, HookPage.LAUNCHES) == 4 * 3000)
            got = [connection.word(0, word) for word in (HookPage.CHARGED, HookPage.ALLOCATIONS)]
            _, complaints = process.communicate("\n", timeout=30)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")
    assert got == [0, 0]
    assert succeeded > 1000
    assert refused > 0
    assert connection.word(0, HookPage.PEAK) <= 24 * MIB


@pytest.mark.parametrize("sanitizer", OPTIONS)
def test_nvml_beside_a_page_that_changes_is_clean(
    sanitizer: str, a_node: Any, include_dir: Path, a_folder: Path
) -> None:
    program = build(sanitizer, a_folder, include_dir, "nvml")
    probe = a_node.outsider()
    assert probe("begin()") == 0
    agent = a_node.grant((probe("uuid()"), 64 * MIB))
    env = {**a_node.hooked_env, **OPTIONS[sanitizer]}
    del env["LD_LIBRARY_PATH"]
    with subprocess.Popen(
        [str(program), "2000"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
            process.stdin.write("go\n")
            process.stdin.flush()
            number = 0
            while process.poll() is None:
                number += 1
                agent.replace_processes(*[(number, number, 0, number)] * (number % 64 + 1))
            output, complaints = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")
    whole, wrong = map(int, output.split())
    assert wrong == 0
    assert whole > 1000
    assert number > 100
