"""GPU kernels in Lab's panel of running terminals and kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.labextension.gpu_cells import hold
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import an_empty_notebook
else:
    from gpu_cells import hold
    from lab_page import LabPage
    from server_processes import an_empty_notebook

pytestmark = pytest.mark.browser


def test_the_running_panel_lists_gpu_kernels_moves_their_memory_and_shuts_them_down(
    an_aliquot_lab: LabProcess, a_real_lab: LabPage
) -> None:
    lab, a_page = a_real_lab, a_real_lab.page
    path = an_empty_notebook(an_aliquot_lab.notebooks, "runs.ipynb", "python3.gpu-0.25", hold(64))
    lab.open_notebook(path, "python3.gpu-0.25")
    lab.start_command("notebook:run-all-cells")
    a_page.locator(".jp-OutputArea-output", has_text="held!").wait_for()
    kernel_id = a_page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.id")
    # Without the notebook nothing on the page asks for figures: states come with events.
    a_page.evaluate("() => jupyterapp.shell.currentWidget.dispose()")
    lab.finish_command("running:show-panel")
    section = a_page.locator(".jp-RunningSessions-section").filter(
        has=a_page.locator('[title$="runs.ipynb · 0.25 GPU"]')
    )
    item = section.locator(f'[data-context="{kernel_id}"]')
    item.get_by_text("on GPU", exact=True).wait_for()
    with a_page.expect_request(lambda request: "/swap-out" in request.url):
        section.get_by_text("Swap out its memory").click()
    while not a_page.evaluate(_SWAP_OUT, kernel_id):
        a_page.wait_for_timeout(500)
    item.get_by_text("swapped out", exact=True).wait_for()
    section.get_by_text("Restore its memory").click()
    item.get_by_text("on GPU", exact=True).wait_for()
    item.hover()
    item.get_by_title("Shut Down").first.click()
    a_page.get_by_role("dialog").get_by_role("button", name="Shut Down", exact=True).click()
    item.wait_for(state="detached")
    assert [error for error in lab.errors if "409" not in error] == [], (
        "the browser logs a swap-out that came too early"
    )


def test_the_running_panel_says_why_the_server_refused(an_aliquot_lab: LabProcess, a_real_lab: LabPage) -> None:
    lab, a_page = a_real_lab, a_real_lab.page
    source = f"{hold(64)}\nimport time\ntime.sleep(600)"
    path = an_empty_notebook(an_aliquot_lab.notebooks, "busy.ipynb", "python3.gpu-0.25", source)
    lab.open_notebook(path, "python3.gpu-0.25")
    lab.start_command("notebook:run-all-cells")
    a_page.locator(".jp-OutputArea-output", has_text="held!").wait_for()
    kernel_id = a_page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.id")
    lab.finish_command("running:show-panel")
    section = a_page.locator(".jp-RunningSessions-section").filter(
        has=a_page.locator('[title$="busy.ipynb · 0.25 GPU"]')
    )
    with a_page.expect_response(lambda response: "/swap-out" in response.url) as answer:
        section.locator(f'[data-context="{kernel_id} swapOut"]').get_by_text("Swap out its memory").click()
    assert answer.value.status == 409
    a_page.locator(".Toastify__toast", has_text=answer.value.json()["message"][:100]).wait_for()

    # A kernel's owner may always end it: a server that answers no is one between two states.
    refusal = {"message": "Requested the end of a kernel, but the server is stopping. Try again in a minute"}
    a_page.route(
        re.compile("/api/(sessions|kernels)/"),
        lambda route: route.fulfill(status=503, json=refusal) if route.request.method == "DELETE" else route.fallback(),
    )
    item = section.locator(f'[data-context="{kernel_id}"]')
    item.hover()
    item.get_by_title("Shut Down").first.click()
    a_page.get_by_role("dialog").get_by_role("button", name="Shut Down", exact=True).click()
    a_page.locator(".Toastify__toast", has_text=refusal["message"]).wait_for()
    title = a_page.locator(".jp-AccordionPanel-title", has_text="GPU Kernels")
    title.locator(".jp-RunningSessions-shutdownAll").click()
    a_page.get_by_role("dialog").get_by_role("button", name="Shut Down All").click()
    a_page.locator(".Toastify__toast", has_text=f"Not shut down: 1 of 1 kernels. {refusal['message']}").wait_for()
    item.get_by_text("on GPU", exact=True).wait_for()
    a_page.unroute_all()


# A kernel that used its GPU just now is not swapped out yet, and one that uses it meanwhile stays.
_SWAP_OUT = """async kernelId => {
    const { baseUrl } = jupyterapp.serviceManager.serverSettings;
    const kernel = `${baseUrl}aliquot/api/v1/kernels/${kernelId}`;
    if ((await (await fetch(kernel)).json()).state === 'swapped_out') return true;
    const headers = { 'X-XSRFToken': document.cookie.match(/_xsrf=([^;]*)/)?.[1] ?? '' };
    await fetch(`${kernel}/swap-out`, { method: 'POST', headers });
    return false;
}"""
