"""A server that a reader of the pages starts, in a folder with a checkout and an environment."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.reader_environment import make_environment, variables_of
else:
    from reader_environment import make_environment, variables_of

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120.0


@contextlib.contextmanager
def a_folder() -> Iterator[Path]:
    """The folder of a reader who has a checkout, an environment of their own in it, and notebooks."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    try:
        make_environment(folder / "venv")
        (folder / ".venv").symlink_to("venv")
        (folder / "Makefile").symlink_to(ROOT / "Makefile")
        (folder / "docs" / "reference").mkdir(parents=True)
        (folder / "labextension" / "dist").mkdir(parents=True)
        cell = nbformat.v4.new_code_cell("epochs = 1", metadata={"tags": ["parameters"]})
        cells = [cell, nbformat.v4.new_code_cell("print(epochs)")]
        spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        for name in ("notebook.ipynb", "in.ipynb"):
            nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), folder / name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def started(command: str, folder: Path, is_ready: Callable[[str], bool]) -> Iterator[None]:
    """Keep the command running, once its log shows that it is ready.

    It has to end by itself at SIGTERM.
    """
    with (folder / "out.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=variables_of(folder / "venv", folder),
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_ready(said := (folder / "out.log").read_text()):
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)  # between two looks: a log and a port have no event
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()


def answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(url, timeout=5).close()
        return True
    return False
