"""The base of the browser tests.

axe-core finds a fault, themes change in place, a reload keeps the open widgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.labextension.desk import Desk
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from desk import Desk

pytestmark = pytest.mark.browser

_FAINT = """() => {
  const bad = document.createElement('p');
  bad.id = 'a-faint-text';
  bad.textContent = 'you can hardly read this';
  bad.style.cssText = 'color: #bbb; background: #fff; position: fixed; top: 0; z-index: 9999';
  document.body.append(bad);
}"""

_SAVES_LATE = """() => {
  const { workspaces } = jupyterapp.serviceManager;
  const save = workspaces.save.bind(workspaces);
  workspaces.save = async (...what) => {
    await new Promise(resolve => setTimeout(resolve, 5000));
    return save(...what);
  };
}"""


def test_axe_sees_text_that_is_too_faint_and_our_empty_parts_pass_in_both_themes(an_unscripted_lab: LabPage) -> None:
    lab = an_unscripted_lab
    lab.page.evaluate(_FAINT)
    assert any("color-contrast" in fault for fault in lab.violations("#a-faint-text"))
    lab.show_panel()
    for theme in lab.in_both_themes():
        assert lab.page.evaluate("() => document.body.dataset.jpThemeLight") == str(theme == "light").lower()
        assert lab.violations("#aliquot-gpu-kernels") == [], theme


@pytest.mark.soak(alone="a long browser test")
def test_a_reload_waits_until_lab_has_noted_what_is_open(an_unscripted_lab: LabPage, a_plain_lab: LabProcess) -> None:
    """Lab notes its open widgets when its layout has been still for a while.

    A page that is loaded before has no notebook.
    """
    desk, page = Desk(an_unscripted_lab, a_plain_lab.notebooks), an_unscripted_lab.page
    path = desk.notebook("1")
    page.evaluate(_SAVES_LATE)
    desk.open(path, "python3")
    try:
        an_unscripted_lab.reload()
        page.locator("#jp-main-dock-panel").get_by_role("tab", name=path).wait_for()
    finally:
        desk.end_kernels()
