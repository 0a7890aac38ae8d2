"""Whom a command asks that is for kernels elsewhere: what Jupyter's variables name, in which order."""

from __future__ import annotations

from aliquot.gateway.own_gateway import OwnGateway

GATEWAY = {"JUPYTER_GATEWAY_URL": "http://gpu:8888/services/aliquot", "JUPYTER_GATEWAY_AUTH_TOKEN": "t"}
SERVER = {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:9/user/alice/", "JUPYTERHUB_API_TOKEN": "own"}


def test_a_users_server_comes_before_its_gateway_and_a_service_is_no_users_server() -> None:
    gateway = OwnGateway("http://gpu:8888/services/aliquot/", "t")
    assert OwnGateway.elsewhere({}) == OwnGateway.elsewhere(SERVER | {"JUPYTERHUB_USER": "alice"}) == ()
    assert OwnGateway.elsewhere(GATEWAY) == OwnGateway.elsewhere(GATEWAY | SERVER) == (gateway,)
    asked = OwnGateway.elsewhere(GATEWAY | SERVER | {"JUPYTERHUB_USER": "alice"})
    assert asked == (OwnGateway("http://127.0.0.1:9/user/alice/", "own"), gateway)
