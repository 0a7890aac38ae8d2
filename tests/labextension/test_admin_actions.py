"""Actions in the administrator's view: what is sent, and what becomes of an answer that comes late."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.labextension.admin_script import AdminScript, a_holder, open_view
    from tests.labextension.lab_page import LabPage
else:
    from admin_script import AdminScript, a_holder, open_view

pytestmark = pytest.mark.browser


@pytest.fixture
def a_script(a_shared_page: LabPage) -> Iterator[AdminScript]:
    with AdminScript([a_holder(place) for place in range(2)]).served(a_shared_page.page) as script:
        yield script


@pytest.fixture
def a_view(a_shared_page: LabPage, a_script: AdminScript) -> Locator:
    """The view over two kernels, opened anew."""
    a_shared_page.clear()
    found = open_view(a_shared_page)
    found.get_by_text("2 of 2 kernels").wait_for()
    return found


def choose(view: Locator, place: int, button: str) -> Locator:
    """Choose an action on a kernel of the script; return the dialog that asks for confirmation."""
    view.get_by_role("row").filter(has_text=f"notebook-{place:05}").click()
    dialog = view.get_by_role("dialog", name=f"work/notebook-{place:05}.ipynb")
    dialog.get_by_role("button", name=f"{button}…").click()
    return dialog


def send(dialog: Locator, button: str, path: str, script: AdminScript) -> None:
    """Confirm an action; return when its request waits for the test's answer."""
    before = len(script.actions)
    with dialog.page.expect_request(re.compile(rf"/{path}(\?|$)")):  # Lab adds the time
        dialog.get_by_role("button", name=button, exact=True).click()
    while len(script.actions) == before:  # the request was made, the route gets it next
        dialog.page.evaluate("0")


def answer(script: AdminScript, code: int, body: dict[str, Any]) -> None:
    script.actions[-1].fulfill(status=code, json=body)


def test_a_resize_sends_the_changed_fields_alone(a_view: Locator, a_script: AdminScript) -> None:
    dialog = choose(a_view, 0, "Resize")
    dialog.get_by_role("button", name="Resize", exact=True).click()
    dialog.get_by_role("alert").get_by_text("Nothing was changed").wait_for()
    dialog.get_by_label("Priority").select_option("low")
    send(dialog, "Resize", "kernels/k-00000", a_script)
    assert a_script.asked() == [("PATCH", "kernels/k-00000", {"priority": "low"})]
    answer(a_script, 200, {})
    a_view.get_by_text("work/notebook-00000.ipynb has its new size").wait_for()


def test_a_dialog_stays_until_its_request_is_answered_and_tells_the_failure(
    a_view: Locator, a_script: AdminScript
) -> None:
    dialog = choose(a_view, 0, "End")
    dialog.get_by_role("button", name="Back").click()
    dialog.get_by_role("button", name="Swap Out…").click()
    send(dialog, "Swap Out", "kernels/k-00000/swap-out", a_script)
    for _ in range(2):  # the second is one that the browser takes for a firm wish
        a_view.page.keyboard.press("Escape")
    dialog.get_by_role("button", name="Back").dispatch_event("click")
    dialog.get_by_role("button", name="Swap Out", exact=True).dispatch_event("click")
    answer(a_script, 409, {"message": "It used its GPU just now."})
    dialog.get_by_role("alert").get_by_text("It used its GPU just now.").wait_for()
    assert len(a_script.actions) == 1
    dialog.get_by_role("button", name="Back").click()
    a_view.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


@pytest.mark.parametrize(
    ("code", "body", "want"),
    [
        (200, {}, "work/notebook-00000.ipynb is being swapped out."),
        (409, {"message": "No."}, "The action on work/notebook-00000.ipynb failed: No."),
    ],
)
def test_a_late_outcome_names_its_kernel_and_leaves_another_dialog_open(
    a_view: Locator, a_script: AdminScript, code: int, body: dict[str, Any], want: str
) -> None:
    first = choose(a_view, 0, "Swap Out")
    send(first, "Swap Out", "kernels/k-00000/swap-out", a_script)
    first.evaluate("dialog => dialog.close()")  # as a browser may, whatever the page wants
    first.wait_for(state="detached")
    second = choose(a_view, 1, "End")
    answer(a_script, code, body)
    a_view.get_by_text(want).wait_for()
    assert second.get_by_text("All variables will be lost").is_visible()


def test_a_cordon_is_shown_and_nodes_are_cordoned_drained_and_uncordoned(
    a_view: Locator, a_script: AdminScript
) -> None:
    a_view.get_by_role("tab", name="Nodes and GPUs").click()
    a_view.get_by_text(re.compile(r"^Its agent does not dial\.; cordoned since .+: new driver$")).wait_for()
    told = {"name": "gpu-2", "cordon": None, "cordoned_by": None}
    kernel = {"kernel_id": "k", "owner": "bob", "label": "", "reason": None}
    staying = [{**kernel, "state": "stays"}, {**kernel, "state": "leaving"}]
    steps = [
        ("here", "Cordon", "fan", {**told, "name": "here", "kernels": []}, "here is cordoned."),
        ("gpu-2", "Drain", None, {**told, "kernels": staying}, "gpu-2 is being drained. Kernels that stay: 1."),
        ("gpu-2", "Uncordon", None, {**told, "kernels": []}, "gpu-2 is uncordoned."),
    ]
    for node, verb, reason, body, want in steps:
        a_view.get_by_role("button", name=f"{verb}… {node}").click()
        dialog = a_view.get_by_role("dialog", name=node)
        if reason is not None:
            dialog.get_by_label("Reason").fill(reason)
        send(dialog, verb, f"nodes/{node}/{verb.lower()}", a_script)
        answer(a_script, 200, body)
        a_view.get_by_text(want).wait_for()
        dialog.wait_for(state="detached")
    assert a_script.asked() == [
        ("POST", "nodes/here/cordon", {"reason": "fan"}),
        ("POST", "nodes/gpu-2/drain", {"reason": "new driver"}),
        ("POST", "nodes/gpu-2/uncordon", {}),
    ]
