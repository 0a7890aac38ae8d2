"""The choice of a GPU size on the Hub's spawn page: its HTML, and the reading of a submitted form.

It checks no size.

The form works without a script and with a keyboard: radio buttons in a fieldset, and below them a
text field for another size. A text in the field counts before a marked button.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .size_choice import LONGEST_SIZE, SizeChoiceError, choice_label

FIELD = "gpu"
CUSTOM_FIELD = "gpu-custom"
# The grammar's sizes, loosely: the server reads them again. KubeSpawner would read braces as a
# template.
CUSTOM_PATTERN = r"[0-9]+(\.[0-9][0-9]?)?(-[0-9]+[gG])?(-[lL][oO][wW])?"


def size_form(offered: Sequence[str], chosen: str, limit: str, has_custom: bool) -> str:
    """Return the form.

    ``chosen`` is the selected size: one of those on offer or, with ``has_custom``, any size, which
    is then listed, too.
    """
    listed = list(dict.fromkeys([*offered, chosen]))
    rows = [_radio(size, choice_label(size), size == chosen) for size in listed]
    help_text = (
        "New kernels get this size unless their notebook requests another. The server itself holds no GPU. "
        f"A kernel can have up to {limit} GPU."
    )
    return (
        '<fieldset class="aliquot-gpu" aria-describedby="aliquot-gpu-help" style="border: 0; padding: 0">'
        '<legend style="font-size: inherit; font-weight: bold">GPU for kernels</legend>'
        f"{''.join(rows)}{_text() if has_custom else ''}"
        f'<p id="aliquot-gpu-help" class="form-text">{escape(help_text)}</p></fieldset>'
    )


def read_form(form: Mapping[str, Sequence[str]]) -> str | None:
    """Return the requested size, unchecked: the text, else the marked button; None for neither.

    Raises SizeChoiceError for a field that was sent twice.
    """
    marked, written = _only(form, FIELD), _only(form, CUSTOM_FIELD)
    return (written or "").strip() or marked


def rest_of(form: Mapping[str, Any], ours: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields of other parts of the form than the size and *ours*."""
    return {name: values for name, values in form.items() if name not in (FIELD, CUSTOM_FIELD, *ours)}


def _only(form: Mapping[str, Sequence[str]], name: str) -> str | None:
    values = form.get(name)
    if not values:
        return None
    if isinstance(values, str):
        return values
    if len(values) > 1:
        shown = ", ".join(repr(value[:LONGEST_SIZE]) for value in values[:2])
        raise SizeChoiceError(f"Requested {len(values)} GPU sizes in the field {name!r} ({shown}). Choose one")
    return values[0]


def _radio(value: str, label: str, is_checked: bool) -> str:
    element = f"aliquot-gpu-{escape(value)}"
    checked = " checked" if is_checked else ""
    return (
        f'<div class="form-check"><input class="form-check-input" type="radio" name="{FIELD}" id="{element}" '
        f'value="{escape(value)}"{checked}> '
        f'<label class="form-check-label" for="{element}">{escape(label)}</label></div>'
    )


def _text() -> str:
    return (
        '<label class="form-label" for="aliquot-gpu-custom-size" style="margin-top: 0.5rem">Another size:</label> '
        f'<input class="form-control" type="text" name="{CUSTOM_FIELD}" id="aliquot-gpu-custom-size" '
        f'aria-describedby="aliquot-gpu-grammar" pattern="{escape(CUSTOM_PATTERN)}" '
        f'placeholder="for example 0.5-8g" maxlength="{LONGEST_SIZE}" autocomplete="off">'
        '<small id="aliquot-gpu-grammar" class="form-text">A size entered here replaces the selection above. '
        "Enter GPUs in steps of 0.01. Append -8g to limit the memory to 8 GiB, -low for low priority: "
        "0.25, 2.5, 0.5-8g, 0.25-low.</small>"
    )
