"""What the browser tests stand on: axe-core sees a fault, themes change in place, pictures are small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.labextension.lab_page import LabPage

pytestmark = pytest.mark.browser

_FAINT = """() => {
  const bad = document.createElement('p');
  bad.id = 'a-faint-text';
  bad.textContent = 'you can hardly read this';
  bad.style.cssText = 'color: #bbb; background: #fff; position: fixed; top: 0; z-index: 9999';
  document.body.append(bad);
}"""


def test_axe_sees_text_that_is_too_faint_and_our_empty_parts_pass_in_both_themes(an_unscripted_lab: LabPage) -> None:
    lab = an_unscripted_lab
    lab.page.evaluate(_FAINT)
    assert any("color-contrast" in fault for fault in lab.violations("#a-faint-text"))
    lab.show_panel()
    for theme in lab.in_both_themes():
        assert lab.page.evaluate("() => document.body.dataset.jpThemeLight") == str(theme == "light").lower()
        assert lab.violations("#aliquot-gpu-kernels") == [], theme
