"""Two users and a JupyterHub, from its login page to a cell on a GPU, in real browsers.

The tests cover each user's rights and views, sharing, an administrator, and the remains of a stopped
server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hub_process import hub_problem

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from tests.labextension.hub_pages import HubWithLab, Person
    from tests.labextension.server_processes import an_empty_notebook
else:
    from hub_pages import HubWithLab, Person
    from server_processes import an_empty_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
_CELL = "answer = 40 + 2\nprint('it is', answer)"


@dataclass(frozen=True)
class Day:
    """Alice has a notebook with a kernel of a quarter; Bob has JupyterLab, and chose no GPU."""

    hub: HubWithLab
    alice: Person
    bob: Person
    kernel_id: str
    refusal: str


@pytest.fixture(scope="module")
def a_day(a_browser: Browser) -> Iterator[Day]:
    """One Hub and two log-ins for all tests: those take long."""
    if problem := hub_problem():
        pytest.skip(problem)
    with HubWithLab(arguments={"user_limit_gpus": 0.5}) as hub:
        people = []
        for name in ("alice", "bob"):
            context = a_browser.new_context(viewport={"width": 1280, "height": 900})
            context.set_default_timeout(60_000)
            people.append(Person(context.new_page(), name, hub))
        alice, bob = people
        alice.log_in()
        alice.ask_for("0.75")
        refusal = alice.page.locator(".spawn-error-msg").inner_text()
        alice.choose("0.25 GPU")
        bob.log_in()
        bob.choose("No GPU")
        an_empty_notebook(hub.notebooks("alice"), "train.ipynb", "python3", _CELL)
        alice.wait_for_lab().open_notebook("train.ipynb", "python3")
        bob.wait_for_lab()
        alice.lab.panel.get_by_role("list", name="GPU kernels").get_by_text("train.ipynb").wait_for()
        yield Day(hub, alice, bob, alice.kernel_ids()[0], refusal)
        for person in people:
            person.page.context.close()


def _outputs(person: Person) -> Locator:
    return person.page.locator(".jp-MainAreaWidget:not(.lm-mod-hidden) .jp-OutputArea-output")


def test_a_size_that_is_more_than_the_users_is_refused_on_the_spawn_page_with_the_limit(a_day: Day) -> None:
    assert "Requested 0.75 GPU, but alice may have 0.5" in a_day.refusal
    assert "Choose a smaller size" in a_day.refusal


def test_a_notebook_of_a_plain_kernelspec_runs_on_the_size_that_was_chosen_and_nobody_else_sees_it(a_day: Day) -> None:
    alice, bob = a_day.alice, a_day.bob
    kernel = alice.ask(f"aliquot/api/v1/kernels/{a_day.kernel_id}")
    assert (kernel["gpus"], kernel["owner"], kernel["name"]) == (0.25, "alice", "python3.gpu-0.25")
    alice.lab.finish_command("notebook:run-all-cells")
    _outputs(alice).filter(has_text="it is 42").wait_for()
    alice.lab.start_command("notebook:change-kernel")
    dialog = alice.page.get_by_role("dialog")
    dialog.get_by_role("combobox").select_option(label="Python 3 (ipykernel)")
    dialog.get_by_role("radio", name="Server's default, 0.25 GPU").wait_for()
    dialog.get_by_role("radio", name="No GPU").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    alice.lab.panel.get_by_text("Your GPU limit: 0.25 of 0.5 GPU held, 0.25 left").wait_for()
    bob.lab.panel.get_by_text("No kernel has a GPU.").wait_for()
    assert bob.kernel_ids() == []
    assert a_day.kernel_id not in bob.page.content()


def test_a_kernel_that_is_shared_is_told_used_and_lost_again(a_day: Day) -> None:
    alice, bob = a_day.alice, a_day.bob
    alice.run(_CELL)
    _outputs(alice).filter(has_text="it is 42").wait_for()
    alice.share("train.ipynb", "bob", "write:")
    told = bob.page.locator(".Toastify__toast", has_text="you can run cells in it.")
    told.get_by_role("button", name="Open a notebook on it").click()
    bob.wait_for_kernel(a_day.kernel_id)
    bob.run("print('bob sees', answer)")
    _outputs(bob).filter(has_text="bob sees 42").wait_for()
    bob.page.locator("#jp-main-statusbar").get_by_text("shared").first.wait_for()
    section = bob.lab.panel.get_by_role("region", name="Shared with me")
    section.get_by_text("of alice").wait_for()

    alice.share("train.ipynb", "bob", "read:")
    section.get_by_text("read", exact=True).wait_for()
    bob.page.locator("#jp-main-statusbar").get_by_text("shared, read-only").wait_for()
    bob.run("answer = 'of bob'")
    _outputs(bob).filter(has_text="read-only").wait_for()
    alice.run("print('still', answer)")
    _outputs(alice).filter(has_text="still 42").wait_for()

    dialog = alice.open_sharing("train.ipynb")
    dialog.get_by_role("button", name="Stop sharing with bob").click()
    dialog.get_by_text("Only you and administrators").wait_for()
    alice.close(dialog)
    section.wait_for(state="detached")
    bob.page.locator(".Toastify__toast", has_text="is not shared with you any more").wait_for()
    assert bob.kernel_ids() == []


@pytest.mark.soak(alone="a long browser test")
def test_an_administrator_has_the_view_in_lab_and_the_page_of_the_hubs_service(a_day: Day, a_browser: Browser) -> None:
    """Both are below prefixes of the Hub, with a login of their own each; writing needs its XSRF token."""
    hub, alice = a_day.hub, a_day.alice
    context = a_browser.new_context()
    context.set_default_timeout(60_000)
    ada = Person(context.new_page(), "ada", hub)
    ada.log_in()
    ada.choose("No GPU")
    lab = ada.wait_for_lab()
    lab.page.wait_for_function("jupyterapp.commands.isVisible('aliquot:show-administration')")
    lab.finish_command("aliquot:show-administration")
    _write_to_alice(lab.page.get_by_role("region", name="GPU administration"), "From the view in Lab.")
    alice.page.locator(".Toastify__toast", has_text="From the view in Lab.").wait_for()

    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    _open_the_services_page(page, hub)
    _write_to_alice(page.locator("body"), "From the page of the service.")
    alice.page.locator(".Toastify__toast", has_text="From the page of the service.").wait_for()
    assert errors == []
    context.close()

    refused = a_day.bob.page.context.new_page()
    _open_the_services_page(refused, hub)
    refused.get_by_text("The page of GPU administration is for administrators").wait_for()
    refused.close()


def _open_the_services_page(page: Page, hub: HubWithLab) -> None:
    """Open the page in a browser that has logged in at the Hub, and allow the service to know the user."""
    page.goto(f"{hub.gateway_url}/aliquot/admin")
    page.get_by_role("button", name="Authorize").click()
    page.wait_for_url(f"{hub.gateway_url}/aliquot/admin")


def _write_to_alice(shown: Locator, text: str) -> None:
    shown.get_by_role("grid", name="Kernels").get_by_role("row").filter(has_text="alice").click()
    dialog = shown.get_by_role("dialog")
    dialog.get_by_role("button", name="Message Owner…").click()
    dialog.get_by_label("Message").fill(text)
    dialog.get_by_role("button", name="Send Message").click()
    dialog.wait_for(state="detached")


def test_a_server_that_was_stopped_finds_its_kernel_when_it_starts_again(a_day: Day) -> None:
    alice = a_day.alice
    alice.run(_CELL)
    _outputs(alice).filter(has_text="it is 42").wait_for()
    alice.lab.finish_command("docmanager:save")
    a_day.hub.stop_server("alice")
    alice.page.goto(f"{a_day.hub.url}/hub/spawn")
    alice.choose("0.5 GPU")
    alice.wait_for_lab().panel.get_by_role("list", name="GPU kernels").get_by_text("train.ipynb").wait_for()
    alice.lab.start_command("docmanager:open", path="train.ipynb")
    alice.wait_for_kernel(a_day.kernel_id)
    alice.run("print('again', answer)")
    _outputs(alice).filter(has_text="again 42").wait_for()


def test_a_page_whose_token_for_the_gateway_was_revoked_says_that_it_may_see_nothing_any_more(a_day: Day) -> None:
    """The last test: Bob's server has no other token for the gateway until it is started anew."""
    hub, bob = a_day.hub, a_day.bob
    bob.lab.panel.get_by_text("No kernel has a GPU.").wait_for()
    tokens = hub.api("users/bob/tokens")["api_tokens"]
    [gateways] = [token["id"] for token in tokens if token["note"].startswith("The gateway")]
    hub.revoke_token("bob", gateways)
    bob.lab.panel.get_by_role("alert").filter(has_text="The server does not let you see its GPUs").wait_for()
