"""The gateway's own page of administrators: the view without Lab, before a real gateway."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.accessibility import violations
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import TOKENS, GatewayProcess, an_empty_notebook
else:
    from accessibility import violations
    from lab_page import LabPage
    from server_processes import TOKENS, GatewayProcess, an_empty_notebook

pytestmark = pytest.mark.browser


def test_without_lab_an_administrator_sees_a_users_kernel_and_ends_it(
    a_shared_gateway: GatewayProcess, alices_lab: LabProcess, pages: Callable[[], Page]
) -> None:
    alice = LabPage(pages()).open(alices_lab.lab_url)
    path = an_empty_notebook(alices_lab.notebooks, "mine.ipynb", "python3.gpu-0.25")
    alice.open_notebook(path, "python3.gpu-0.25")
    alice.show_panel()
    page, errors = pages(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(f"{a_shared_gateway.url}aliquot/admin?token={TOKENS['ada']}")
    row = page.get_by_role("grid", name="Kernels").get_by_role("row").filter(has_text="alice")
    row.get_by_text("0.25", exact=True).wait_for()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for tab in page.get_by_role("tab").all():
            tab.click()
            assert violations(page, "body") == [], scheme
    page.get_by_role("tab", name="Kernels").click()
    row.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Message Owner…").click()
    dialog.get_by_label("Message").fill("From the page without Lab.")
    dialog.get_by_role("button", name="Send Message").click()
    alice.page.locator(".Toastify__toast", has_text="From the page without Lab.").wait_for()
    row.click()
    dialog.get_by_role("button", name="End…").click()
    dialog.get_by_role("button", name="End Kernel").click()
    page.get_by_text("No kernel holds a GPU or waits for one.").wait_for()
    alice.panel.get_by_text("No kernel has a GPU").wait_for()
    assert errors == [], "the policy of the page allows all that it does"


def test_without_lab_an_administrator_cordons_the_node_and_uncordons_it(
    a_shared_gateway: GatewayProcess, a_page: Page
) -> None:
    a_page.goto(f"{a_shared_gateway.url}aliquot/admin?token={TOKENS['ada']}")
    a_page.get_by_role("tab", name="Nodes and GPUs").click()
    node = a_page.get_by_role("table", name="Nodes").get_by_role("row").nth(1)
    dialog = a_page.get_by_role("dialog")
    node.get_by_role("button", name="Cordon…").click()
    dialog.get_by_label("Reason").fill("new driver")
    dialog.get_by_role("button", name="Cordon", exact=True).click()
    node.get_by_text(re.compile("; cordoned since .+: new driver$")).wait_for()
    node.get_by_role("button", name="Uncordon…").click()
    dialog.get_by_role("button", name="Uncordon", exact=True).click()
    node.get_by_role("button", name="Cordon…").and_(node.get_by_text("Cordon…", exact=True)).wait_for()
    assert node.get_by_text("cordoned since").count() == 0


def test_the_pages_policy_lets_no_other_script_run(a_shared_gateway: GatewayProcess, a_page: Page) -> None:
    answer = a_page.goto(f"{a_shared_gateway.url}aliquot/admin?token={TOKENS['ada']}")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert "unsafe" not in policy
    a_page.evaluate("""() => {
        const script = document.createElement('script');
        script.textContent = 'globalThis.wasRun = true';
        document.body.append(script);
    }""")
    assert a_page.evaluate("globalThis.wasRun") is None


def test_users_do_not_get_the_page(a_shared_gateway: GatewayProcess) -> None:
    for name in ("aliquot/admin", "aliquot/admin/admin.js"):
        headers = {"Authorization": f"token {TOKENS['alice']}"}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{a_shared_gateway.url}{name}", headers=headers))
        assert refused.value.code == 403
