"""Two users side by side, each with a JupyterLab and a browser, on one gateway with one GPU.

Each JupyterLab has `--gateway-url`. The tests cover each user's view of the other, and their
effects on each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.hub_pages import Person
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import GatewayWithPages, an_empty_notebook
else:
    from hub_pages import Person
    from lab_page import LabPage
    from server_processes import GatewayWithPages, an_empty_notebook

pytestmark = pytest.mark.browser

# Requests with the page's own login, as a script in it would: the answer's code, and its text.
_ASK = """([path, method]) => {
  const {baseUrl} = JSON.parse(document.getElementById('jupyter-config-data').textContent);
  const xsrf = document.cookie.match(/_xsrf=([^;]*)/)?.[1] ?? '';
  return fetch(baseUrl + path, {method, headers: {'X-XSRFToken': xsrf}})
    .then(answer => answer.text().then(text => [answer.status, text]));
}"""


@pytest.fixture(scope="module")
def a_shared_gateway() -> Iterator[GatewayWithPages]:
    """A gateway with pages for its administrator, who needs no server of her own.

    A user may have one kernel.
    """
    with GatewayWithPages(config="c.Limits.kernels_per_user = 1\n") as gateway:
        yield gateway


_KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel.id"
_IS_ANOTHER = """before => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.id;
  return kernel !== undefined && !before.includes(kernel);
}"""
_IS_ALONE = """async kernel => {
  const { baseUrl } = jupyterapp.serviceManager.serverSettings;
  const running = await (await fetch(`${baseUrl}api/kernels`)).json();
  return running.length === 1 && running[0].id === kernel;
}"""


def _ask(page: Page, path: str, method: str = "GET") -> tuple[int, str]:
    code, text = page.evaluate(_ASK, [path, method])
    return code, text


_SHARE = """
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
for gib in (2, 6):
    print(gib, "GiB:", driver.cuMemAlloc(gib << 30)[0].name)
"""


def _status(page: Page) -> dict[str, Any]:
    code, text = _ask(page, "aliquot/api/v1/status")
    assert code == 200, text
    answer: dict[str, Any] = json.loads(text)
    return answer


def test_each_sees_their_own_kernels_and_of_the_others_only_the_sum(
    labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    sizes = {"alice": "0.25", "bob": "0.5"}
    seen: dict[str, LabPage] = {}
    for (user, size), server in zip(sizes.items(), labs_of_two, strict=True):
        path = an_empty_notebook(server.notebooks, f"of-{user}.ipynb", f"python3.gpu-{size}")
        seen[user] = LabPage(pages()).open(server.lab_url)
        seen[user].open_notebook(path, f"python3.gpu-{size}")
        seen[user].show_panel()
    ids: dict[str, str] = {}
    for user, lab in seen.items():
        rows = lab.panel.get_by_role("list", name="GPU kernels").get_by_role("listitem")
        rows.filter(has_text=f"of-{user}.ipynb").first.wait_for()
        status = _status(lab.page)
        assert [kernel["owner"] for kernel in status["kernels"]] == [user]
        assert status["devices"][0]["reserved_gpus"] == 0.75
        ids[user] = status["kernels"][0]["id"]
    for user, stranger in (("alice", "bob"), ("bob", "alice")):
        page = seen[user].page
        assert f"of-{stranger}" not in page.content()
        assert ids[stranger] not in page.content()
        everything = "".join(_ask(page, path)[1] for path in ("aliquot/api/v1/status", "api/kernels", "api/sessions"))
        assert ids[stranger] not in everything
        assert f"of-{stranger}" not in everything
        for path in (f"api/kernels/{ids[stranger]}", f"aliquot/api/v1/kernels/{ids[stranger]}"):
            assert _ask(page, path)[0] == 404, path
        for path, method in ((f"api/kernels/{ids[stranger]}", "DELETE"), ("swap-out", "POST"), ("restore", "POST")):
            full = path if "/" in path else f"aliquot/api/v1/kernels/{ids[stranger]}/{path}"
            assert _ask(page, full, method)[0] == 404, full
    for user, lab in seen.items():
        assert [kernel["id"] for kernel in _status(lab.page)["kernels"]] == [ids[user]]
    for lab in seen.values():
        lab.finish_command("kernelmenu:shutdown")
        lab.panel.get_by_text("No kernel has a GPU").wait_for()


def test_a_cell_past_the_quota_is_told_and_one_that_waits_runs_when_another_kernel_ends(
    labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    alice, bob = (LabPage(pages()).open(server.lab_url) for server in labs_of_two)
    path = an_empty_notebook(labs_of_two[0].notebooks, "big.ipynb", "python3.gpu-0.75-7g", _SHARE)
    alice.open_notebook(path, "python3.gpu-0.75-7g")
    alice.show_panel()
    alice.start_command("notebook:run-all-cells")
    alice.page.locator(".jp-OutputArea-output", has_text="6 GiB: CUDA_ERROR_OUT_OF_MEMORY").wait_for()
    alice.panel.get_by_text("1 allocation refused").first.wait_for()
    alice.page.locator(".Toastify__toast", has_text="big.ipynb ran out of its GPU memory").wait_for()

    path = an_empty_notebook(labs_of_two[1].notebooks, "late.ipynb", "python3.gpu-0.5", "print('it', 'ran')")
    bob.start_command("docmanager:open", path=path, kernel={"name": "python3.gpu-0.5"})
    shown = bob.page.locator(".jp-NotebookPanel")
    shown.get_by_text("queued: next").first.wait_for()
    bob.start_command("notebook:run-all-cells")
    shown.locator(".jp-CodeCell").get_by_text("waits for a GPU").wait_for()
    assert shown.locator(".jp-OutputArea-output").count() == 0
    for theme in bob.in_both_themes():
        assert bob.violations(".jp-CodeCell .aliquot-CellBadge") == [], theme
    alice.finish_command("kernelmenu:shutdown")
    shown.locator(".jp-OutputArea-output", has_text="it ran").wait_for()
    shown.get_by_text("on GPU").first.wait_for()


def test_at_the_limit_of_kernels_a_notebook_gets_one_of_another_size_and_runs_on_it(
    labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    alice = Person(pages(), "alice")
    path = an_empty_notebook(labs_of_two[0].notebooks, "another.ipynb", "python3")
    alice.lab.open(labs_of_two[0].lab_url).open_notebook(path, "python3")
    dialog, outputs = alice.page.get_by_role("dialog"), alice.page.locator(".jp-OutputArea-output")
    ids = [alice.page.evaluate(_KERNEL)]
    for size, want_gpus in (("0.5 GPU, 8 GiB", 0.5), ("0.25 GPU, 4 GiB", 0.25)):
        alice.lab.start_command("notebook:change-kernel")
        dialog.get_by_role("combobox").select_option(label="Python 3 (ipykernel)")
        dialog.get_by_role("radio", name=size, exact=True).check()
        dialog.get_by_role("status").get_by_text("Starts at once").wait_for()  # this kernel ends first
        dialog.get_by_role("button", name="Select Kernel").click()
        dialog.wait_for(state="detached")
        alice.page.wait_for_function(_IS_ANOTHER, arg=ids)
        ids.append(alice.page.evaluate(_KERNEL))
        alice.wait_for_kernel(ids[-1])
        alice.run(f"print('in place', {want_gpus})")
        outputs.filter(has_text=f"in place {want_gpus}").wait_for()
        alice.page.wait_for_function(_IS_ALONE, arg=ids[-1])
        status = _status(alice.page)
        held = [(kernel["id"], kernel["gpus"]) for kernel in status["kernels"] if kernel["state"] != "ended"]
        assert held == [(ids[-1], want_gpus)]
        assert status["user"]["gpu_limit"]["held_gpus"] == want_gpus
    # A server in gateway mode speaks the old protocol alone: Lab tries the new one first, and the
    # browser logs it.
    assert [error for error in alice.lab.errors if "Sec-WebSocket-Protocol" not in error] == []
    alice.lab.finish_command("kernelmenu:shutdown")


@pytest.mark.soak(alone="a long browser test")
def test_a_kernel_of_the_gateways_own_pages_is_shared_used_and_then_only_seen(
    a_shared_gateway: GatewayWithPages, labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    """Users have no pages there: an administrator shares from the gateway with a server's owner."""
    ada, bob = (Person(pages(), name) for name in ("ada", "bob"))
    path = an_empty_notebook(a_shared_gateway.notebooks, "shown.ipynb", "python3.gpu-0.25")
    ada.lab.open(a_shared_gateway.lab_url).open_notebook(path, "python3.gpu-0.25")
    ada.lab.show_panel()
    bob.lab.open(labs_of_two[1].lab_url).show_panel()
    ada.run("answer = 40 + 2\nprint('it is', answer)")
    outputs = ".jp-MainAreaWidget:not(.lm-mod-hidden) .jp-OutputArea-output"
    ada.page.locator(outputs, has_text="it is 42").wait_for()
    ada.share("shown.ipynb", "bob", "write:")
    told = bob.page.locator(".Toastify__toast", has_text="you can run cells in it.")
    told.get_by_role("button", name="Open a notebook on it").click()
    bob.wait_for_kernel(ada.page.evaluate("jupyterapp.shell.currentWidget.sessionContext.session.kernel.id"))
    bob.run("print('bob sees', answer)")
    bob.page.locator(outputs, has_text="bob sees 42").wait_for()
    section = bob.lab.panel.get_by_role("region", name="Shared with me")
    section.get_by_text("of ada").wait_for()
    ada.share("shown.ipynb", "bob", "read:")
    section.get_by_text("read", exact=True).wait_for()
    bob.run("answer = 'of bob'")
    bob.page.locator(outputs, has_text="read-only").wait_for()
    ada.run("print('still', answer)")
    ada.page.locator(outputs, has_text="still 42").wait_for()
    ada.lab.finish_command("kernelmenu:shutdown")
    section.wait_for(state="detached")
