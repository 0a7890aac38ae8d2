"""The choice of a GPU size as part of the Hub's spawn page: HTML, and what a form that was sent says. Checks nothing.

Works without a script and with a keyboard: radio buttons in a fieldset, and a text field for another size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from aliquot.gateway.hub.size_choice import choice_label

FIELD = "gpu"
CUSTOM_FIELD = "gpu-custom"
CUSTOM = "custom"
# The grammar's sizes, loosely: the server reads them again. Braces would be read as a template by KubeSpawner.
CUSTOM_PATTERN = r"[0-9]+(\.[0-9][0-9]?)?(-[0-9]+[gG])?(-[lL][oO][wW])?"


def size_form(offered: Sequence[str], chosen: str, limit: str, has_custom: bool) -> str:
    """``chosen``: what stands selected, one of the offered or, with ``has_custom``, any size."""
    is_listed = chosen in offered
    rows = [_radio(size, choice_label(size), is_listed and size == chosen) for size in offered]
    if has_custom:
        rows.append(_radio(CUSTOM, "Another size:", not is_listed) + _text("" if is_listed else chosen))
    help_text = (
        "The size that new kernels get if their notebook asks for none; the server itself holds no GPU. "
        f"You may ask for up to {limit} GPU in one kernel."
    )
    return (
        '<fieldset class="aliquot-gpu" aria-describedby="aliquot-gpu-help" style="border: 0; padding: 0">'
        '<legend style="font-size: inherit; font-weight: bold">GPU for kernels</legend>'
        f"{''.join(rows)}"
        f'<p id="aliquot-gpu-help" class="form-text">{escape(help_text)}</p></fieldset>'
    )


def read_form(form: Mapping[str, Sequence[str]]) -> str | None:
    """What was chosen, unchecked; None where the form has no such field."""
    chosen = _first(form, FIELD)
    return _first(form, CUSTOM_FIELD) or "" if chosen == CUSTOM else chosen


def rest_of(form: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not ours."""
    return {name: values for name, values in form.items() if name not in (FIELD, CUSTOM_FIELD)}


def _first(form: Mapping[str, Sequence[str]], name: str) -> str | None:
    values = form.get(name)
    if not values:
        return None
    return values if isinstance(values, str) else values[0]


def _radio(value: str, label: str, is_checked: bool) -> str:
    # The custom row's text field stands after its label, so that each has a name of its own.
    element = f"aliquot-gpu-{escape(value)}"
    checked = " checked" if is_checked else ""
    return (
        f'<div class="form-check"><input class="form-check-input" type="radio" name="{FIELD}" id="{element}" '
        f'value="{escape(value)}"{checked}> '
        f'<label class="form-check-label" for="{element}">{escape(label)}</label></div>'
    )


def _text(value: str) -> str:
    return (
        f'<input class="form-control" type="text" name="{CUSTOM_FIELD}" id="aliquot-gpu-custom-size" '
        f'aria-label="Another GPU size" aria-describedby="aliquot-gpu-grammar" value="{escape(value)}" '
        f'pattern="{escape(CUSTOM_PATTERN)}" placeholder="0.5-8g" autocomplete="off">'
        '<small id="aliquot-gpu-grammar" class="form-text">GPUs from 0.01 in steps of 0.01; -8g after it limits the '
        "memory to 8 GiB, -low takes what others leave: 0.25, 2.5, 0.5-8g, 0.25-low</small>"
    )
