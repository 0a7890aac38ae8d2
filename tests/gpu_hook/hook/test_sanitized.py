"""The hook under sanitizers: threads at the quota's edge, an agent that recalls and dies, NVML beside a new page."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

MIB = 1 << 20
HERE = Path(__file__).parent
OPTIONS = {
    "address,undefined": {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"},
    "thread": {"TSAN_OPTIONS": f"halt_on_error=1 exitcode=66 suppressions={HERE / 'thread.suppressions'}"},
}


@pytest.mark.parametrize("sanitizer", OPTIONS)
def test_threads_at_the_edge_are_clean(sanitizer: str, a_null_node: Any, build_program: Callable[..., Path]) -> None:
    program = build_program("stress.c", sanitizer)
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
            _, complaints = process.communicate("\n", timeout=90)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")
    assert got == [0, 0]
    assert succeeded > 1000
    assert refused > 0
    assert connection.word(0, HookPage.PEAK) <= 24 * MIB


@pytest.mark.parametrize("sanitizer", OPTIONS)
def test_nvml_beside_a_page_that_changes_is_clean(
    sanitizer: str, a_node: Any, build_program: Callable[..., Path]
) -> None:
    program = build_program("nvml_stress.c", sanitizer, "nvml")
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
            output, complaints = process.communicate(timeout=90)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")
    whole, wrong = map(int, output.split())
    assert wrong == 0
    assert whole > 1000
    assert number > 100
