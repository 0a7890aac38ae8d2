"""The offers of a waiting notebook: each way out, taken in a browser.

In Lab with the gateway inside, on a user's own server in gateway mode, and in Notebook 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.labextension.desk import Desk
    from tests.labextension.lab_page import LabPage, NotebookPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import NotebookProcess, an_empty_notebook
    from tests.labextension.status_script import StatusScript
else:
    from desk import Desk
    from lab_page import LabPage, NotebookPage
    from server_processes import an_empty_notebook
    from status_script import StatusScript

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

_KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.id ?? null"
_HAS_NO_KERNEL = "() => jupyterapp.shell.currentWidget.sessionContext.hasNoKernel"
_SELECT = "index => { jupyterapp.shell.currentWidget.content.activeCellIndex = index; }"
_IS_FOCUSED = "text => document.activeElement?.innerText === text"
_CELLS = ("kept = 40 + 2", "print('it is', kept)")
_OF_LAB_AND_GATEWAY = ["own_server", pytest.param("gateway_mode", marks=pytest.mark.soak(alone="a long browser test"))]


@pytest.fixture
def own_server(an_aliquot_lab: LabProcess, a_real_lab: LabPage) -> Desk:
    return Desk(a_real_lab, an_aliquot_lab.notebooks)


@pytest.fixture
def gateway_mode(alices_lab: LabProcess, alices_page: LabPage) -> Desk:
    return Desk(alices_page, alices_lab.notebooks)


@pytest.fixture(params=_OF_LAB_AND_GATEWAY)
def a_desk(request: pytest.FixtureRequest) -> Desk:
    desk: Desk = request.getfixturevalue(request.param)
    return desk


def _wait_for_gpu(desk: Desk, size: str) -> str:
    """Run two cells in a notebook whose kernel waits for this size; return its kernel's id."""
    path = desk.notebook(*_CELLS)
    desk.open(path, f"python3.gpu-{size}")
    kernel_id = str(desk.page.evaluate(_KERNEL))
    desk.run_all(path)
    desk.until_kept(kernel_id, len(_CELLS))
    return kernel_id


def _ways(page: Page | Locator) -> Locator:
    return page.get_by_role("group", name="Ways out of the wait")


def _press(page: Page, button: Locator) -> None:
    """Press a button with the keyboard alone."""
    button.focus()
    page.keyboard.press("Enter")


def _kernels(desk: Desk) -> dict[str, str]:
    return {kernel["id"]: kernel["name"] for kernel in desk.ask("api/kernels")}


def test_a_kernel_that_has_started_meanwhile_is_not_ended_by_a_way_out_of_its_wait(
    a_scripted_lab: LabPage, a_script: StatusScript, a_plain_lab: LabProcess
) -> None:
    page = a_scripted_lab.page
    desk = Desk(a_scripted_lab, a_plain_lab.notebooks)
    path = desk.notebook("input()")
    desk.open(path, "python3")
    kernel_id = page.evaluate(_KERNEL)
    # The page still shows a wait; the server's report of this kernel says that it runs.
    a_script.body["kernels"].append(a_script.a_kernel(id=kernel_id, label=path, state="queued", idle_since=None))
    a_script.tell(kernel_id=kernel_id, state="queued", was="starting")
    desk.run_all(path)
    _press(page, _ways(page).get_by_role("button", name="Cancel"))
    _ways(page).get_by_role("alert").get_by_text("has started in the meantime").wait_for()
    assert page.evaluate(_KERNEL) == kernel_id
    assert ("DELETE", "", None) not in a_script.asked


def test_a_smaller_size_that_starts_now_takes_over_the_waiting_cells(a_desk: Desk) -> None:
    page = a_desk.page
    neighbour = a_desk.start_kernel("python3.gpu-0.5")
    before = _wait_for_gpu(a_desk, "1")
    _press(page, _ways(page).get_by_role("button", name="Change to 0.5 GPU (starts now)"))
    a_desk.output("it is 42").wait_for()
    _ways(page).wait_for(state="detached")
    after = str(page.evaluate(_KERNEL))
    assert after != before
    assert _kernels(a_desk) == {neighbour: "python3.gpu-0.5", after: "python3.gpu-0.5"}
    assert a_desk.prompts().all_inner_texts() == ["[1]:", "[2]:"]


def test_a_kernel_without_gpu_takes_over_the_waiting_cells_in_the_order_of_their_run(a_desk: Desk) -> None:
    page = a_desk.page
    neighbour = a_desk.start_kernel("python3.gpu-1")
    a_desk.open(a_desk.notebook("print('it is', kept)", "kept = 40 + 2"), "python3.gpu-0.5")
    for count, index in enumerate((1, 0), 1):
        page.evaluate(_SELECT, index)
        a_desk.lab.start_command("notebook:run-cell")
        a_desk.until_kept(str(page.evaluate(_KERNEL)), count)
    _press(page, _ways(page).get_by_role("button", name="Run without GPU"))
    a_desk.output("it is 42").wait_for()
    assert _kernels(a_desk) == {neighbour: "python3.gpu-1", str(page.evaluate(_KERNEL)): "python3"}
    assert a_desk.prompts().all_inner_texts() == ["[2]:", "[1]:"]


def test_a_start_that_is_cancelled_leaves_the_queue_and_the_notebook_without_kernel(a_desk: Desk) -> None:
    page = a_desk.page
    neighbour = a_desk.start_kernel("python3.gpu-1")
    _wait_for_gpu(a_desk, "0.5")
    assert _ways(page).get_by_role("button", name="Change to").count() == 0  # no size starts now
    _press(page, _ways(page).get_by_role("button", name="Cancel"))
    page.wait_for_function(_HAS_NO_KERNEL)
    page.locator(".jp-KernelName").get_by_text("No Kernel").wait_for()
    _ways(page).wait_for(state="detached")
    page.wait_for_function("() => !document.querySelector('.jp-CodeCell .jp-InputPrompt').innerText.includes('*')")
    assert _kernels(a_desk) == {neighbour: "python3.gpu-1"}
    assert a_desk.ask("aliquot/api/v1/status")["queue"]["length"] == 0


def test_an_idle_kernel_of_the_users_own_that_is_shut_down_makes_room(a_desk: Desk) -> None:
    page = a_desk.page
    a_desk.start_kernel("python3.gpu-0.25")  # its end would free too little
    holder = a_desk.notebook("print('holds')")
    a_desk.open(holder, "python3.gpu-0.75")
    a_desk.run_all(holder)
    a_desk.output("holds").wait_for()
    waiting = _wait_for_gpu(a_desk, "0.5")
    own = _ways(page).get_by_role("list", name="Your idle kernels that hold a GPU").get_by_role("listitem")
    own.first.get_by_text(f"{holder} · 0.75 GPU").wait_for()
    _press(page, own.first.get_by_role("button", name=f"Shut Down… {holder}"))
    page.get_by_role("dialog").get_by_role("button", name="Shut Down").click()
    a_desk.output("it is 42").wait_for()
    assert str(page.evaluate(_KERNEL)) == waiting
    assert a_desk.prompts().all_inner_texts() == ["[1]:", "[2]:"]


def test_the_ways_out_are_in_the_window_of_the_toolbar_too_and_accessible(own_server: Desk) -> None:
    own_server.end_kernels()
    page = own_server.page
    own_server.start_kernel("python3.gpu-0.5")
    path = own_server.notebook("print('ran', 'here')")
    own_server.open(path, "python3.gpu-1")
    page.locator(".jp-NotebookPanel-toolbar .aliquot-KernelItem jp-button").focus()
    page.keyboard.press("Enter")
    window = page.get_by_role("dialog", name="GPU of")
    smaller = _ways(window).get_by_role("button", name="Change to 0.5 GPU (starts now)")
    smaller.wait_for()
    page.wait_for_function("() => document.activeElement.closest('.aliquot-Popover') !== null")
    page.keyboard.press("Tab")
    page.wait_for_function(_IS_FOCUSED, arg="Cancel")
    for theme in own_server.lab.in_both_themes():
        assert own_server.lab.violations(".aliquot-WaysOut") == [], theme
    page.keyboard.press("Escape")
    own_server.run_all(path)
    page.locator(".jp-CodeCell .aliquot-WaysOut").wait_for()
    for theme in own_server.lab.in_both_themes():
        assert own_server.lab.violations(".jp-CodeCell .aliquot-WaysOut") == [], theme
    own_server.end_kernels()
    assert own_server.lab.errors == []


def test_a_kernel_that_waits_for_its_memory_or_for_more_says_so_and_offers_to_swap_out_an_idle_one(
    a_scripted_lab: LabPage, a_script: StatusScript, a_plain_lab: LabProcess
) -> None:
    page = a_scripted_lab.page
    desk = Desk(a_scripted_lab, a_plain_lab.notebooks)
    path = desk.notebook("input()")
    desk.open(path, "python3")
    waits = {"reason": "others have their turn", "ahead": 0, "expected_seconds": 8.0}
    residency: dict[str, Any] = {**a_script.a_kernel()["residency"], "state": "swapped_out", "queued": waits}
    own = a_script.a_kernel(id=page.evaluate(_KERNEL), label=path, state="restoring", residency=residency)
    a_script.body["kernels"].append(own)
    a_script.tell(kernel_id=own["id"], state="restoring")
    desk.run_all(path)
    kernels = _ways(page).get_by_role("listitem")
    kernels.get_by_text("train.ipynb · 0.25 GPU").wait_for()
    assert _ways(page).get_by_role("button").all_inner_texts() == ["Swap Out Now"]
    _press(page, kernels.get_by_role("button", name="Swap Out Now train.ipynb"))
    page.wait_for_function("() => document.querySelector('.aliquot-WaysOut [aria-disabled]') === null")
    assert ("POST", "swap-out", None) in a_script.asked

    own.update(state="on_gpu", residency={**residency, "state": "on_gpu"})
    a_script.tell(kernel_id=own["id"], state="on_gpu", queued={**waits, "seconds": 2.0})
    badge = page.locator(".jp-CodeCell .aliquot-CellBadge")
    badge.get_by_text("waits for GPU memory, about 8 s").wait_for()
    page.locator(".jp-NotebookPanel-toolbar .aliquot-KernelItem").get_by_text("· queued for memory").wait_for()
    own.update(residency={**residency, "state": "on_gpu", "queued": None})
    a_script.tell(kernel_id=own["id"], kind="queued", state="on_gpu", queued=None)
    badge.wait_for(state="detached")
    assert _ways(page).count() == 0
    desk.end_kernels()


@pytest.mark.soak(alone="a long browser test")
def test_notebook_7_offers_the_ways_out(a_notebook_server: NotebookProcess, a_page: Page) -> None:
    a_notebook_server.end_kernels()
    path = an_empty_notebook(a_notebook_server.notebooks, "waits.ipynb", "python3.gpu-1", "print('it', 'ran')")
    notebook = NotebookPage(a_page)
    a_page.goto(a_notebook_server.tree_url)
    Desk(notebook, a_notebook_server.notebooks).start_kernel("python3.gpu-0.5")
    notebook.open(a_notebook_server.notebook_url(path))
    a_page.wait_for_function(f"() => {_KERNEL} !== null")
    notebook.start_command("notebook:run-all-cells")
    _press(a_page, _ways(a_page).get_by_role("button", name="Change to 0.5 GPU (starts now)"))
    a_page.locator(".jp-OutputArea-output", has_text="it ran").wait_for()
    a_page.locator(".aliquot-KernelItem").get_by_text("0.5 GPU · 0 / 8 GiB").wait_for()
    assert notebook.errors == []
