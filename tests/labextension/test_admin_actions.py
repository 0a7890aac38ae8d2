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

LEFT_OUT = object()
OF_OLDER = {"digest": LEFT_OUT, "reason": LEFT_OUT}  # a run that an older gateway tells


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


def test_a_plan_of_moves_is_shown_before_it_runs_and_a_stale_one_is_told(
    a_view: Locator, a_script: AdminScript
) -> None:
    a_view.get_by_role("tab", name="Nodes and GPUs").click()
    assert a_view.get_by_role("button", name="Make Room… gpu-2").count() == 0, "it is cordoned"
    dialog = make_room(a_view, a_script)
    answer(a_script, 503, {"message": "no answer"})
    send(dialog, "Show the plan", "moves", a_script)
    answer(a_script, 200, a_plan(digest=None, moves=[], reason="no kernel can move: a cell runs"))
    dialog.get_by_text("no kernel can move: a cell runs").wait_for()
    dialog.get_by_label("Size").fill("1")
    send(dialog, "Show the plan", "moves", a_script)
    answer(a_script, 200, a_plan())
    dialog.get_by_text("Free GPUs: gpu0: 0.5 → 1, gpu1: 0.5 → 0").wait_for()
    dialog.get_by_text("late.ipynb stays: a cell runs").wait_for()
    assert dialog.get_by_role("row").filter(has_text="fit.ipynb").inner_text().split("\t") == [
        *("fit.ipynb", "bob", "gpu0", "gpu1"),
        "2.0 GiB",
    ]
    send(dialog, "Move", "moves", a_script)
    answer(a_script, 409, {"message": "The plan d1 is not made any more"})
    dialog.get_by_role("alert").get_by_text("The plan d1 is not made any more").wait_for()
    send(dialog, "Show the plan", "moves", a_script)
    answer(a_script, 200, a_plan(digest="d2"))
    send(dialog, "Move", "moves", a_script)
    answer(a_script, 202, a_plan(run={"moves": [{"kernel_id": "k"}]}))
    a_view.get_by_text("Moves on here have begun by the plan d2: 1.").wait_for()
    body = {"size": "1", "node": "here"}
    shown = ("GET", "moves", None)
    posts = [("POST", "moves", {**body, "digest": digest}) for digest in ("d1", "d2")]
    assert a_script.asked() == [shown, shown, shown, posts[0], shown, posts[1]]
    assert [re.search(r"size=(\w*)", route.request.url)[1] for route in a_script.actions[:3]] == ["", "", "1"]  # type: ignore[index]


def make_room(view: Locator, script: AdminScript) -> Locator:
    """Open the dialog of moves of a node; return it once it has asked how the last run went."""
    with view.page.expect_request(re.compile(r"/moves(\?|$)")):
        view.get_by_role("button", name="Make Room… here").click()
    while not script.actions:
        view.page.evaluate("0")
    return view.get_by_role("dialog", name="here")


@pytest.mark.parametrize(
    ("outcomes", "changes", "want"),
    [
        (
            ["done", "running"],
            {"state": "running"},
            "The plan d0 runs on gpu-1, begun by root: 1 of 2 moves are done.",
        ),
        (["done", "done"], {}, "The last plan, d0 on gpu-1 by root, ran to its end: 2 moves."),
        (
            ["failed", "dropped"],
            {"reason": "a move failed"},
            "The last plan, d0 on gpu-1 by root, ended early, 0 of 2 moves are done: fit.ipynb: it became busy.",
        ),
        (
            ["done", "dropped"],
            {"reason": "another replica leads"},
            "The last plan, d0 on gpu-1 by root, ended early, 1 of 2 moves are done: another replica leads.",
        ),
        (["done", "done"], OF_OLDER, "The last plan, on gpu-1 by root, ran to its end: 2 moves."),
        (
            ["failed", "dropped"],
            OF_OLDER,
            "The last plan, on gpu-1 by root, ended early, 0 of 2 moves are done: fit.ipynb: it became busy.",
        ),
        (
            ["done", "running"],
            {**OF_OLDER, "state": "running"},
            "A plan runs on gpu-1, begun by root: 1 of 2 moves are done.",
        ),
    ],
)
def test_the_plan_under_way_is_named_and_the_last_ones_end_is_told(
    a_view: Locator, a_script: AdminScript, outcomes: list[str], changes: dict[str, Any], want: str
) -> None:
    a_view.get_by_role("tab", name="Nodes and GPUs").click()
    dialog = make_room(a_view, a_script)
    reasons = {"failed": "it became busy"}
    moves = [{**a_plan()["moves"][0], "outcome": one, "reason": reasons.get(one)} for one in outcomes]
    run = {"state": "over", "digest": "d0", "node": "gpu-1", "by": "root", "reason": None, "moves": moves, **changes}
    run = {name: told for name, told in run.items() if told is not LEFT_OUT}
    answer(a_script, 200, a_plan(run=run))
    dialog.get_by_text(want).wait_for()
    dialog.get_by_role("button", name="Cancel").click()


def a_plan(**changes: Any) -> dict[str, Any]:
    """Return a plan of one move, as the server answers it."""
    kernel = {"kernel_id": "k", "owner": "bob", "label": "fit.ipynb"}
    places = {"source_index": 0, "target_index": 1, "memory_bytes": 2 << 30}
    return {
        "digest": "d1",
        "node": "here",
        "moves": [{**kernel, **places}],
        "gpus": [
            {"index": 0, "free_gpus": 0.5, "free_gpus_after": 1.0},
            {"index": 1, "free_gpus": 0.5, "free_gpus_after": 0.0},
        ],
        "stays": [{**kernel, "label": "late.ipynb", "reason": "a cell runs"}],
        "reason": None,
        "run": None,
        **changes,
    }
