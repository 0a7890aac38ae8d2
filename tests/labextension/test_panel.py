"""The sidebar's view of any state of a node, in a real JupyterLab and browser.

The status answers are scripted.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.labextension.accessibility import colors
    from tests.labextension.conftest import ScriptedPanel
    from tests.labextension.lab_page import LabPage
else:
    from accessibility import colors

pytestmark = pytest.mark.browser
GIB = 1 << 30


def _devices(panel: ScriptedPanel) -> Locator:
    return panel.shown.get_by_role("list", name="Devices").get_by_role("listitem")


def _kernels(panel: ScriptedPanel) -> Locator:
    return panel.shown.get_by_role("list", name="GPU kernels", exact=True).get_by_role("listitem")


def _part(panel: ScriptedPanel, meter: str, kind: str) -> float:
    """Return a part's fraction of a bar, from 0 to 1."""
    bar = panel.shown.get_by_role("meter", name=meter)
    width = bar.locator(f".aliquot-mod-{kind}").evaluate("part => part.style.width")
    return float(width.removesuffix("%")) / 100


def test_devices_and_kernels_are_told_in_words(a_panel: ScriptedPanel) -> None:
    for want in ["GPU 0", "Aliquot Software GPU", "3.1 of 16.0 GiB used", "37% busy", "41 °C"]:
        _devices(a_panel).get_by_text(want).wait_for()
    for want in ["1.5 GiB by your kernels", "12.0 GiB reserved (0.75 of 1 GPU)", "3.5 GiB free"]:
        _devices(a_panel).get_by_text(want).wait_for()
    for want in ["train.ipynb", "0.25 GPU", "1.0 of 4.0 GiB used", "on GPU, idle since"]:
        _kernels(a_panel).get_by_text(want).wait_for()
    assert a_panel.shown.get_by_text("null").count() == 0
    assert a_panel.shown.get_by_text(re.compile("kernels? (is|are) queued")).count() == 0, "an empty queue is not told"
    assert a_panel.shown.get_by_text("Your GPU limit").count() == 0, "no limit is told where there is none"


def test_a_bar_divides_a_device_by_who_holds_what(a_panel: ScriptedPanel) -> None:
    device = a_panel.script.body["devices"][0]
    device.update(used_bytes=8 * GIB, mine_bytes=3 * GIB, mine_swapped_bytes=2 * GIB, swapped_bytes=3 * GIB)
    device.update(mine_reserved_bytes=4 * GIB, reserved_bytes=10 * GIB, burstable_bytes=2 * GIB)
    mine = a_panel.script.body["kernels"][0]
    mine["devices"][0].update(context_bytes=0)
    a_panel.shown.get_by_text("8.0 of 16.0 GiB used").wait_for()
    name = "Memory of GPU 0"
    assert _part(a_panel, name, "mine") == pytest.approx(1 / 16)
    assert _part(a_panel, name, "mine-held") == pytest.approx(3 / 16)
    assert _part(a_panel, name, "others") == pytest.approx(5 / 16)
    assert _part(a_panel, name, "others-burstable") == pytest.approx(2 / 16)
    assert _part(a_panel, name, "others-held") == pytest.approx(1 / 16)
    host = "In host memory of kernels of GPU 0"
    assert _part(a_panel, host, "mine-swapped") == pytest.approx(2 / 16)
    said = a_panel.shown.get_by_role("meter", name=name).get_attribute("aria-valuetext")
    want = "8.0 of 16.0 GiB used; 1.0 GiB by your kernels; 7.0 GiB by others; 2.0 GiB of it burstable; "
    assert said == want + "10.0 GiB reserved (0.75 of 1 GPU); 4.0 GiB free"
    a_panel.shown.get_by_text("3.0 GiB swapped out to the host, 2.0 GiB of it yours").wait_for()
    legend = a_panel.shown.get_by_role("list", name="Legend of the bars").get_by_role("listitem")
    assert [text.split(":")[0].strip() for text in legend.all_text_contents()] == [
        *("yours", "others", "burstable", "guaranteed, unused", "swapped out", "free")
    ]


def test_a_full_gpu_on_which_more_kernels_may_start_says_both(a_panel: ScriptedPanel) -> None:
    """A queued kernel then reads "0.64 GPU is free": that is of what may be reserved, not of the memory."""
    device = a_panel.script.body["devices"][0]
    device.update(used_bytes=16 * GIB, mine_bytes=16 * GIB, reserved_bytes=37 * GIB, reserved_gpus=2.36, overcommit=3.0)
    for want in ["37.0 GiB reserved (2.36 of up to 3 GPUs)", "no memory free"]:
        _devices(a_panel).get_by_text(want).wait_for()


def test_bars_keep_their_parts_in_forced_colors(a_panel: ScriptedPanel) -> None:
    device = a_panel.script.body["devices"][0]
    device.update(used_bytes=9 * GIB, mine_bytes=4 * GIB, mine_reserved_bytes=4 * GIB, reserved_bytes=8 * GIB)
    a_panel.shown.get_by_text("9.0 of 16.0 GiB used").wait_for()
    a_panel.lab.page.emulate_media(forced_colors="active", reduced_motion="reduce")  # bars have their widths at once
    try:
        free, *parts = colors(a_panel.shown.get_by_role("meter", name="Memory of GPU 0"))
        swatch = colors(a_panel.shown.locator(".aliquot-Legend-swatch.aliquot-mod-mine"))
    finally:
        a_panel.lab.page.emulate_media(forced_colors="none", reduced_motion="no-preference")
    assert 0.3 < free < 0.6, "half of it is free, and its seams"
    assert [share > 0.1 for share in parts[:2]] == [True, True], "mine and others"
    assert swatch[0] < 0.9 or len(swatch) > 1


def test_the_last_minutes_are_drawn_as_they_are_seen(a_panel: ScriptedPanel) -> None:
    line = a_panel.shown.get_by_role("img", name="Utilization of GPU 0, last 10 minutes")
    a_panel.script.body["devices"][0]["utilization_percent"] = 93
    a_panel.shown.get_by_text("93% busy").wait_for()
    assert "between" in (line.get_attribute("aria-label") or "")
    assert line.locator(".aliquot-Sparkline-line").get_attribute("d"), "there is a line"
    a_panel.script.body["devices"][0]["utilization_percent"] = None
    line.wait_for(state="detached")


def test_a_kernel_says_where_its_memory_is(a_panel: ScriptedPanel) -> None:
    kernel = a_panel.script.body["kernels"][0]
    kernel.update(state="swapped_out", used_bytes=3 * GIB, guaranteed_memory_bytes=2 * GIB, over_limit_bytes=GIB)
    kernel["residency"].update(state="swapped_out", swapped_bytes=3 * GIB, restore_seconds=2.3)
    for want in [
        "3.0 of 4.0 GiB used",
        "3.0 GiB in host memory",
        "about 3 s to restore",
        "swapped out, idle since",
        "over the memory limit by 1.0 GiB",
    ]:
        _kernels(a_panel).get_by_text(want).wait_for()
    assert _part(a_panel, "Memory of train.ipynb", "mine-swapped") == pytest.approx(3 / 4)
    kernel.update(state="restoring", reason="waiting 2 s for GPU memory: others have their turn; 1 ahead")
    kernel["residency"]["moving"] = {"done_bytes": GIB, "total_bytes": 3 * GIB}
    size = {
        "gpus": 0.5,
        "requested_memory_bytes": None,
        "priority": "normal",
        "since": "2026-01-01T00:00:00Z",
    }
    kernel["resize"] = {
        "state": "queued",
        "reason": "Needs 0.25 GPU more; none is free on gpu0",
        "position": 2,
        **size,
    }
    told = [
        "restoring",
        "others have their turn",
        "resize queued: 1 ahead",
        "Needs 0.25 GPU more; none is free on gpu0",
    ]
    for want in [*told, "restoring: 1.0 of 3.0 GiB"]:
        _kernels(a_panel).get_by_text(want).first.wait_for()
    a_panel.shown.get_by_text("Ahead of yours: 1.").wait_for()


def test_software_gpu_names_its_limits_and_a_real_one_has_none(a_panel: ScriptedPanel) -> None:
    notice = a_panel.shown.get_by_text("Software GPU: compiled GPU code is timed, not executed")
    notice.wait_for()
    a_panel.script.body["node"]["driver"] = "nvidia"
    notice.wait_for(state="detached")


def test_kernels_come_wait_and_go_and_the_quota_is_told(a_panel: ScriptedPanel) -> None:
    script = a_panel.script
    pending: dict[str, Any] = {
        "state": "queued",
        "queue_position": 2,
        "queue_length": 2,
        "reason": "0.25 GPU is free now",
        "devices": [],
    }
    script.body["kernels"].append(script.a_kernel(id="k-2", label="", gpus=2.5, **pending))
    script.body["queue"]["length"] = 2
    script.body["user"]["gpu_limit"] = {"gpus": 3, "held_gpus": 2.75, "left_gpus": 0.25}
    for want in ["python3.gpu-0.25", "2.5 GPUs", "queued: 1 ahead", "0.25 GPU is free now"]:
        a_panel.shown.get_by_text(want, exact=True).wait_for()
    a_panel.shown.get_by_text("2 kernels are queued. Ahead of yours: 1.").wait_for()
    a_panel.shown.get_by_text("Your GPU limit: 2.75 of 3 GPU held, 0.25 left").wait_for()
    assert a_panel.shown.get_by_role("meter", name="Your GPU limit").get_attribute("aria-valuenow") == "2.75"
    script.body["kernels"] = []
    a_panel.shown.get_by_text("No kernel has a GPU.").wait_for()


def test_a_kernel_in_the_queue_says_between_which_times_it_probably_starts(a_panel: ScriptedPanel) -> None:
    script, now = a_panel.script, datetime.now(timezone.utc)
    told = {
        "earliest": (now + timedelta(minutes=3.5)).isoformat(),
        "latest": (now + timedelta(minutes=7.5)).isoformat(),
    }
    pending = {"state": "queued", "queue_position": 1, "queue_length": 1, "devices": [], "predicted_start": told}
    script.body["kernels"].append(script.a_kernel(id="k-2", label="", gpus=1, **pending))
    a_panel.shown.get_by_text("queued: next; probably starts in 3–8 min", exact=True).wait_for()
    script.body["kernels"][-1]["expected_start"] = (now + timedelta(days=1)).isoformat()
    a_panel.shown.get_by_text("queued: next; expected to start at").wait_for()


def test_absent_agent_says_what_to_do_and_the_panel_recovers(a_panel: ScriptedPanel) -> None:
    want = "Nobody answers at /run/aliquot/agent.sock. Start the node agent: aliquot agent"
    example = a_panel.script.example()
    a_panel.script.body = {**a_panel.script.example(), "devices": [], "kernels": []}
    a_panel.script.body["node"].update(agent="unavailable", driver=None, message=want)
    a_panel.shown.get_by_role("alert").get_by_text(want).wait_for()
    a_panel.shown.get_by_text("No GPU to show.").wait_for()
    a_panel.script.body = example
    a_panel.shown.get_by_text("train.ipynb").wait_for()
    assert a_panel.shown.get_by_role("alert").count() == 0


def test_a_message_of_several_lines_has_them_one_below_the_other(a_panel: ScriptedPanel) -> None:
    want = (
        "The last good quota file is in force, for the present one has errors:\nteams.yaml:3: no team\nteams.yaml:7: no"
    )
    a_panel.script.body["node"]["message"] = want
    notice = a_panel.shown.get_by_role("alert").filter(has_text="teams.yaml:7")
    notice.wait_for()
    assert notice.inner_text() == want


def test_failing_server_keeps_the_last_figures_and_says_why(a_panel: ScriptedPanel) -> None:
    a_panel.script.code, a_panel.script.body = 503, {"message": "The ledger is being rebuilt", "reason": None}
    a_panel.shown.get_by_role("alert").get_by_text("The ledger is being rebuilt").wait_for()
    assert a_panel.shown.get_by_text("train.ipynb").is_visible()
    a_panel.script.reset()
    a_panel.shown.get_by_role("alert").wait_for(state="detached")
    a_panel.lab.errors.clear()  # the browser writes each 503 into its console


def test_answer_of_another_version_is_refused_in_words(a_panel: ScriptedPanel) -> None:
    a_panel.script.body = {"kernels": [1, 2], "devices": None}
    a_panel.shown.get_by_role("alert").get_by_text("the server and this extension differ in version").wait_for()


def test_server_without_aliquot_is_told_apart(an_unscripted_lab: LabPage) -> None:
    panel = an_unscripted_lab.show_panel()
    panel.get_by_role("alert").get_by_text("This Jupyter server does not run Aliquot").wait_for()


def test_label_is_text_and_never_markup(a_panel: ScriptedPanel) -> None:
    want = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'
    evil = {"label": want, "owner": want, "reason": want, "name": want, "interception": f"failed: {want}"}
    a_panel.script.body["kernels"] = [a_panel.script.a_kernel(**evil)]
    a_panel.script.body["devices"][0]["name"] = want
    a_panel.script.body["node"].update(agent="unavailable", message=want)
    a_panel.shown.locator(".aliquot-Group-head").click()
    a_panel.shown.get_by_role("list", name="GPU kernels of").get_by_text(want, exact=True).first.wait_for()
    assert a_panel.shown.locator("img, script").count() == 0
    assert a_panel.lab.page.evaluate("window.broken") is None


def test_lost_device_and_failed_interception_are_said(a_panel: ScriptedPanel) -> None:
    a_panel.script.body["devices"][0]["lost"] = True
    broken = a_panel.script.a_kernel(interception="failed: libcuda.so.1 was loaded first", failed_allocations=2)
    a_panel.script.body["kernels"] = [broken]
    _devices(a_panel).get_by_text("lost", exact=True).wait_for()
    want = "The memory limit is not enforced in this kernel: libcuda.so.1 was loaded first"
    a_panel.shown.get_by_role("alert").get_by_text(want).wait_for()
    a_panel.shown.get_by_text("2 allocations refused").wait_for()


def test_processes_past_the_limit_are_said(a_panel: ScriptedPanel) -> None:
    escaped = {"pid": 77, "name": "python3", "index": 0, "used_bytes": 3 * GIB, "charged_bytes": GIB, "why": "past"}
    a_panel.script.body["node"].update(enforcer="driver", untracked_processes=2)
    a_panel.script.body["kernels"] = [
        a_panel.script.a_kernel(uncontrolled_processes=[escaped], enforcement="failed: only root may")
    ]
    want = "Process 77 (python3) holds memory of GPU 0 past the memory limit: 2.0 GiB"
    a_panel.shown.get_by_role("alert").get_by_text(want).wait_for()
    a_panel.shown.get_by_role("alert").get_by_text("The limits of this kernel are not set: only root may").wait_for()
    a_panel.shown.get_by_text("2 processes on the GPUs belong to no kernel").wait_for()
    a_panel.shown.get_by_text("memory limits: driver").wait_for()


def test_a_device_that_tells_its_power_shows_it(a_panel: ScriptedPanel) -> None:
    devices = a_panel.shown.get_by_role("list", name="Devices")
    devices.get_by_text("41 °C").wait_for()
    assert devices.get_by_text(" W", exact=False).filter(has_text="null").count() == 0
    a_panel.script.body["devices"][0]["power_watts"] = 291.4
    devices.get_by_text("291 W").wait_for()


def test_gpu_time_is_said_with_what_holds_it_back(a_panel: ScriptedPanel) -> None:
    control = {"controller": "weighted", "sharing": "time slices", "target_percent": 2.0, "contended": True}
    a_panel.script.body["devices"][0]["compute_control"] = control
    kernel = a_panel.script.body["kernels"][0]
    kernel["host_memory"] = {"limit_bytes": 2 * GIB, "used_bytes": GIB, "peak_bytes": GIB, "failed_allocations": 0}
    kernel["devices"][0]["compute"] = {
        **{"fair_share": 0.25, "share_used": 0.12, "own_seconds": 4.0, "slowdown": 1.031, "throttled_seconds": 3.25},
        **{"max_delay_seconds": 0.002, "pace": "paced", "throttle_reason": "production is active", "paused": False},
        "has_hard_limit": True,
    }
    a_panel.shown.get_by_text("12% of GPU time, fair share 25%").wait_for()
    meter = a_panel.shown.get_by_role("meter", name="GPU time of train.ipynb")
    assert meter.get_attribute("aria-valuetext") == "12% of GPU time, fair share 25%"
    a_panel.shown.get_by_text("Throttled: production is active").wait_for()
    a_panel.shown.get_by_text("hard limit of GPU time").wait_for()
    a_panel.shown.get_by_text("kernels share the GPU in time slices (weighted)").wait_for()
    folded = a_panel.shown.get_by_role("button", name="Actions and details of train.ipynb")
    folded.click()
    # The kernel's own time; the driver's count of the device, 12.4 s, has neighbors' slices in it.
    _kernels(a_panel).get_by_text("GPU time 4.0 s", exact=True).wait_for()
    for want in ("slowdown 1.03×", "throttled 3.3 s", "delays normal-priority work by 2.0 ms at most", "peak 2.5 GiB"):
        _kernels(a_panel).get_by_text(want).wait_for()
    _kernels(a_panel).get_by_text("host memory locked: 1.0 of 2.0 GiB").wait_for()
    _kernels(a_panel).get_by_text("GPU contexts, counted in its memory limit: 512.0 MiB").wait_for()
    folded.click()


def test_the_panel_says_why_a_gpu_is_not_overcommitted(a_panel: ScriptedPanel) -> None:
    reason = "the self-check of swapping failed on this GPU: cuMemMap answered 2"
    a_panel.script.body["devices"][0].update(overcommit=1.0, overcommit_reason=reason)
    a_panel.shown.get_by_text(f"GPU 0 is not overcommitted: {reason}").wait_for()


def test_administrator_sees_users_with_sums_and_the_node(a_panel: ScriptedPanel) -> None:
    script = a_panel.script
    script.body["user"] = {"name": "ada", "role": "admin"}
    script.body["node"].update(overcommit=1.5)
    script.body["node"]["host_copies"] = {"used_bytes": GIB, "budget_bytes": 8 * GIB, "spilled_bytes": 0}
    theirs = [script.a_kernel(id=f"g-{i}", owner="grace", label=f"of-grace-{i}.ipynb") for i in range(2)]
    script.body["kernels"] += theirs
    group = a_panel.shown.locator("details", has_text="grace")
    group.get_by_text("2 kernels · 0.5 GPU · 2.0 GiB used").wait_for()
    a_panel.shown.get_by_text("node here").wait_for()
    a_panel.shown.get_by_text("overcommit: up to 1.5 times its memory").wait_for()
    a_panel.shown.get_by_text("host memory for swapped kernels: 1.0 of 8.0 GiB").wait_for()
    assert a_panel.shown.get_by_text("of-grace-0.ipynb").count() == 0, "another's kernels are folded"
    group.locator("summary").click()
    of_grace = a_panel.shown.get_by_role("list", name="GPU kernels of grace").get_by_role("listitem")
    of_grace.filter(has_text="of-grace-1.ipynb").wait_for()
    assert of_grace.get_by_role("button", name="Open of-grace").count() == 0, "another's notebook is not here"


def test_many_devices_are_a_line_each_that_opens(a_panel: ScriptedPanel) -> None:
    device = a_panel.script.body["devices"][0]
    a_panel.script.body["devices"] = [{**device, "index": i, "uuid": f"GPU-a{i}"} for i in range(64)]
    _devices(a_panel).nth(63).wait_for()
    assert a_panel.shown.get_by_role("img").count() == 0, "no line is drawn that nobody sees"
    fifth = _devices(a_panel).nth(5)
    fifth.locator("summary").press("Enter")
    fifth.get_by_text("3.1 of 16.0 GiB used").wait_for()
    assert _devices(a_panel).nth(6).get_by_text("3.1 of 16.0 GiB used").count() == 0


def test_notebooks_of_one_name_are_told_apart_by_their_folders_and_those_of_one_folder_by_their_ids(
    a_panel: ScriptedPanel,
) -> None:
    script = a_panel.script
    labels = ["a/b/spin.ipynb", "spin.ipynb", "alone/other.ipynb", "x/two.ipynb", "x/two.ipynb"]
    script.body["kernels"] = [script.a_kernel(id=f"{n}-of-the-kernels", label=label) for n, label in enumerate(labels)]
    two = ("two.ipynb, kernel 3-of-the", "two.ipynb, kernel 4-of-the")
    for want in ("spin.ipynb in a/b", "spin.ipynb in /", "other.ipynb", *two):
        _kernels(a_panel).get_by_text(want, exact=True).wait_for()


def test_the_actions_of_the_last_kernel_come_into_sight(a_panel: ScriptedPanel) -> None:
    script, page = a_panel.script, a_panel.lab.page
    script.body["kernels"] = [script.a_kernel(id=f"k-{n}", label=f"{n}.ipynb") for n in range(20)]
    last = a_panel.shown.get_by_role("button", name="Actions and details of 19.ipynb")
    last.click()
    page.wait_for_function(_ENDS_IN_SIGHT)
    last.click()


_ENDS_IN_SIGHT = """() => {
    const folded = document.querySelector('[data-kernel="k-19"] .aliquot-Item-folded:not([hidden])');
    if (!folded) return false;
    const { left, bottom } = folded.lastElementChild.getBoundingClientRect();
    return folded.contains(document.elementFromPoint(left + 5, bottom - 5));
}"""


def test_no_line_of_the_devices_is_cut_when_a_notice_comes(a_panel: ScriptedPanel) -> None:
    is_whole = """() => {
        const [devices, kernels] = document.querySelectorAll('.aliquot-Section');
        const end = kernels.parentElement.getBoundingClientRect().bottom;
        return devices.clientHeight > 0 && devices.scrollHeight <= devices.clientHeight
            && kernels.getBoundingClientRect().bottom <= end + 1;
    }"""
    page = a_panel.lab.page
    page.wait_for_function(is_whole)
    a_panel.script.body["node"]["message"] = "The node's own words, which take several lines of the sidebar. " * 4
    a_panel.shown.get_by_text("The node's own words").wait_for()
    page.wait_for_function(is_whole, timeout=10_000)


def test_axe_finds_nothing_in_either_theme(a_panel: ScriptedPanel) -> None:
    a_panel.script.body["devices"][0].update(swapped_bytes=3 * GIB, mine_swapped_bytes=GIB)
    stranger = a_panel.script.a_kernel(id="g-1", owner="grace")
    a_panel.script.body["kernels"].append(stranger)
    a_panel.script.body["user"] = {
        "name": "ada",
        "role": "admin",
        "gpu_limit": {"gpus": 2, "held_gpus": 1, "left_gpus": 1},
    }
    # The last one, so that a page that shows it has all: a poll may come between two of these lines.
    a_panel.script.body["kernels"][0]["interception"] = "failed: told so"
    a_panel.shown.get_by_text("told so").wait_for()
    folded = a_panel.shown.get_by_role("button", name="Actions and details of train.ipynb")
    folded.click()
    a_panel.shown.get_by_role("spinbutton", name="GPU share").wait_for()
    for theme in a_panel.lab.in_both_themes():
        assert a_panel.lab.violations("#aliquot-gpu-kernels") == [], theme
    folded.click()


def test_nodes_on_other_machines_have_a_line_each(a_panel: ScriptedPanel) -> None:
    device = {**a_panel.script.body["devices"][0], "reserved_gpus": 0.75, "lost": False}
    known = {"message": None, "since": None, "driver": "nvidia", "kernels": 1}
    a_panel.script.body["nodes"] = [
        {"name": "gpu-1", "state": "connected", "devices": [device, device], **known},
        {"name": "gpu-2", "state": "unknown", "devices": [device], **known},
    ]
    a_panel.shown.get_by_text("node gpu-1: 1.5 GPU of 2 reserved").wait_for()
    a_panel.shown.get_by_text("node gpu-2: unknown, its agent does not answer").wait_for()
