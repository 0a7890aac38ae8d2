"""A service's settings in the environment that JupyterHub gives it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.hub_service.environment import read_hub_service
from jupyter_aliquot.gateway.serverapp.hub_app import HubGatewayServerApp

ENVIRONMENT = {
    "JUPYTERHUB_API_TOKEN": "a-secret",
    "JUPYTERHUB_API_URL": "http://127.0.0.1:8081/hub/api",
    "JUPYTERHUB_SERVICE_NAME": "aliquot",
    "JUPYTERHUB_SERVICE_PREFIX": "/services/aliquot/",
    "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:8890",
}


def test_the_variables_that_a_hub_needs_are_enough() -> None:
    service = read_hub_service(dict(ENVIRONMENT))
    assert (service.ip, service.port, service.prefix) == ("127.0.0.1", 8890, "/services/aliquot/")
    assert service.scopes == {"access:services!service=aliquot"}
    assert service.client_id == "service-aliquot"
    assert service.callback_url == "/services/aliquot/oauth_callback"


def test_the_secret_is_taken_out_of_the_environment_and_of_what_is_printed() -> None:
    environment = dict(ENVIRONMENT)
    service = read_hub_service(environment)
    assert service.api_token == "a-secret"
    assert "a-secret" not in environment.values()
    assert "a-secret" not in repr(service)


def test_the_secret_is_not_where_the_system_shows_a_process_environment() -> None:
    code = (
        "import os\nfrom jupyter_aliquot.gateway.hub_service.environment import read_hub_service\n"
        "service = read_hub_service(os.environ)\n"
        "print(service.api_token, open('/proc/self/environ').read().count(service.api_token))"
    )
    told = {**os.environ, **ENVIRONMENT, "JPY_API_TOKEN": "a-secret"}
    ran = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["a-secret", "0"]


@pytest.mark.parametrize(("scheme", "is_secure"), [("http", False), ("https", True)])
def test_a_hub_with_internal_tls_is_asked_by_it_and_comes_by_what_the_address_says(
    scheme: str, is_secure: bool
) -> None:
    files = {f"JUPYTERHUB_SSL_{name}": f"/{name.lower()}" for name in ("KEYFILE", "CERTFILE", "CLIENT_CA")}
    service = read_hub_service({**ENVIRONMENT, **files, "JUPYTERHUB_SERVICE_URL": f"{scheme}://127.0.0.1:8890"})
    assert (service.keyfile, service.certfile, service.client_ca) == ("/keyfile", "/certfile", "/client_ca")
    server = HubGatewayServerApp(hub=service)
    served = ("/keyfile", "/certfile", "/client_ca") if is_secure else ("", "", "")
    assert (server.keyfile, server.certfile, server.client_ca) == served


@pytest.mark.parametrize("name", sorted(ENVIRONMENT))
def test_a_missing_variable_is_named(name: str) -> None:
    environment = {key: value for key, value in ENVIRONMENT.items() if key != name}
    with pytest.raises(UsageError, match=f"but it has no {name}"):
        read_hub_service(environment)


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [
        ("JUPYTERHUB_SERVICE_URL", "127.0.0.1:8890", "the address to listen at"),
        ("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:many", "the address to listen at"),
        ("JUPYTERHUB_API_URL", "here", "the Hub's API"),
        ("JUPYTERHUB_OAUTH_ACCESS_SCOPES", "[]", "a list of scopes"),
        ("JUPYTERHUB_OAUTH_ACCESS_SCOPES", "access:services", "a list of scopes"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(name: str, value: str, want: str) -> None:
    with pytest.raises(UsageError, match=f"{name}=.*is not valid.*{want}"):
        read_hub_service({**ENVIRONMENT, name: value})
