"""The choice of one of several gateways: its list on the spawn page, and the check of a choice.

It asks no gateway itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from .availability import Availabilities, Availability
from .gateways import SERVER_FIELD, Gateway, Gateways
from .size_choice import LONGEST_SIZE

# A refusal shows only so much of a name that no gateway has.
_SHOWN = LONGEST_SIZE


class GatewayChoiceError(Exception):
    """A choice was refused; the message is for the page and the API."""


class GatewayAwayError(GatewayChoiceError):
    """The chosen gateway is down, and another is up."""


def gateway_text(gateway: Gateway, found: Availability) -> str:
    """Return the text of a choice: ``gpu-1 · A100s · 1.5 of 4 GPUs free``."""
    return " · ".join(part for part in (gateway.name, gateway.label, found.phrase()) if part)


def preselected(gateways: Gateways, answers: Mapping[str, Availability], last: object) -> str:
    """Return the gateway that is marked on the page: the last choice if it is up, else the first that is."""
    up = [name for name in gateways.names if answers[name].is_up]
    if last in up or (not up and last in gateways.names):
        return str(last)
    return (up or gateways.names)[0]


def gateway_form(gateways: Gateways, answers: Mapping[str, Availability], chosen: str) -> str:
    """Return the list of gateways with what each has free. One that is down can be chosen: it may be back."""
    rows = "".join(_radio(one.name, gateway_text(one, answers[one.name]), one.name == chosen) for one in gateways.each)
    return (
        '<fieldset class="aliquot-gpu-server" aria-describedby="aliquot-gpu-server-help" '
        'style="border: 0; padding: 0"><legend style="font-size: inherit; font-weight: bold">GPU server</legend>'
        f'{rows}<p id="aliquot-gpu-server-help" class="form-text">'
        "Your kernels run on this machine. Kernels that you left on another one stay there until you choose it again."
        "</p></fieldset>"
    )


def read_server(form: Mapping[str, Any]) -> str | None:
    """Return the requested gateway of a form, unchecked; None for none."""
    values = form.get(SERVER_FIELD)
    if not values:
        return None
    if isinstance(values, str):
        return values
    if len(values) > 1:
        raise GatewayChoiceError(f"Requested {len(values)} GPU servers. Choose one")
    return str(values[0])


def gateway_option(gateways: Gateways, answers: Mapping[str, Availability], last: object) -> dict[str, Any]:
    """Return the entry for a KubeSpawner profile's `profile_options`.

    It overrides nothing: the pod's environment is made of the user's options.
    """
    chosen = preselected(gateways, answers, last)
    return {
        "display_name": "GPU server",
        "choices": {
            one.name: {
                "display_name": gateway_text(one, answers[one.name]),
                "kubespawner_override": {},
                **({"default": True} if one.name == chosen else {}),
            }
            for one in gateways.each
        },
    }


async def choose(gateways: Gateways, available: Availabilities, spawner: Any, asked: object) -> Gateway:
    """Return the gateway of the name that was asked for, or the first that answers where none was.

    Raises GatewayChoiceError for an unknown one, GatewayAwayError for one that is down while another
    is up. Where all are down the server starts all the same: the user's files stay within reach.
    """
    if asked is None or asked == "":
        answers = await available.on_page(spawner)
        gateway = gateways.find(preselected(gateways, answers, None))
    else:
        gateway = gateways.find(asked)
    if gateway is None:
        raise GatewayChoiceError(
            f"Requested the GPU server {str(asked)[:_SHOWN]!r}, which this Hub does not have. "
            f"Use one of {', '.join(gateways.names)}"
        )
    found = await available.at_start(gateway, spawner)
    if not found.is_up:
        answers = await available.on_page(spawner)
        if up := [name for name in gateways.names if answers[name].is_up and name != gateway.name]:
            raise GatewayAwayError(
                f"The GPU server {gateway.name} {found.sentence()}. Choose another ({', '.join(up)}), or tell an "
                "administrator"
            )
    return gateway


def _radio(name: str, text: str, is_checked: bool) -> str:
    element = f"aliquot-gpu-server-{escape(name)}"
    checked = " checked" if is_checked else ""
    return (
        f'<div class="form-check"><input class="form-check-input" type="radio" name="{SERVER_FIELD}" id="{element}" '
        f'value="{escape(name)}"{checked}> '
        f'<label class="form-check-label" for="{element}">{escape(text)}</label></div>'
    )
