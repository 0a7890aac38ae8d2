"""The panel in a real JupyterLab and a real browser, before scripted answers: any state of a node can be shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.lab_page import LabPage, StatusScript
    from tests.labextension.lab_process import LabProcess
else:
    from lab_page import LabPage

pytestmark = pytest.mark.browser
GIB = 1 << 30

# The contrast of an element's text against the first background that is painted behind it, as WCAG counts it.
_CONTRAST = """element => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  let behind = element;
  while (behind && (rgb(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
  const below = rgb(getComputedStyle(behind).backgroundColor);
  const [r, g, b, alpha = 1] = rgb(getComputedStyle(element).color);
  const text = [r, g, b].map((v, i) => v * alpha + below[i] * (1 - alpha));
  const [high, low] = [light(text), light(below)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}"""


def _eventually(page: Page, claim: Callable[[], bool], what: str) -> None:
    """Waits until a claim about the test's own side holds; the browser's side has Playwright's waits."""
    for _ in range(200):
        if claim():
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never so within 10 s: {what}")


def test_panel_shows_devices_and_kernels(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    panel = a_scripted_lab.show_panel()
    device = panel.get_by_role("list", name="Devices").get_by_role("listitem")
    want_in_device = ["GPU 0", "Aliquot Software GPU", "3.1 of 16.0 GiB used", "12.0 GiB reserved", "4.0 GiB free"]
    for want in [*want_in_device, "37% busy", "41 °C"]:
        device.get_by_text(want).wait_for()
    kernel = panel.get_by_role("list", name="GPU kernels").get_by_role("listitem")
    for want in ["train.ipynb", "0.25 GPU", "1.0 of 4.0 GiB used, peak 2.5 GiB", "resident, idle"]:
        kernel.get_by_text(want).wait_for()
    panel.get_by_text("No kernel waits for room.").wait_for()
    assert panel.get_by_text(" W", exact=False).filter(has_text="null").count() == 0
    assert a_scripted_lab.errors == []


def test_a_kernel_says_where_its_memory_is(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    panel = a_scripted_lab.show_panel()
    kernel = a_script.body["kernels"][0]
    item = panel.get_by_role("list", name="GPU kernels").get_by_role("listitem")
    kernel["state"] = "swapped"
    kernel["residency"].update(state="swapped", swapped_bytes=3 << 30)
    kernel["guarantee_bytes"] = 2 << 30
    kernel["over_quota_bytes"] = 1 << 30
    for want in ["swapped, idle", "3.0 GiB in host memory", "2.0 GiB of its limit guaranteed", "over quota by 1.0 GiB"]:
        item.get_by_text(want).wait_for()
    kernel["state"] = "waking"
    kernel["reason"] = "waiting 2 s for GPU memory: others have their turn; 1 before it"
    size = {"gpus": 0.5, "memory_limit_bytes": None, "workload_class": "production", "since": "2026-01-01T00:00:00Z"}
    kernel["resize"] = {"state": "pending", "reason": "waiting to grow to 0.5 GPU", "position": 2, **size}
    for want in ["waking", "others have their turn", "resize waits: position 2", "waiting to grow to 0.5 GPU"]:
        item.get_by_text(want).first.wait_for()
    assert a_scripted_lab.errors == []


def test_bars_say_their_figures_to_screen_readers(a_scripted_lab: LabPage) -> None:
    panel = a_scripted_lab.show_panel()
    device = panel.get_by_role("meter", name="Memory of GPU 0")
    device.wait_for()
    want = "3.1 of 16.0 GiB used, 1.0 GiB of it by my kernels; 12.0 GiB reserved (0.75 of 1 GPU), 4.0 GiB free"
    assert device.get_attribute("aria-valuetext") == want
    assert panel.get_by_role("meter", name="Memory of train.ipynb").get_attribute("aria-valuenow") == str(GIB)


def test_software_gpu_names_its_limits_and_a_real_one_has_none(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    panel = a_scripted_lab.show_panel()
    notice = panel.get_by_text("Software GPU: compiled GPU code is timed, not executed")
    notice.wait_for()
    a_script.body["node"]["driver"] = "nvidia"
    notice.wait_for(state="detached")


def test_kernels_come_and_go_without_a_reload(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    panel = a_scripted_lab.show_panel()
    panel.get_by_text("train.ipynb").wait_for()
    waiting = a_script.a_kernel(
        id="k-2", label="", state="pending", queue_position=2, gpus=2.5, reason="0.25 GPU is free now", devices=[]
    )
    a_script.body["kernels"].append(waiting)
    a_script.body["queue"]["length"] = 2
    for want in ["python3.gpu-0.25", "2.5 GPUs", "waiting: position 2", "0.25 GPU is free now"]:
        panel.get_by_text(want, exact=True).wait_for()
    panel.get_by_text("2 kernels wait for room.").wait_for()
    a_script.body["kernels"] = []
    panel.get_by_text("No kernel holds a part of a GPU.").wait_for()
    assert a_scripted_lab.errors == []


def test_absent_agent_says_what_to_do_and_the_panel_recovers(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    panel = a_scripted_lab.show_panel()
    panel.get_by_text("train.ipynb").wait_for()
    want = "Nobody answers at /run/aliquot/agent.sock. Start the node agent: aliquot agent"
    a_script.body = {**a_script.example(), "devices": [], "kernels": []}
    a_script.body["node"].update(agent="unavailable", driver=None, message=want)
    panel.get_by_role("alert").get_by_text(want).wait_for()
    a_script.body = a_script.example()
    panel.get_by_text("train.ipynb").wait_for()
    assert panel.get_by_role("alert").count() == 0
    assert a_scripted_lab.errors == []


def test_failing_server_keeps_the_last_figures_and_says_why(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    panel = a_scripted_lab.show_panel()
    panel.get_by_text("train.ipynb").wait_for()
    a_script.code, a_script.body = 503, {"message": "The ledger is being rebuilt", "reason": None}
    panel.get_by_role("alert").get_by_text("The ledger is being rebuilt").wait_for()
    assert panel.get_by_text("train.ipynb").is_visible()


def test_answer_of_another_version_is_refused_in_words(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    a_script.body = {"kernels": [1, 2], "devices": None}
    panel = a_scripted_lab.show_panel()
    panel.get_by_role("alert").get_by_text("the server and this extension differ in version").wait_for()
    assert a_scripted_lab.errors == []


def test_server_without_aliquot_is_told_apart(an_unscripted_lab: LabPage) -> None:
    panel = an_unscripted_lab.show_panel()
    panel.get_by_role("alert").get_by_text("This Jupyter server does not run Aliquot").wait_for()


def test_label_is_text_and_never_markup(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    want = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'
    evil = {"label": want, "owner": want, "reason": want, "name": want, "interception": f"failed: {want}"}
    a_script.body["kernels"] = [a_script.a_kernel(**evil)]
    a_script.body["devices"][0]["name"] = want
    a_script.body["node"].update(agent="unavailable", message=want)
    panel = a_scripted_lab.show_panel()
    panel.get_by_role("list", name="GPU kernels").get_by_text(want, exact=True).first.wait_for()
    assert panel.locator("img, script").count() == 0
    assert a_scripted_lab.page.evaluate("window.broken") is None
    assert a_scripted_lab.errors == []


def test_lost_device_and_failed_interception_are_said(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    a_script.body["devices"][0]["lost"] = True
    a_script.body["kernels"] = [a_script.a_kernel(interception="failed: libcuda.so.1 was loaded first", refusals=2)]
    panel = a_scripted_lab.show_panel()
    panel.get_by_role("list", name="Devices").get_by_text("lost", exact=True).wait_for()
    want = "The memory limit does not hold in this kernel: libcuda.so.1 was loaded first"
    panel.get_by_role("alert").get_by_text(want).wait_for()
    panel.get_by_text("2 allocations refused").wait_for()


def test_processes_past_the_limit_are_said(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    escaped = {"pid": 77, "name": "python3", "index": 0, "used_bytes": 3 * GIB, "charged_bytes": GIB, "why": "past"}
    host = {"quota_bytes": 2 * GIB, "used_bytes": GIB, "peak_bytes": GIB, "refusals": 0}
    a_script.body["node"].update(enforcer="driver", foreign_processes=2)
    a_script.body["kernels"] = [
        a_script.a_kernel(unhooked_processes=[escaped], host_memory=host, enforcement="failed: only root may")
    ]
    panel = a_scripted_lab.show_panel()
    want = "Process 77 (python3) holds memory of GPU 0 past the memory limit: 2.0 GiB"
    panel.get_by_role("alert").get_by_text(want).wait_for()
    panel.get_by_role("alert").get_by_text("The limits of this kernel are not set: only root may").wait_for()
    panel.get_by_text("2 processes on the GPUs belong to no kernel").wait_for()
    panel.get_by_text("host memory locked: 1.0 of 2.0 GiB").wait_for()
    panel.get_by_text("beside its limit, for contexts: 512.0 MiB").wait_for()
    panel.get_by_text("Limits kept by: driver").wait_for()


def test_gpu_time_is_said_with_what_holds_it_back(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    control = {"controller": "weighted", "sharing": "time slices", "target_percent": 2.0, "contended": True}
    a_script.body["devices"][0]["compute_control"] = control
    a_script.body["kernels"][0]["devices"][0]["compute"] = {
        **{"share_entitled": 0.25, "share_used": 0.12, "own_seconds": 4.0, "stretch": 1.031, "throttled_seconds": 3.25},
        **{"bound_seconds": 0.002, "pace": "paced", "held_back": "production is active", "unholdable": False},
        "is_capped": True,
    }
    panel = a_scripted_lab.show_panel()
    panel.get_by_text("12% of GPU time, entitled to 25%").wait_for()
    meter = panel.get_by_role("meter", name="GPU time of train.ipynb")
    assert meter.get_attribute("aria-valuetext") == "12% of GPU time, entitled to 25%"
    for want in ("stretch 1.03×", "throttled 3.3 s", "capped at its share", "delays production by 2.0 ms at most"):
        panel.get_by_text(want).wait_for()
    panel.get_by_text("Held back: production is active").wait_for()
    panel.get_by_text("time divided by: weighted, time slices").wait_for()


def test_administrator_sees_owners(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    a_script.body["user"] |= {"name": "root", "role": "admin"}
    panel = a_scripted_lab.show_panel()
    panel.get_by_role("list", name="GPU kernels").get_by_text("ada", exact=True).wait_for()
    assert panel.get_by_role("button", name="Open models/train.ipynb").count() == 0


def test_palette_shows_the_panel_and_the_keyboard_opens_the_notebook(
    a_scripted_lab: LabPage, a_plain_lab: LabProcess, a_script: StatusScript
) -> None:
    (a_plain_lab.notebooks / "by-keyboard.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    a_script.body["kernels"][0]["label"] = "by-keyboard.ipynb"
    a_scripted_lab.run_command("Show GPU Kernels")
    link = a_scripted_lab.panel.get_by_role("button", name="Open by-keyboard.ipynb")
    link.wait_for()
    a_scripted_lab.panel.locator(".jp-AccordionPanel-title", has_text="Kernels").focus()
    a_scripted_lab.page.keyboard.press("Tab")  # into the section, which scrolls by keyboard
    a_scripted_lab.page.keyboard.press("Tab")
    assert link.evaluate("element => element === document.activeElement")
    a_scripted_lab.page.keyboard.press("Enter")
    a_scripted_lab.page.locator("#jp-main-dock-panel").get_by_role("tab", name="by-keyboard.ipynb").wait_for()


def test_place_of_the_panel_survives_a_reload(a_scripted_lab: LabPage) -> None:
    page = a_scripted_lab.page
    a_scripted_lab.show_panel().get_by_text("train.ipynb").wait_for()
    with page.expect_response(lambda r: "/api/workspaces/" in r.url and r.request.method == "PUT"):
        a_scripted_lab.start_command("application:toggle-right-area")
    a_scripted_lab.reload()
    a_scripted_lab.panel.get_by_text("train.ipynb").wait_for()


def test_hidden_panel_asks_rarely(a_plain_lab: LabProcess, a_page: Page, a_script: StatusScript) -> None:
    a_page.clock.install()
    lab = LabPage(a_page).open(a_plain_lab.lab_url)
    lab.show_panel().get_by_text("train.ipynb").wait_for()
    before = a_script.requests
    _eventually(a_page, lambda: a_script.requests >= before + 3, "the shown panel asks again and again")
    lab.tab.click()
    lab.panel.wait_for(state="hidden")
    a_page.wait_for_load_state("networkidle")
    before = a_script.requests
    for _ in range(12):
        a_page.clock.fast_forward(5_000)
        a_page.wait_for_timeout(100)  # the browser's answers are given meanwhile
    assert before < a_script.requests <= before + 5, "for news of kernels, about every quarter of a minute"
    before = a_script.requests
    lab.show_panel()
    _eventually(a_page, lambda: a_script.requests > before, "the panel asks again when it is shown again")


def test_ended_kernels_say_why_and_are_put_away_for_good(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    panel = a_scripted_lab.show_panel()
    panel.get_by_text("train.ipynb").wait_for()
    message = "the kernel used 4.1 GiB of 4 GiB host memory, and was ended for it"
    a_script.body["kernels"] += [
        a_script.an_ended_kernel("k-8", "models/big.ipynb", code="oom", message=message),
        a_script.an_ended_kernel("k-9", "old.ipynb"),
    ]
    ended = panel.get_by_role("list", name="Ended kernels").get_by_role("listitem")
    ended.filter(has_text="big.ipynb").get_by_text(message).wait_for()
    ended.filter(has_text="old.ipynb").get_by_text("the kernel was ended after 60 min idle").wait_for()
    assert panel.get_by_role("list", name="GPU kernels").get_by_role("listitem").count() == 1
    panel.get_by_role("button", name="Put old.ipynb away").click()
    ended.filter(has_text="old.ipynb").wait_for(state="detached")
    a_scripted_lab.reload()
    ended.filter(has_text="big.ipynb").wait_for()
    assert ended.filter(has_text="old.ipynb").count() == 0
    assert a_scripted_lab.errors == []


def test_a_kernel_that_ended_is_told_once_without_the_panel(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    page = a_scripted_lab.page
    _eventually(page, lambda: a_script.requests > 0, "what is there is seen first")
    a_script.body["kernels"] += [
        a_script.an_ended_kernel("k-9", "night.ipynb"),
        a_script.an_ended_kernel("k-8", "mine.ipynb", code="user", by="ada"),
    ]
    _eventually(page, lambda: a_script.streams != [], "the page hears of changes")
    a_script.tell(kernel_id="k-9", state="ended")
    toast = page.locator(".Toastify__toast")
    toast.get_by_text("night.ipynb: the kernel was ended after 60 min idle").wait_for()
    assert toast.filter(has_text="mine.ipynb").count() == 0
    toast.get_by_role("button", name="Show GPU kernels").click()
    a_scripted_lab.panel.get_by_role("list", name="Ended kernels").get_by_text("night.ipynb").wait_for()
    before = a_script.requests
    a_scripted_lab.reload()
    # Whether the panel is open again is Lab's matter; the first answer is all that news are told from.
    _eventually(page, lambda: a_script.requests > before, "the page asks again")
    page.wait_for_load_state("networkidle")
    assert toast.filter(has_text="night.ipynb").count() == 0


def test_an_announced_end_is_told_and_taken_back_by_a_click(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    page = a_scripted_lab.page
    soon = {"at": "2026-01-02T03:04:05.000Z", "reason": "kernels that are idle for 60 min are ended", "can_keep": True}
    crash = a_script.an_ending(code="crash", message="the kernel was ended by signal 11")
    a_script.body["kernels"] = [a_script.a_kernel(gpus=0, label="plain.ipynb", ending_soon=soon, last_crash=crash)]
    panel = a_scripted_lab.show_panel()
    item = panel.get_by_role("list", name="GPU kernels").get_by_role("listitem")
    item.get_by_text("kernels that are idle for 60 min are ended").wait_for()
    item.get_by_text("the kernel was ended by signal 11").wait_for()
    item.get_by_text("no GPU").wait_for()
    toast = page.locator(".Toastify__toast", has_text="plain.ipynb will be ended at")
    toast.get_by_role("button", name="Keep it").click()
    _eventually(page, lambda: a_script.kept == ["k-1"], "the server is asked to keep it")
    a_script.keep_code = 409
    item.get_by_role("button", name="Keep it").click()
    page.locator(".Toastify__toast", has_text="It is ended for its age").wait_for()
    a_script.body["kernels"] = [a_script.a_kernel()]
    item.get_by_text("train.ipynb").wait_for()
    assert item.get_by_role("button", name="Keep it").count() == 0


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_is_readable_in_both_themes(a_scripted_lab: LabPage, a_script: StatusScript, theme: str) -> None:
    page = a_scripted_lab.page
    panel = a_scripted_lab.show_panel()
    a_script.body["kernels"][0]["interception"] = "failed: told so"
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    panel.get_by_text("told so").wait_for()
    for text in ["train.ipynb", "resident, idle", "0.25 GPU", "told so", "3.1 of 16.0", "Software GPU: compiled"]:
        contrast = panel.get_by_text(text).first.evaluate(_CONTRAST)
        assert contrast >= 4.5, f"{text!r} has a contrast of {contrast:.1f} in {theme}"
    assert a_scripted_lab.errors == []
