"""The administrator's view in Lab: two users' kernels on a real gateway, and thousands scripted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.labextension.admin_script import COMMAND, AdminScript, a_holder, open_view
    from tests.labextension.gpu_cells import hold
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import GatewayWithPages, an_empty_notebook
else:
    from admin_script import COMMAND, AdminScript, a_holder, open_view
    from gpu_cells import hold
    from lab_page import LabPage
    from server_processes import GatewayWithPages, an_empty_notebook

pytestmark = pytest.mark.browser

_CONTRACT = Path(__file__).resolve().parents[2] / "gateway" / "api" / "openapi.yaml"
_KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel.id"
_MANY = 10_000
_FEW = 200  # more than are in sight
_TABS = ("Kernels", "Most Idle", "Users and Teams", "Queue (1)", "Nodes and GPUs")


@pytest.fixture(scope="module")
def a_shared_gateway() -> Iterator[GatewayWithPages]:
    """A gateway with pages for its administrator."""
    with GatewayWithPages() as gateway:
        yield gateway


def start_notebook(lab: LabPage, server: LabProcess, name: str) -> None:
    path = an_empty_notebook(server.notebooks, name, "python3.gpu-0.25")
    lab.open_notebook(path, "python3.gpu-0.25")


def row_of(shown: Locator, owner: str) -> Locator:
    """Return the row of a user's kernel: the gateway does not know the notebooks of users' own servers."""
    return shown.get_by_role("grid", name="Kernels").get_by_role("row").filter(has_text=owner)


def act(shown: Locator, owner: str, button: str) -> Locator:
    """Choose an action on a user's kernel; return the dialog that asks for confirmation."""
    row_of(shown, owner).click()
    dialog = shown.get_by_role("dialog")
    dialog.get_by_role("button", name=f"{button}…").click()
    return dialog


def write_by_keyboard(shown: Locator, owner: str, text: str) -> None:
    """Write to an owner with the keyboard alone: the row, its dialog, the message."""
    row_of(shown, owner).focus()
    keyboard = shown.page.keyboard
    keyboard.press("Enter")
    dialog = shown.get_by_role("dialog")
    for _ in range(2):  # Swap Out, Resize, Message
        keyboard.press("Tab")
    keyboard.press("Enter")
    dialog.get_by_label("Message").wait_for()
    keyboard.type(text)
    keyboard.press("Enter")
    dialog.wait_for(state="detached")


def test_an_administrator_sees_the_kernels_of_two_users_writes_to_one_and_ends_the_other(
    a_shared_gateway: GatewayWithPages, labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    alice, bob = (LabPage(pages()).open(server.lab_url) for server in labs_of_two)
    for lab, server, name in zip((alice, bob), labs_of_two, ("of-alice.ipynb", "of-bob.ipynb"), strict=True):
        start_notebook(lab, server, name)
        lab.show_panel()
        lab.panel.get_by_text(name).first.wait_for()  # the status has come, and with it the role
        assert lab.page.evaluate(f"jupyterapp.commands.isVisible('{COMMAND}')") is False
    ada = LabPage(pages()).open(a_shared_gateway.lab_url)
    shown = open_view(ada)
    for owner in ("alice", "bob"):
        row_of(shown, owner).locator('[data-column="ram"]', has_text="iB").wait_for()
    write_by_keyboard(shown, "alice", "Please end it by six.")
    shown.get_by_text("was sent to alice.").wait_for()
    alice.page.locator(".Toastify__toast", has_text="ada about of-alice.ipynb: Please end it by six.").wait_for()
    alice.panel.get_by_text("Please end it by six.").wait_for()
    assert bob.page.get_by_text("Please end it by six.").count() == 0
    # The server's refusal leaves the dialog open.
    dialog = act(shown, "alice", "Resize")
    dialog.get_by_label("GPUs").fill("7")
    dialog.get_by_role("button", name="Resize", exact=True).click()
    dialog.get_by_role("alert").wait_for()
    dialog.get_by_label("GPUs").fill("0.5")
    dialog.get_by_role("button", name="Resize", exact=True).click()
    row_of(shown, "alice").locator('[data-column="gpus"]', has_text="0.5").wait_for()
    # An end needs a second step, and Escape leaves everything as it is.
    act(shown, "bob", "End").get_by_text("All variables will be lost").wait_for()
    ada.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    act(shown, "bob", "End").get_by_role("button", name="End Kernel").click()
    row_of(shown, "bob").wait_for(state="detached")
    bob.panel.get_by_text("No kernel has a GPU").wait_for()
    row_of(shown, "alice").wait_for()
    assert [error for error in ada.errors if "409" not in error] == [], "the browser logs the refusal of the resize"


@pytest.mark.soak(alone="a long browser test")
def test_an_administrator_swaps_a_users_kernel_out_and_restores_it(
    a_shared_gateway: GatewayWithPages, labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    alice = LabPage(pages()).open(labs_of_two[0].lab_url)
    path = an_empty_notebook(labs_of_two[0].notebooks, "holds.ipynb", "python3.gpu-0.25", hold(64))
    alice.open_notebook(path, "python3.gpu-0.25")
    alice.start_command("notebook:run-all-cells")
    alice.page.locator(".jp-OutputArea-output", has_text="held!").wait_for()
    alice.show_panel().get_by_text("on GPU, idle since").wait_for()  # a busy kernel is not swapped out
    ada = LabPage(pages()).open(a_shared_gateway.lab_url)
    shown = open_view(ada)
    shown.get_by_label("Find").fill(alice.page.evaluate(_KERNEL))  # a kernel of another test may be there
    state = shown.locator('[data-row="0"] [data-column="state"]')
    for button, want in (("Swap Out", "swapped out"), ("Restore", "on GPU")):
        act(shown, "alice", button).get_by_role("button", name=button, exact=True).click()
        state.get_by_text(want).wait_for()
    assert ada.errors == []


@pytest.fixture
def a_script(a_shared_page: LabPage, request: pytest.FixtureRequest) -> Iterator[AdminScript]:
    """The reports of some kernels; a test that needs more says how many."""
    count = getattr(request, "param", _FEW)
    with AdminScript([a_holder(place) for place in range(count)]).served(a_shared_page.page) as script:
        yield script


@pytest.fixture
def scripted(a_shared_page: LabPage, a_script: AdminScript) -> tuple[LabPage, Locator]:
    """Lab, and the view over the script's kernels, opened anew."""
    a_shared_page.clear()
    shown = open_view(a_shared_page)
    count = len(a_script.holders["kernels"])
    shown.get_by_text(f"{count} of {count} kernels").wait_for()
    return a_shared_page, shown


def test_scripted_reports_are_answers_of_the_contract() -> None:
    contract: dict[str, Any] = yaml.safe_load(_CONTRACT.read_text())
    small = AdminScript([a_holder(1)])
    for name, body in (("Holders", small.holders), ("Queue", small.queue), ("Quota", small.quota)):
        validator = jsonschema.Draft202012Validator({**contract, "$ref": f"#/components/schemas/{name}"})
        assert [error.message for error in validator.iter_errors(body)] == [], name


@pytest.mark.parametrize("a_script", [_MANY], indirect=True, ids=["many"])
def test_of_ten_thousand_kernels_those_in_sight_are_in_the_page_and_the_keyboard_reaches_each(
    scripted: tuple[LabPage, Locator],
) -> None:
    lab, shown = scripted
    grid = shown.get_by_role("grid", name="Kernels")
    assert grid.get_attribute("aria-rowcount") == str(_MANY + 1)
    first = grid.locator('[data-row="0"]')
    first.get_by_text("notebook-09999").wait_for()  # the most idle one
    first.focus()
    for key, want in (("End", _MANY - 1), ("ArrowUp", _MANY - 2), ("Home", 0), ("ArrowDown", 1), ("ArrowDown", 2)):
        lab.page.keyboard.press(key)
        focused = shown.locator(f'[data-row="{want}"]:focus')
        focused.wait_for()
        assert focused.is_visible()
        assert 0 < grid.locator("[data-row]").count() < 120, key
    grid.evaluate("grid => { grid.scrollTop = 5000 * 28; }")
    grid.locator('[data-row="5000"]').wait_for()
    assert grid.locator("[data-row]").count() < 120
    assert grid.locator('[data-row][tabindex="0"]').count() == 1, "Tab reaches a row that is in sight"
    grid.get_by_role("button", name="Owner").click()
    grid.locator('[data-row="5000"]').get_by_text("user-100").wait_for()
    shown.get_by_label("Find").fill("notebook-00042")
    shown.get_by_text("1 of 10000 kernels").wait_for()
    assert grid.locator("[data-row]").count() == 1
    shown.get_by_label("Find").fill("no such kernel")
    shown.get_by_text("No kernel has this text.").wait_for()
    assert lab.errors == []


def test_each_tab_shows_its_reports_and_is_clean_for_axe_in_both_themes(scripted: tuple[LabPage, Locator]) -> None:
    lab, shown = scripted
    tabs = shown.get_by_role("tab")
    assert tabs.all_inner_texts() == list(_TABS)
    wanted = {
        "Kernels": "work/notebook-00199.ipynb",
        "Most Idle": "Act on work/notebook-00199.ipynb…",
        "Users and Teams": "teams.rest.user is no known key",
        "Queue (1)": "Needs 0.5 GPU; none is free.",
        "Nodes and GPUs": "lost: reset it, or restart the machine",
    }
    for theme in lab.in_both_themes():
        tabs.first.focus()
        for name, text in wanted.items():
            shown.get_by_role("tabpanel", name=name).get_by_text(text).first.wait_for()
            assert lab.violations('[aria-label="GPU administration"]') == [], (theme, name)
            shown.get_by_role("tab", name=name).focus()
            lab.page.keyboard.press("ArrowRight")
        assert tabs.first.get_attribute("aria-selected") == "true", "the arrow goes from the last tab to the first"
        shown.get_by_role("grid").locator('[data-row="0"]').click()
        dialog = shown.get_by_role("dialog")
        for name in ("Swap Out…", "Resize…", "Message Owner…", "End…"):
            dialog.get_by_role("button", name=name).click()
            assert lab.violations(".aliquot-Admin-dialog") == [], (theme, name)
            dialog.get_by_role("button", name="Back").click()
        lab.page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
    assert lab.errors == []


def test_gpus_whose_kernels_slow_each_other_come_first_with_the_error_bar(scripted: tuple[LabPage, Locator]) -> None:
    _, shown = scripted
    shown.get_by_role("tab", name="Nodes and GPUs").click()
    rows = shown.get_by_role("table", name="GPUs").locator("tbody tr")
    rows.nth(3).wait_for()
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["3", "2", "0", "1"]
    speeds = [row.split("\t")[8] for row in rows.all_inner_texts()]
    assert speeds[:2] == ["81 % of its speed alone (61 to 100 %)", "94 % of its speed alone (84 to 100 %)"]
    assert speeds[2:] == ["–", "–"], "of fewer than two measured kernels nothing is told"


def test_the_errors_of_the_quota_file_have_a_line_each(a_shared_page: LabPage, a_script: AdminScript) -> None:
    head = "The last good quota file is in force, for the present one has errors:"
    a_script.quota = {**a_script.quota, "problem": "teams.yaml:3: no team\nteams.yaml:7: no key"}
    told = f"{head}\n{a_script.quota['problem']}"
    a_script.holders["node"] = {**a_script.holders["node"], "message": told}
    a_shared_page.clear()
    shown = open_view(a_shared_page)
    shown.get_by_role("tab", name="Users and Teams").click()
    assert shown.get_by_role("alert").filter(has_text="teams.yaml:7").inner_text() == told
    shown.get_by_role("tab", name="Nodes and GPUs").click()
    health = shown.get_by_role("table", name="Nodes").get_by_role("cell").filter(has_text="teams.yaml:7")
    assert health.inner_text() == told


def test_a_request_of_an_older_gateway_has_no_expected_start(a_shared_page: LabPage, a_script: AdminScript) -> None:
    [request] = a_script.queue["requests"]
    older = {key: value for key, value in request.items() if key != "predicted_start"}
    a_script.queue = {"length": 1, "requests": [older]}
    a_shared_page.clear()
    shown = open_view(a_shared_page)
    shown.get_by_role("tab", name="Queue (1)").click()
    row = shown.get_by_role("table", name="Queue").get_by_role("row").filter(has_text="late.ipynb")
    assert row.get_by_role("cell").nth(7).inner_text() == "–"
    assert a_shared_page.errors == []


def test_in_forced_colors_the_chosen_tab_and_the_focus_differ(scripted: tuple[LabPage, Locator]) -> None:
    lab, shown = scripted
    lab.page.emulate_media(forced_colors="active")
    chosen, other = shown.get_by_role("tab").first, shown.get_by_role("tab").nth(1)
    width = "element => getComputedStyle(element).borderBottomWidth"
    assert chosen.evaluate(width) != other.evaluate(width)
    shown.get_by_role("grid").locator('[data-row="0"]').focus()
    outline = "element => [getComputedStyle(element).outlineStyle, getComputedStyle(element).outlineWidth]"
    assert shown.locator('[data-row="0"]').evaluate(outline) == ["solid", "2px"]
    assert lab.violations('[aria-label="GPU administration"]') == []
    lab.page.emulate_media(forced_colors="null")


def test_a_failure_is_told_beside_the_last_reports_and_ends_by_itself(
    scripted: tuple[LabPage, Locator], a_script: AdminScript
) -> None:
    lab, shown = scripted
    a_script.refusal = (500, "the gateway is out of breath")
    shown.get_by_role("alert").get_by_text("Not up to date: the gateway is out of breath").wait_for()
    shown.get_by_role("grid").locator('[data-row="0"]').wait_for()
    a_script.refusal = None
    shown.get_by_role("alert").wait_for(state="detached")
    asked = a_script.requests
    lab.finish_command("aliquot:show-history")  # another tab in front: no more requests
    lab.page.evaluate("new Promise(resolve => setTimeout(resolve, 0))")
    asked = a_script.requests
    lab.finish_command(COMMAND)
    shown.get_by_role("grid").wait_for()
    assert a_script.requests > asked
