"""The messages of this machine's gateway about what is wrong: its status has them for administrators."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, Gateways, NoGatewayHere

from .runner import OK, WARN, Finding

_ABOUT = "gateway's messages"
_NAMED = "JUPYTER_GATEWAY_URL names that gateway: correct the variables, or unset them to use this machine's"


def check_messages() -> Sequence[Finding]:
    """Return the message of the gateway's status; nothing without a gateway of this user's.

    A gateway that Jupyter's variables name has to answer.
    """
    gateways = Gateways.of("")
    try:
        _, report = gateways.ask("status")
        message = report["node"]["message"]
    except (NoGatewayHere, GatewayRefusal) as error:
        # Another check says that none of this machine answers.
        return [Finding(_ABOUT, WARN, str(error), _NAMED)] if gateways.elsewhere else []
    except (KeyError, TypeError):
        return []
    if not message:
        return [Finding(_ABOUT, OK, "none: it keeps its files, and its configuration is in force")]
    return [Finding(_ABOUT, WARN, str(message), "each line says what to do; see `aliquot status`")]
