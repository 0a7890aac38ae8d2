"""Whom a command asks that is for kernels elsewhere: what Jupyter's variables name, in which order."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from aliquot.gateway.own_gateway import GatewayRefusal, OwnGateway

GATEWAY = {"JUPYTER_GATEWAY_URL": "http://gpu:8888/services/aliquot", "JUPYTER_GATEWAY_AUTH_TOKEN": "t"}
SERVER = {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:9/user/alice/", "JUPYTERHUB_API_TOKEN": "own"}


def test_a_users_server_comes_before_its_gateway_and_a_service_is_no_users_server() -> None:
    gateway = OwnGateway("http://gpu:8888/services/aliquot/", "t")
    assert OwnGateway.elsewhere({}) == OwnGateway.elsewhere(SERVER | {"JUPYTERHUB_USER": "alice"}) == ()
    assert OwnGateway.elsewhere(GATEWAY) == OwnGateway.elsewhere(GATEWAY | SERVER) == (gateway,)
    asked = OwnGateway.elsewhere(GATEWAY | SERVER | {"JUPYTERHUB_USER": "alice"})
    assert asked == (OwnGateway("http://127.0.0.1:9/user/alice/", "own"), gateway)


@pytest.mark.parametrize("way", ["redirect", "proxy"])
def test_a_token_goes_to_whom_it_is_for_and_nowhere_else(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    class Gateway(Elsewhere):
        def do_GET(self) -> None:
            if way == "proxy":
                return super().do_GET()
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{elsewhere.server_port}/login")
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere, HTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        for server in (elsewhere, gateway):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            asked = OwnGateway(f"http://127.0.0.1:{gateway.server_port}/", "secret")
            if way == "proxy":
                monkeypatch.delenv("no_proxy", raising=False)
                monkeypatch.delenv("NO_PROXY", raising=False)
                monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{elsewhere.server_port}")
                assert asked.ask("status") == {}
                assert heard == ["/aliquot/api/status"], "asked as Jupyter's own client asks it"
            else:
                with pytest.raises(GatewayRefusal, match="answered 302"):
                    asked.ask("status")
                assert heard == []
        finally:
            for server in (elsewhere, gateway):
                server.shutdown()
