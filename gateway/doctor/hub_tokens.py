"""Checks of the Hub's version, and of the scopes of the token that this environment has."""

from __future__ import annotations

import importlib.metadata
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement

from jupyter_aliquot.gateway.hub.scopes import ADMIN_SCOPE

from .runner import FAIL, OK, WARN, Finding

_DISTRIBUTION = "jupyter-aliquot"
_ACCESS = "access:services"
_PATIENCE_SECONDS = 10.0


def check_hub_version() -> Sequence[Finding]:
    """Check that this environment has a JupyterHub of a version that Aliquot knows."""
    needed = next(
        one
        for text in importlib.metadata.requires(_DISTRIBUTION) or ()
        if (one := Requirement(text)).name == "jupyterhub"
    )
    remedy = "in a checkout: pip install '.[hub,lab]'"
    try:
        version = importlib.metadata.version("jupyterhub")
    except importlib.metadata.PackageNotFoundError:
        return [Finding("jupyterhub", FAIL, "it is not installed in this environment", remedy)]
    if not needed.specifier.contains(version, prereleases=True):
        return [Finding("jupyterhub", FAIL, f"{version} is installed, {needed.specifier} is needed", remedy)]
    return [Finding("jupyterhub", OK, version)]


def check_token_scopes(environ: Mapping[str, str] = os.environ) -> Sequence[Finding]:
    """Check that the token for the gateway opens the gateway, and nothing else."""
    token, api = environ.get("JUPYTER_GATEWAY_AUTH_TOKEN"), environ.get("JUPYTERHUB_API_URL")
    if not token or not api:
        found = "this environment has no token of a user's server; the terminal of such a server has one"
        return [Finding("token", OK, found)]
    request = urllib.request.Request(f"{api.rstrip('/')}/user", headers={"Authorization": f"token {token}"})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
            scopes = set(json.loads(answer.read()).get("scopes", []))
    except urllib.error.HTTPError as error:
        return [Finding("token", FAIL, f"the Hub refuses it ({error.code})", "start the server anew")]
    except (OSError, ValueError) as error:
        return [Finding("token", WARN, f"the Hub at {api} could not be asked: {error}", "look at the Hub")]
    # The Hub adds what follows from a scope: reading what the token itself is.
    more = sorted(one for one in scopes if not one.startswith((_ACCESS, "read:")) and one != ADMIN_SCOPE)
    if not any(one.startswith(_ACCESS) for one in scopes):
        found = f"it lacks the scope {_ACCESS}: the gateway refuses it"
        return [Finding("token", FAIL, found, "call configure(c) at the end of jupyterhub_config.py")]
    if more:
        return [Finding("token", WARN, f"it opens more than the gateway: {', '.join(more)}", "start the server anew")]
    return [Finding("token", OK, "it opens the gateway and nothing else")]
