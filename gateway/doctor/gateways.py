"""Checks of several gateways behind one Hub: each answers at its address, and the Hub knows its token."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jupyter_aliquot.gateway.base.version import installed_version
from jupyter_aliquot.gateway.terminal.rest_client import OwnGateway
from jupyter_aliquot.provisioner.errors import AliquotError

from .hub_configuration import ConfigurationError, NamedGateway, read_gateways
from .runner import FAIL, OK, WARN, Finding

_ABOUT = "gateways"
_PATIENCE_SECONDS = 8.0
_STATUS = "aliquot/api/v1/status"


def look_at_gateways(config: Path, variables: Mapping[str, str]) -> Sequence[Finding]:
    """Return what is found of the gateways that the Hub's configuration names.

    *variables* are those of the Hub's unit.
    """
    try:
        gateways = read_gateways(config, variables)
    except ConfigurationError as error:
        return [Finding(_ABOUT, WARN, str(error), error.remedy)]
    if not gateways:
        return []
    names = ", ".join(one.name for one in gateways)
    told = f"{config} names {len(gateways)}: {names}. All other checks are of this machine alone"
    with ThreadPoolExecutor(len(gateways)) as pool:  # one that hangs holds up no other
        return [Finding(_ABOUT, OK, told), *(one for found in pool.map(_look_at, gateways) for one in found)]


def _look_at(gateway: NamedGateway) -> Sequence[Finding]:
    found = [_look_at_address(gateway)]
    return [*found, _look_at_token(gateway)] if gateway.token else found


def _look_at_address(gateway: NamedGateway) -> Finding:
    """Ask for the status without a token, which a gateway of this name refuses."""
    where = f"{gateway.name} at {gateway.address}"
    try:
        code = _status_of(f"{gateway.address}/{_STATUS}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        remedy = (
            f"start it on its machine, open its port to this one, or correct its url in gateways=[…] ({gateway.name})"
        )
        return Finding(_ABOUT, FAIL, f"{where} does not answer: {reason}", remedy)
    if code in (401, 403):
        return Finding(_ABOUT, OK, f"{where} answers, and asks for a token")
    if code == 200:
        return Finding(_ABOUT, FAIL, f"{where} tells its status to everybody", "start it with: aliquot serve --hub")
    told = f"{where} answers HTTP {code}: another program, or a gateway of another name"
    remedy = (
        f"start it with JUPYTERHUB_SERVICE_NAME={gateway.name} and JUPYTERHUB_SERVICE_PREFIX=/services/{gateway.name}/"
    )
    return Finding(_ABOUT, FAIL, told, remedy)


def _status_of(url: str, token: str = "") -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def _look_at_token(gateway: NamedGateway) -> Finding:
    """Ask the Hub whose the gateway's token is."""
    request = urllib.request.Request(f"{gateway.hub_api}/user", headers={"Authorization": f"token {gateway.token}"})
    remedy = f"give the gateway {gateway.name} the api_token of its entry in gateways=[…], and restart the Hub"
    if len(gateway.token.split()) != 1:
        told = f"the api_token of {gateway.name} has blanks, with which the Hub knows no request's token"
        return Finding(_ABOUT, FAIL, told, f"{remedy}: one of letters and digits")
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
            owner = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        error.close()
        return Finding(_ABOUT, FAIL, f"the Hub refuses the api_token of {gateway.name} ({error.code})", remedy)
    except (OSError, http.client.HTTPException, ValueError) as error:
        told = f"the Hub at {gateway.hub_api} could not be asked about the api_token of {gateway.name}: {error}"
        return Finding(_ABOUT, WARN, told, "start the Hub, and look again")
    if (owner.get("kind"), owner.get("name")) != ("service", gateway.name):
        return Finding(_ABOUT, FAIL, f"the api_token of {gateway.name} is that of {owner.get('name')}", remedy)
    scopes = [str(one) for one in owner.get("scopes", ())]
    if wide := [one for one in scopes if one.startswith("admin")]:
        told = f"the api_token of {gateway.name} opens more than a gateway needs: {', '.join(sorted(wide))}"
        return Finding(
            _ABOUT, WARN, told, f"take the service {gateway.name} out of those roles (c.JupyterHub.load_roles)"
        )
    return Finding(_ABOUT, OK, f"the Hub knows the api_token of {gateway.name}")


def check_chosen_gateway() -> Sequence[Finding]:
    """Check in a user's server that its gateway is of this environment's version."""
    url = os.environ.get("JUPYTER_GATEWAY_URL", "")
    if not url:
        return []
    try:
        version = str(OwnGateway.elsewhere(os.environ)[-1].ask("status", seconds=_PATIENCE_SECONDS)["version"])
    except (AliquotError, KeyError, TypeError) as error:
        remedy = "correct JUPYTER_GATEWAY_URL and JUPYTER_GATEWAY_AUTH_TOKEN; see also the gateway's log"
        return [Finding("gateway", FAIL, f"{url} does not tell its status: {error}", remedy)]
    if version != (own := installed_version()):
        told = f"{url} is version {version}, and this environment has {own}"
        return [Finding("gateway", WARN, told, "install the same version on both sides")]
    return [Finding("gateway", OK, f"{url}, version {version}")]
