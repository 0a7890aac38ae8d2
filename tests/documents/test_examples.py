"""The notebooks of examples/ run from top to bottom, as far as a machine with the software GPU can run them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from ports import free_port

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.reader_environment import variables_of
    from tests.documents.reader_server import a_folder, answers, started
else:
    from reader_environment import variables_of
    from reader_server import a_folder, answers, started

pytestmark = pytest.mark.timeout(600)  # a busy machine starts kernels for minutes
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Notebooks of the demonstration have tests of their own (tests/demo).
OF_THE_DEMO = {"quickstart.ipynb", "pauses.ipynb", "turns.ipynb"}
# A text that shows that the notebook did what it promises on this machine.
SAYS = {
    "pytorch.ipynb": "Aliquot Software GPU: this kernel may use 4.0 GiB",
    "cupy.ipynb": "by iteration",
    "jax.ipynb": "XLA_PYTHON_CLIENT_PREALLOCATE = false",
    "client.ipynb": "now 0.3 GPU",
    "class.ipynb": "10 students of 0.1 GPU with their memory on a GPU at once",
    "pipeline.ipynb": "4.0 and 8.0 GiB",
}
TOKEN = "alices-token-of-this-test"
CONFIGURATION = f"""
c.AliquotIdentityProvider.users = {{"alice": {{"token": "{TOKEN}"}}}}
c.Aliquot.driver = "softgpu"
c.Aliquot.agent_options = ["--softgpu-memory", "16GiB"]
c.Aliquot.keep_kernels = "never"
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a reader's folder, beside a gateway with a kernel of alice's."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = f"aliquot serve --config gateway.py --port {port} --allow-root --ServerApp.port_retries=0"
    with a_folder() as folder:
        (folder / "gateway.py").write_text(CONFIGURATION)
        (folder / "server.json").write_text(json.dumps({"SERVER": url, "TOKEN": TOKEN}))
        with started(command, folder, lambda _: answers(f"{url}/api")):
            request = urllib.request.Request(f"{url}/api/kernels", data=b'{"name": "python3.gpu-0.25"}')
            request.add_header("Authorization", f"token {TOKEN}")
            urllib.request.urlopen(request, timeout=120).close()
            yield folder


def test_each_example_is_run_by_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == OF_THE_DEMO | set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_has_headings_and_prose_and_stores_no_outputs(name: str) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbformat.validate(notebook)
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert prose[0].startswith("# ")
    assert "**Where it runs.**" in prose[0], "and says how far the tests run it"
    assert sum(text.startswith("## ") for text in prose) >= 2
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_from_top_to_bottom(folder: Path, name: str) -> None:
    shutil.copy(EXAMPLES / name, folder)
    told = json.loads((folder / "server.json").read_text())
    spec = nbformat.read(EXAMPLES / name, as_version=4).metadata.kernelspec.name
    done = subprocess.run(
        ["jupyter", "execute", f"--kernel_name={spec}", "--startup_timeout=300", "--output=done.ipynb", name],
        cwd=folder,
        env=variables_of(folder / "venv", folder) | told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cells = nbformat.read(folder / "done.ipynb", as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    said = "".join(output.get("text", "") for output in outputs if output.output_type == "stream")
    assert SAYS[name] in said
