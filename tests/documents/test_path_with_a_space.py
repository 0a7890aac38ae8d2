"""Aliquot below a folder with a space in its name: the loader's variables end a path at a space."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

import jupyter_aliquot.gateway

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.reader_environment import make_environment, variables_of
    from tests.documents.reader_server import PATIENCE_SECONDS, started
else:
    from reader_environment import make_environment, variables_of
    from reader_server import PATIENCE_SECONDS, started

PACKAGE = Path(jupyter_aliquot.gateway.__path__[0]).parent
SOURCES = ("__pycache__", "*.c", "*.h", "*.S")
# A program in the kernel's own environment sees a quarter of the device, so the hook is before its driver.
CELL = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)]
codes.append(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
print(codes, total.value <= 256 << 20)
"""
AGENT = "venv/bin/python -m jupyter_aliquot.gateway.cli.app agent --driver softgpu --softgpu-memory 1GiB --overcommit 1"
EXECUTE = "from nbclient.cli import main; main()"


@pytest.fixture
def a_place() -> Iterator[Path]:
    """Return a folder with an environment and a copy of Aliquot, which comes before the one of the tests."""
    folder = Path(tempfile.mkdtemp(prefix="aq my work-", dir="/tmp"))
    try:
        make_environment(folder / "venv")
        shutil.copytree(PACKAGE, folder / "own" / "jupyter_aliquot", ignore=shutil.ignore_patterns(*SOURCES))
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (packages / "a_copy.pth").write_text(f"import sys; sys.path.insert(0, {str(folder / 'own')!r})\n")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_sized_kernel_has_its_limit_below_a_folder_with_a_space(a_place: Path) -> None:
    cells = [
        nbformat.v4.new_code_cell(text) for text in (CELL, "import jupyter_aliquot.gpu_hook as g; print(g.__path__[0])")
    ]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), a_place / "my notebook.ipynb")
    with started(AGENT, a_place, lambda said: "event=started" in said):
        done = subprocess.run(
            ["venv/bin/python", "-c", EXECUTE, "--kernel_name=python3.gpu-0.25", "--inplace", "my notebook.ipynb"],
            cwd=a_place,
            env=variables_of(a_place / "venv", a_place),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    printed = [cell.outputs[0].text for cell in nbformat.read(a_place / "my notebook.ipynb", 4).cells]
    assert printed == ["[0, 0, 0, 0] True\n", f"{a_place / 'own' / 'jupyter_aliquot' / 'gpu_hook'}\n"]
