"""The lab extension is small where JupyterLab waits for it: bounds of its committed bundle."""

from __future__ import annotations

import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from bundle_size import MOST_FIRST_BYTES, MOST_SIDEBAR_BYTES, bundle_size, excesses  # noqa: E402

_FIRST = "labextension_lib_index_js.0123456789abcdef.js"
_LATER = "labextension_lib_widgets_admin_admin_area_js.0123456789abcdef.js"


def test_the_committed_bundle_is_within_its_bounds() -> None:
    size = bundle_size()
    assert 10_000 < size.first_module < size.sidebar < size.whole, "the files have other names than are looked for"
    assert excesses(size) == []


def test_a_first_module_that_holds_the_code_of_a_plugin_is_refused(tmp_path: Path) -> None:
    (tmp_path / _FIRST).write_bytes(b" " * (MOST_FIRST_BYTES + 1))
    [sentence] = excesses(bundle_size(tmp_path))
    assert sentence.startswith(f"the first module of the lab extension has {MOST_FIRST_BYTES + 1} bytes")


def test_pages_that_are_opened_later_are_not_of_the_sidebar(tmp_path: Path) -> None:
    code = random.Random(1).randbytes(MOST_SIDEBAR_BYTES + 1)  # no shorter when it is packed
    (tmp_path / _LATER).write_bytes(code)
    assert excesses(bundle_size(tmp_path)) == []
    (tmp_path / _LATER).rename(tmp_path / "labextension_lib_activations_js.0123456789abcdef.js")
    [sentence] = excesses(bundle_size(tmp_path))
    assert sentence.startswith("the bundle of the sidebar, gzipped, has ")
