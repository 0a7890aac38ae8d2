"""Notifications that a page shows by itself.

Those of memory, with a click that does what it says, and those of widgets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from started import stopped

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import an_empty_notebook
    from tests.labextension.status_script import StatusScript
else:
    from lab_page import LabPage
    from server_processes import an_empty_notebook

pytestmark = pytest.mark.browser
GIB = 1 << 30
_DRY_RUN = {
    "suffix": "gpu-0.5",
    "gpus": 0.5,
    "requested_memory_bytes": None,
    "memory_limit_bytes": 8 * GIB,
    "priority": "normal",
    "outcome": "queued",
    "position": 1,
    "message": "queued, 1 ahead",
}
_SIZE = {"name": "python3.gpu-0.5", "base": "python3", "display_name": "Python 3", "gpus": 0.5, "description": ""}


@pytest.fixture
def asked(a_page: Page, a_script: StatusScript) -> list[tuple[str, Any]]:
    """The requests for sizes; the script's server has one, and lets kernels wait for it."""
    requests: list[tuple[str, Any]] = []
    size = {**_SIZE, "requested_memory_bytes": None, "priority": "normal", "image": None, "is_default": False}
    offer = {"may_use_normal_priority": True, "sizes": [size], "grammar": "", "largest_gpus": 1, "step": 0.01}

    def change(route: Route) -> None:
        requests.append((route.request.method, json.loads(route.request.post_data or "null")))
        resize = {"state": "queued", "gpus": 0.5, "reason": "waits for 4 GiB", "position": 1}
        route.fulfill(json={**a_script.a_kernel(), "resize": resize})

    a_page.route("**/aliquot/api/v1/sizes*", lambda route: route.fulfill(json=offer))
    a_page.route("**/aliquot/api/v1/dry-run*", lambda route: route.fulfill(json=_DRY_RUN))
    a_page.route("**/aliquot/api/v1/kernels/k-1?*", change)
    return requests


def test_memory_that_was_not_enough_is_told_with_a_size_that_is(
    a_plain_lab: LabProcess, a_script: StatusScript, asked: list[tuple[str, Any]], a_scripted_lab: LabPage
) -> None:
    page = a_scripted_lab.page
    toast = page.locator(".Toastify__toast")
    a_script.body["kernels"][0]["required_bytes"] = int(6.2 * GIB)
    a_scripted_lab.show_panel()
    short = toast.filter(has_text="train.ipynb ran out of its GPU memory: it has 4.0 GiB, and needed at least 6.2 GiB.")
    short.get_by_text("With 0.5 GPU: queued, 1 ahead").wait_for()
    short.get_by_role("button", name="Queue for 0.5 GPU").click()
    toast.get_by_text("train.ipynb is queued for 0.5 GPU: waits for 4 GiB").wait_for()
    assert asked == [("PATCH", {"gpus": 0.5, "memory": None, "priority": "normal"})]

    (a_plain_lab.notebooks / "big.ipynb").write_text(
        json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    ended = a_script.an_ended_kernel(
        "k-1", "big.ipynb", reason="memory_limit", message="a cell needed more than its limit"
    )
    a_script.body["kernels"] = [{**ended, "name": "python3.gpu-0.25", "required_bytes": int(6.2 * GIB)}]
    a_script.tell(kernel_id="k-1", state="ended")
    told = toast.filter(has_text="big.ipynb: a cell needed more than its limit. It needed at least 6.2 GiB.")
    with page.expect_request(lambda request: request.method == "POST" and "/api/sessions" in request.url) as started:
        told.get_by_role("button", name="Restart at 0.5 GPU").click()
    assert json.loads(started.value.post_data or "null")["kernel"]["name"] == "python3.gpu-0.5"


_REMEMBERS = "() => Object.keys(localStorage).some(key => key.includes(':told:'))"
_END_BY_TIME = "toast => toast.getAnimations({ subtree: true }).forEach(animation => animation.finish())"


def test_good_news_leaves_by_itself_and_when_its_notebook_is_opened(
    a_plain_lab: LabProcess, a_script: StatusScript, a_scripted_lab: LabPage
) -> None:
    page = a_scripted_lab.page
    path = an_empty_notebook(a_plain_lab.notebooks, "served.ipynb", "python3")
    waits = {"reason": "others have their turn", "seconds": 40.0, "ahead": 0, "expected_seconds": 8.0}
    residency = {**a_script.a_kernel()["residency"], "state": "swapped_out", "queued": waits}
    toast = page.locator(".Toastify__toast", has_text="served.ipynb has its GPU now.")
    # A wait counts as news after the page has read the settings: then it remembers earlier
    # notifications.
    page.wait_for_function(_REMEMBERS)
    panel = a_scripted_lab.show_panel()

    def serve() -> None:
        waking = {"state": "restoring", "reason": waits["reason"], "residency": residency}
        a_script.body["kernels"] = [a_script.a_kernel(label=path, **waking)]
        a_script.tell(kernel_id="k-1", label=path, state="restoring", queued=waits)
        panel.get_by_text("others have their turn").first.wait_for()
        a_script.body["kernels"] = [a_script.a_kernel(label=path)]
        a_script.tell(kernel_id="k-1", label=path, state="on_gpu")
        toast.wait_for()

    serve()
    toast.evaluate(_END_BY_TIME)  # as after its twenty seconds
    toast.wait_for(state="detached")
    serve()
    a_scripted_lab.start_command("docmanager:open", path=path)
    toast.wait_for(state="detached")


_SEND = """() => {
    const comm = jupyterapp.shell.currentWidget.sessionContext.session.kernel.createComm('a-widget');
    for (let sent = 0; sent < 80; sent += 1) {
        comm.send({ data: '#'.repeat(1 << 20) });
    }
}"""


@pytest.mark.soak(alone="a long browser test")
def test_a_widget_whose_kernel_does_not_read_is_told_of(an_aliquot_lab: LabProcess, a_page: Page) -> None:
    an_aliquot_lab.end_kernels()
    path = an_empty_notebook(
        an_aliquot_lab.notebooks, "stopped.ipynb", "python3", "import os; print('it is', os.getpid())"
    )
    lab = LabPage(a_page).open(an_aliquot_lab.lab_url)
    lab.open_notebook(path, "python3")
    lab.finish_command("notebook:run-all-cells")
    shown = a_page.locator(".jp-OutputArea-output", has_text="it is ")
    with stopped(int(shown.inner_text().split()[-1])):
        a_page.evaluate(_SEND)
        a_page.locator(".Toastify__toast", has_text="stopped.ipynb: what a widget sent was refused").wait_for()
    an_aliquot_lab.end_kernels()
