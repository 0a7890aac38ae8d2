"""A kernel has one size in every place of a page.

After a resize, a save, a reload, a restart and a server's return.
"""

from __future__ import annotations

import json
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.lab_page import LabPage, NotebookPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.resizes import IN_LAB, IN_NOTEBOOK, PYTHON, SIZES, resize
    from tests.labextension.server_processes import NotebookProcess, an_empty_notebook
else:
    from lab_page import LabPage, NotebookPage
    from lab_process import LabProcess
    from resizes import IN_LAB, IN_NOTEBOOK, PYTHON, SIZES, resize
    from server_processes import an_empty_notebook

pytestmark = pytest.mark.browser

_IS_DIRTY = "() => jupyterapp.shell.currentWidget.context.model.dirty"
_SAVE = "() => jupyterapp.shell.currentWidget.context.save().then(() => null)"
_HAS_LANGUAGE = "() => Boolean(jupyterapp.shell.currentWidget?.model?.getMetadata('language_info'))"
_IS_CALLED = "name => jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.name === name"


def test_a_resize_is_told_everywhere_at_once_and_stays_over_reload_save_restart_and_the_servers_return(
    an_aliquot_lab: LabProcess, a_real_lab: LabPage
) -> None:
    path = _a_sized_notebook(an_aliquot_lab, a_real_lab)
    _resizes_everywhere(a_real_lab.page, IN_LAB)
    _stays(a_real_lab, an_aliquot_lab, path)
    assert a_real_lab.errors == []


_OPEN_CONSOLE = """async () => {
    const notebook = jupyterapp.shell.currentWidget;
    const { id } = notebook.sessionContext.session.kernel;
    const panel = await jupyterapp.commands.execute('console:create', { kernelPreference: { id }, activate: false });
    await panel.sessionContext.ready;
    await panel.console.inject("print('typed')");
    window.consoleOfTheTest = panel;
    jupyterapp.shell.activateById(notebook.id);
}"""
_CONSOLE = """() => {
    const { console, sessionContext } = window.consoleOfTheTest;
    return [sessionContext.session.kernel.name, Array.from(console.cells, cell => cell.model.sharedModel.source)];
}"""
_RUN = """code => {
    const { content } = jupyterapp.shell.currentWidget;
    content.activeCell.model.sharedModel.setSource(code);
    void jupyterapp.commands.execute('notebook:run-cell');
}"""
_SHOWN = """() => {
    const { outputs } = jupyterapp.shell.currentWidget.content.widgets[0].model;
    return outputs.toJSON().map(output => output.text ?? output.output_type).join('');
}"""


def test_a_resize_leaves_a_consoles_cells_and_a_cell_that_runs_as_they_are(
    an_aliquot_lab: LabProcess, a_real_lab: LabPage, tmp_path: Path
) -> None:
    _a_sized_notebook(an_aliquot_lab, a_real_lab)
    page = a_real_lab.page
    page.wait_for_function(_IS_IDLE)
    page.evaluate(_OPEN_CONSOLE)
    page.wait_for_function("() => 'context' in (jupyterapp.shell.currentWidget ?? {})")
    before = page.evaluate(_CONSOLE)
    assert (before[0], "print('typed')" in before[1]) == ("python3.gpu-0.25", True)
    flag = str(tmp_path / "go on")
    wait = f"import os, time\nprint('one', flush=True)\nwhile not os.path.exists({flag!r}):\n    time.sleep(0.01)"
    page.evaluate(_RUN, f"{wait}\nprint('two')")
    page.wait_for_function(f"want => ({_SHOWN})() === want", arg="one\n")
    kernel_id = page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.id")
    _ask(an_aliquot_lab, "PATCH", f"aliquot/api/v1/kernels/{kernel_id}", {"gpus": 0.5})
    page.wait_for_function(_IS_CALLED, arg="python3.gpu-0.5")
    page.wait_for_function(f"want => ({_CONSOLE})()[0] === want", arg="python3.gpu-0.5")
    Path(flag).touch()
    page.wait_for_function(_IS_IDLE)
    page.wait_for_function(f"want => ({_SHOWN})() === want", arg="one\ntwo\n")
    assert page.evaluate(_CONSOLE) == ["python3.gpu-0.5", before[1]]
    assert a_real_lab.errors == []


@pytest.mark.soak(alone="a long browser test")
def test_a_page_whose_server_was_away_learns_the_size_that_was_given_before_it_came_back(a_page: Page) -> None:
    options = ("--Aliquot.keep_kernels=auto",)
    with LabProcess(with_aliquot=True, options=options, port=free_port()) as server:
        _a_sized_notebook(server, LabPage(a_page).open(server.lab_url))
        try:
            assert resize(a_page, {"gpus": 0.5}, "0.5 GPU", IN_LAB)["status"] == 200
            kernel_id = a_page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.id")
            server.kill_and_start_again()
            names = [kernel["name"] for kernel in _ask(server, "GET", "api/kernels")]
            assert names == ["python3.gpu-0.5"], "the next server knows it"
            _ask(server, "PATCH", f"aliquot/api/v1/kernels/{kernel_id}", {"gpus": 0.4})
            a_page.wait_for_function(_IS_CALLED, arg="python3.gpu-0.4")
            a_page.wait_for_function(_IS_IDLE)
            a_page.locator("#jp-main-statusbar").get_by_text(f"{PYTHON} · 0.4 GPU | Idle").wait_for()
        finally:
            server.end_kernels()


@pytest.mark.soak(alone="a long browser test")
def test_a_users_own_server_in_gateway_mode_tells_the_size_that_its_kernel_has_on_the_gateway(
    alices_lab: LabProcess, a_page: Page
) -> None:
    lab = LabPage(a_page).open(alices_lab.lab_url)
    path = _a_sized_notebook(alices_lab, lab)
    try:
        _resizes_everywhere(a_page, IN_LAB)
        _stays(lab, alices_lab, path)
    finally:
        alices_lab.end_kernels()


@pytest.mark.soak(alone="a long browser test")
def test_notebook_7_tells_one_size(a_notebook_server: NotebookProcess, a_page: Page) -> None:
    a_notebook_server.end_kernels()
    path = an_empty_notebook(a_notebook_server.notebooks, _a_name(), "python3.gpu-0.25")
    notebook = NotebookPage(a_page)
    notebook.open(a_notebook_server.notebook_url(path))
    notebook.wait_until_attached(path)
    try:
        _resizes_everywhere(a_page, IN_NOTEBOOK)
        _stays(notebook, a_notebook_server, path)
        assert notebook.errors == []
    finally:
        a_notebook_server.end_kernels()


def _ask(server: LabProcess, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"token {server.token}"}
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{server.url}{path}", data, headers, method=method)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


_IS_IDLE = """() => {
    const kernel = jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel;
    return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""


def _a_name() -> str:
    return f"one-size-{uuid.uuid4().hex[:8]}.ipynb"


def _a_sized_notebook(server: LabProcess, lab: LabPage) -> str:
    """Open a notebook at 0.25 GPU in Lab, next to the panel of running kernels; return its path."""
    path = an_empty_notebook(server.notebooks, _a_name(), "python3.gpu-0.25")
    lab.open_notebook(path, "python3.gpu-0.25")
    lab.finish_command("running:show-panel")
    lab.page.locator("#jp-running-sessions").get_by_text(f"{PYTHON} · 0.25 GPU").first.wait_for()
    return path


def _resizes_everywhere(page: Page, places: list[tuple[str, str]]) -> None:
    """Resize to three sizes, the last of which no server lists; each place shows them.

    The benchmark measures how soon.
    """
    for change, label in SIZES:
        told = resize(page, change, label, places)
        assert told["status"] == 200, told
        assert set(told["seconds"]) == {"answer", *(place for place, _ in places)}, told
    assert told["rest"] == ["python3.gpu-0.37-5g"] * 2, "Jupyter's kernels and sessions"


def _stays(lab: LabPage, server: LabProcess, path: str) -> None:
    """Check that a saved and reloaded notebook, and a restarted kernel, keep their names."""
    want = {"name": "python3.gpu-0.37-5g", "display_name": f"{PYTHON} · 0.37 GPU · 5 GiB", "language": "python"}
    # Lab writes the kernel's answer into the notebook: one that was saved before it is dirty after a reload.
    lab.page.wait_for_function(_HAS_LANGUAGE)
    lab.page.evaluate(_SAVE)
    assert json.loads((server.notebooks / path).read_text())["metadata"]["kernelspec"] == want
    lab.reload()
    lab.page.wait_for_function(_IS_IDLE)
    lab.page.locator(".jp-KernelName").get_by_text(want["display_name"]).wait_for()
    assert lab.page.evaluate(_IS_DIRTY) is False
    lab.page.evaluate(_SAVE)
    assert json.loads((server.notebooks / path).read_text())["metadata"]["kernelspec"] == want
    lab.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    lab.page.wait_for_function(_IS_IDLE)
    lab.page.wait_for_function(_IS_CALLED, arg=want["name"])
    lab.page.locator(".jp-KernelName").get_by_text(want["display_name"]).wait_for()
