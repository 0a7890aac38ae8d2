"""Images of GPU code come from anywhere: a damaged one is refused, and nothing outside it is touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOFTGPU = HERE.parents[2] / "gpu_hook" / "softgpu"
SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))


@pytest.mark.soak
@pytest.mark.timeout(max(300, 60 * SOAK))
def test_damaged_images_are_refused_or_understood(compile_with: Any) -> None:
    sources = [HERE / "images.c", *sorted((SOFTGPU / "modules").glob("image*.c"))]
    program = compile_with("address,undefined", sources, f"-I{SOFTGPU}", "-fno-sanitize-recover=undefined")
    count = 100_000 * SOAK
    command = [str(program), str(SOFTGPU.parent / "builtins.ptx"), "0", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    taken, refused = map(int, done.stdout.split())
    assert taken + refused == count
    assert min(taken, refused) > count // 10
