"""libgomp's nvptx plugin, from the free GCC.

It opens the driver by name, asks for 54 symbols, and links its own PTX.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

MIB = 1 << 20
PROGRAM = Path(__file__).parent / "programs" / "offload.c"
# Without --no-verify its assembler asks a ptxas on the path, and newer ones do not know the oldest GPUs any more.
OPTIONS = ("-w", "-fopenmp", "-foffload=nvptx-none=-Wa,--no-verify")


@pytest.fixture(scope="module")
def offloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc was not found")
    facts = [subprocess.check_output([compiler, f"-dump{fact}"], text=True).strip() for fact in ("machine", "version")]
    offloading = f"{facts[0]}-accel-nvptx-none-gcc-{facts[1].split('.')[0]}"
    if shutil.which(offloading) is None:
        pytest.skip(f"{offloading} was not found: apt-get install gcc-{facts[1].split('.')[0]}-offload-nvptx")
    program = tmp_path_factory.mktemp("offload") / "offload"
    subprocess.run([compiler, *OPTIONS, str(PROGRAM), "-o", str(program)], check=True)
    return program


def escapes(pid: int) -> list[int]:
    """Return the hook's counts of unknown symbols and of calls that it cannot charge."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    start = next(int(line.split("-")[0], 16) for line in maps if "memfd:aliquot-hook-page" in line)
    with open(f"/proc/{pid}/mem", "rb") as memory:
        page = os.pread(memory.fileno(), HookPage.BYTES, start)
    places = (HookPage.UNKNOWN_SYMBOLS, HookPage.UNACCOUNTED_CALLS)
    return [int.from_bytes(page[place : place + 8], "little") for place in places]


def test_openmp_offloads_within_the_quota(a_place: Any, offloaded: Path) -> None:
    process = a_place.start([str(offloaded)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    heard = [process.stdout.readline() for _ in range(3)]
    assert heard == [f"devices {1 if a_place.is_hooked else 2}\n", "round trip 1\n", "number 1\n"]
    if a_place.is_hooked:
        a_place.until(lambda: a_place.ledger() >= 96 * MIB)
        assert escapes(process.pid) == [0, 0]
    output, errors = process.communicate("\n", timeout=40)
    assert output.splitlines() == ["more than there is 0", "again 1"]
    assert "nvptx_alloc error: out of memory" in errors
    assert process.returncode == 0
