"""The hook's copying under sanitizers, on a software GPU that is built with the same one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WITHOUT = {"LD_LIBRARY_PATH", "ALIQUOT_KERNEL_DIR"}  # the hook is in the program, and off
_LONG = pytest.mark.soak(alone="copies for a minute under a sanitizer")
_FAULT = "cuMemcpyDtoHAsync_v2:3=700"


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize(
    ("kind", "fault"),
    [("memory", _FAULT), pytest.param("memory", "", marks=_LONG), pytest.param("file", "", marks=_LONG)],
)
def test_copies_in_both_directions_are_clean(
    sanitizer: str,
    kind: str,
    fault: str,
    build_with: Callable[[str], Any],
    compile_with_hook: Callable[[str, str], Path],
    make_machine: Callable[..., Any],
    tmp_path: Path,
) -> None:
    node = make_machine(build_with(sanitizer), None, devices=2, memory="256MiB")
    program = str(compile_with_hook(sanitizer, "copying.c"))
    env = {name: value for name, value in node.hooked_env.items() if name not in WITHOUT}
    done = subprocess.run(
        [program, "1", "2", str(tmp_path) if kind == "file" else kind, "few"],
        env={**env, "ALIQUOT_SOFTGPU_FAULTS": fault, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["2", str(int(bool(fault))), "700" if fault else "0"]
