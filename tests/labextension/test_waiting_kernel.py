"""A page with a kernel that waits for its GPU.

Other notebooks and terminals go on, Stop empties the queue, and a reload keeps it. The tests run on
a server of its own, on a user's server in gateway mode, and behind the Hub's proxy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hub_process import hub_problem

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.labextension.desk import Desk
    from tests.labextension.hub_pages import HubWithLab, Person
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from desk import Desk
    from hub_pages import HubWithLab, Person
    from lab_page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

# A connection that waits for the other kernel takes as long as that waits. The benchmark's bound is
# a second.
_OPEN_SECONDS = 10.0
# The seconds in which the page connects once more to the kernel in front.
_RUNS_NOTHING = """() => {
  const prompts = document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell .jp-InputPrompt');
  return prompts.length > 0 && [...prompts].every(prompt => !prompt.innerText.includes('*'));
}"""
_RUNS_BOTH = """() => {
  const prompts = document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell .jp-InputPrompt');
  return prompts.length === 2 && [...prompts].every(prompt => prompt.innerText.includes('*'));
}"""
_KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel.id"
_TERMINAL = """async () => {
  const made = await jupyterapp.commands.execute('terminal:create-new');
  const { session } = made.content;
  const heard = new Promise(done => session.messageReceived.connect((_, m) => m.type === 'stdout' && done(null)));
  session.send({ type: 'stdin', content: ['echo terminal\\r'] });
  await heard;
  return session.connectionStatus;
}"""


@pytest.fixture
def own_server(an_aliquot_lab: LabProcess, a_page: Page) -> Desk:
    """A server that contains the gateway."""
    return Desk(LabPage(a_page).open(an_aliquot_lab.lab_url), an_aliquot_lab.notebooks)


@pytest.fixture
def gateway_mode(alices_lab: LabProcess, a_page: Page) -> Desk:
    """Alice's own server, on a gateway of several users."""
    return Desk(LabPage(a_page).open(alices_lab.lab_url), alices_lab.notebooks)


@pytest.fixture
def behind_the_hub(a_browser: Browser) -> Iterator[Desk]:
    """Alice's server of a JupyterHub, through the Hub's proxy."""
    if problem := hub_problem():
        pytest.skip(problem)
    with HubWithLab() as hub:
        context = a_browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(60_000)
        alice = Person(context.new_page(), "alice", hub)
        alice.log_in()
        alice.choose("No GPU")
        yield Desk(alice.wait_for_lab(), hub.notebooks("alice"))
        context.close()


_SOAK_ALONE = pytest.mark.soak(alone="a long browser test")
_ELSEWHERE = [pytest.param(name, marks=_SOAK_ALONE) for name in ("gateway_mode", "behind_the_hub")]


@pytest.fixture(params=["own_server", *_ELSEWHERE])
def a_desk(request: pytest.FixtureRequest, a_page: Page) -> Iterator[Desk]:
    a_page.on("dialog", lambda dialog: dialog.accept())  # the page leaves a notebook that is not saved
    desk: Desk = request.getfixturevalue(request.param)
    desk.end_kernels()
    yield desk
    desk.end_kernels()


def test_other_notebooks_and_terminals_go_on_while_one_waits_stop_empties_its_queue_and_a_reload_keeps_it(
    a_desk: Desk,
) -> None:
    page = a_desk.page
    neighbour = a_desk.start_kernel("python3.gpu-1")
    waiting, plain = a_desk.notebook("kept = 40 + 2", "print('it is', kept)"), a_desk.notebook("print('plain', 'runs')")
    a_desk.open(waiting, "python3.gpu-0.5")
    kernel_id = str(page.evaluate(_KERNEL))
    a_desk.run_all(waiting)
    a_desk.until_kept(kernel_id, 2)

    a_desk.open(plain, "python3")
    a_desk.run_all(plain)
    a_desk.output("plain runs").wait_for()
    assert a_desk.seconds_to_connect() <= _OPEN_SECONDS
    assert page.evaluate(_TERMINAL) == "connected"

    a_desk.open(waiting, "python3.gpu-0.5")
    page.wait_for_function(_RUNS_BOTH)
    a_desk.lab.start_command("notebook:interrupt-kernel")
    a_desk.output("KeyboardInterrupt").wait_for()
    a_desk.until_kept(kernel_id, 0)
    page.wait_for_function(_RUNS_NOTHING)
    assert a_desk.ask(f"aliquot/api/v1/kernels/{kernel_id}")["state"] == "queued"

    a_desk.run_all(waiting)
    a_desk.until_kept(kernel_id, 2)
    a_desk.lab.finish_command("docmanager:save")
    a_desk.lab.reload()
    page.wait_for_function("() => globalThis.jupyterapp?.restored.then(() => true)")
    a_desk.open(waiting, "python3.gpu-0.5")
    page.wait_for_function(_RUNS_BOTH)
    assert str(page.evaluate(_KERNEL)) == kernel_id
    a_desk.ask(f"api/kernels/{neighbour}", "DELETE")
    a_desk.output("it is 42").wait_for()
    page.wait_for_function(_RUNS_NOTHING)
    assert a_desk.prompts().all_inner_texts() == ["[1]:", "[2]:"]
