"""The quickstart is a notebook to read.

It is short, without stored outputs, and has the cells that the demo names.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from jupyter_aliquot.demo.command import find_notebook
from jupyter_aliquot.demo.oversubscription import NOTEBOOK, PARTS as TURNS
from jupyter_aliquot.demo.runner import LONG_CELL, PARTS
from jupyter_aliquot.demo.two_classes import NOTEBOOK as PAUSES, PARTS as CLASSES


@pytest.fixture(scope="module")
def quickstart() -> nbformat.NotebookNode:
    notebook = nbformat.read(find_notebook(), as_version=4)
    nbformat.validate(notebook)
    return notebook


def test_the_demo_takes_the_notebook_of_the_checkout() -> None:
    assert find_notebook() == Path(__file__).resolve().parents[2] / "examples/quickstart.ipynb"


def test_it_is_short_and_stores_no_outputs(quickstart) -> None:
    code = [cell for cell in quickstart.cells if cell.cell_type == "code"]
    assert len(quickstart.cells) <= 15
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_it_asks_for_a_size_by_itself(quickstart) -> None:
    assert quickstart.metadata.kernelspec.name == "python3.gpu-0.25"


def test_the_cells_that_the_demo_names_are_there(quickstart) -> None:
    ids = {cell.id for cell in quickstart.cells}
    tags = {tag for cell in quickstart.cells for tag in cell.metadata.get("tags", [])}
    assert {"size", "greedy", "verify", LONG_CELL} <= ids
    assert {tag for part in PARTS for tag in part.leaves_out} | {"verify"} <= tags


def test_it_says_that_compiled_code_is_not_executed_on_the_software_gpu(quickstart) -> None:
    text = " ".join(cell.source for cell in quickstart.cells if cell.cell_type == "markdown")
    assert "compiled GPU code is timed, not executed" in " ".join(text.split())


def test_the_notebook_of_turns_has_the_cells_that_the_demo_names() -> None:
    turns = nbformat.read(find_notebook().with_name(NOTEBOOK), as_version=4)
    nbformat.validate(turns)
    code = {cell.id: cell for cell in turns.cells if cell.cell_type == "code"}
    assert {"fill", "verify"} <= set(code)
    assert code["verify"].metadata.tags == ["verify"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code.values())
    assert {part.kernelspec for part in TURNS} == {turns.metadata.kernelspec.name}


def test_the_notebook_of_pauses_has_the_cells_that_the_demo_names() -> None:
    pauses = nbformat.read(find_notebook().with_name(PAUSES), as_version=4)
    nbformat.validate(pauses)
    code = {cell.id: cell for cell in pauses.cells if cell.cell_type == "code"}
    assert {"alone", "beside", "fill_pauses"} <= set(code)
    assert code["beside"].metadata.tags == ["normal-priority", "verify"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code.values())
    tags = {tag for cell in code.values() for tag in cell.metadata.get("tags", [])}
    assert {tag for part in CLASSES for tag in part.leaves_out} == tags - {"verify"}
