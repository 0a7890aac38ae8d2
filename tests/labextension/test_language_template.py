"""The template of language packs has every text of the lab extension."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_REPOSITORY / "tools"))
import language_template  # noqa: E402


def test_the_committed_template_is_what_the_sources_have() -> None:
    committed = language_template.TEMPLATE.read_text()
    assert committed == language_template.template(), "run tools/language_template.py"


def test_texts_are_found_over_several_lines_in_both_quotes_and_with_plurals() -> None:
    source = """
      trans.__('It\\'s %1', name);
      this._trans.__(
        "a \\"word\\"",
        name
      );
      trans._n('%1 kernel', '%1 kernels', count)
    """
    found = list(language_template.of_source(source, "a.ts"))
    assert found == [("", "It's %1", ""), ("", 'a "word"', ""), ("", "%1 kernel", "%1 kernels")]


@pytest.mark.parametrize("call", ["trans.__(text)", "trans.__('a' + name)", "trans.__(`a ${name}`)"])
def test_a_text_that_is_put_together_is_an_error(call: str) -> None:
    with pytest.raises(ValueError, match=r"a\.ts:2 translates a text that is no literal"):
        list(language_template.of_source(f"\n{call}", "a.ts"))


def test_titles_of_settings_and_of_the_administrators_view_are_in_it() -> None:
    texts = {text for _, text, _ in language_template.entries()}
    assert {"Refresh interval", "GPU Administration", "Swap Out…", "GPU-Hours"} <= texts
    assert len(texts) > 300
