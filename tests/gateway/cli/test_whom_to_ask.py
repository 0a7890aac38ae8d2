"""Commands about kernels elsewhere: the gateway that Jupyter's variables name, in which order."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.auth import IdentityProvider

from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, NoGatewayHere, OwnGateway, Tls
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.addresses import scheme_problem

GATEWAY = {"JUPYTER_GATEWAY_URL": "http://gpu:8888/services/aliquot", "JUPYTER_GATEWAY_AUTH_TOKEN": "t"}
TOKEN = "JUPYTER_GATEWAY_AUTH_TOKEN"
SERVER = {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:9/user/alice/", "JUPYTERHUB_API_TOKEN": "own"}


def test_a_users_server_comes_before_its_gateway_and_a_service_is_no_users_server() -> None:
    gateway = OwnGateway("http://gpu:8888/services/aliquot/", "t")
    assert OwnGateway.elsewhere({}) == OwnGateway.elsewhere(SERVER | {"JUPYTERHUB_USER": "alice"}) == ()
    assert OwnGateway.elsewhere(GATEWAY) == OwnGateway.elsewhere(GATEWAY | SERVER) == (gateway,)
    asked = OwnGateway.elsewhere(GATEWAY | SERVER | {"JUPYTERHUB_USER": "alice"})
    assert asked == (OwnGateway("http://127.0.0.1:9/user/alice/", "own"), gateway)


def test_a_gateway_that_is_named_without_a_token_is_asked_and_no_other() -> None:
    named = {"JUPYTER_GATEWAY_URL": "http://gpu:8888/services/aliquot"}
    gateway = OwnGateway("http://gpu:8888/services/aliquot/", "")
    assert OwnGateway.elsewhere(named) == (gateway,)
    assert OwnGateway.elsewhere({**named, "JUPYTERHUB_USER": "alice"}) == (gateway,)
    assert OwnGateway.elsewhere({**named, **SERVER, "JUPYTERHUB_USER": "alice"})[-1] == gateway


@pytest.mark.parametrize("code", [200, 401, 403])
def test_a_request_without_a_token_has_no_credentials_and_a_refusal_says_which_variable_is_missing(code: int) -> None:
    heard: list[str | None] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"])
            body = b"{}" if code == 200 else b'{"message": "Forbidden"}'
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        threading.Thread(target=gateway.handle_request, daemon=True).start()
        [asked] = OwnGateway.elsewhere({"JUPYTER_GATEWAY_URL": f"http://127.0.0.1:{gateway.server_port}"})
        if code == 200:
            assert asked.ask("status") == {}
        else:
            with pytest.raises(GatewayRefusal, match=rf"without a token \({code}\), and {TOKEN} is not set"):
                asked.ask("status")
    assert heard == [None]


def test_a_change_without_a_token_tells_what_a_gateway_without_one_takes() -> None:
    class Gateway(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"message": "\'_xsrf\' argument missing from POST"}'
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        threading.Thread(target=gateway.handle_request, daemon=True).start()
        [asked] = OwnGateway.elsewhere({"JUPYTER_GATEWAY_URL": f"http://127.0.0.1:{gateway.server_port}"})
        with pytest.raises(GatewayRefusal, match="A gateway that has no token takes changes from its own pages alone"):
            asked.ask("cordons", "POST", {})


def certificates(folder: Path) -> dict[str, str]:
    """Return the paths of a key, its certificate for this machine, and their authority."""
    certipy = pytest.importorskip("certipy", reason="makes the certificates; comes with JupyterHub")
    maker = certipy.Certipy(store_dir=str(folder))
    maker.create_ca("authority")
    files: dict[str, str] = maker.create_signed_pair("here", "authority", alt_names=["IP:127.0.0.1"])["files"]
    return files


def test_a_gateway_is_asked_by_the_scheme_and_the_certificates_that_jupyter_is_told(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    heard: list[str | None] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"])
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    demands = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files["ca"])
    demands.load_cert_chain(files["cert"], files["key"])
    demands.verify_mode = ssl.CERT_REQUIRED
    shown = {"JUPYTER_GATEWAY_CLIENT_CERT": files["cert"], "JUPYTER_GATEWAY_CLIENT_KEY": files["key"]}
    trusted = {"JUPYTER_GATEWAY_CA_CERTS": files["ca"]}
    with HTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        gateway.socket = demands.wrap_socket(gateway.socket, server_side=True)
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        told = {**GATEWAY, "JUPYTER_GATEWAY_URL": f"https://127.0.0.1:{gateway.server_port}"}

        def ask(**environ: str) -> object:
            [asked] = OwnGateway.elsewhere({**told, **environ})
            return asked.ask("status")

        try:
            assert ask(**shown, **trusted, JUPYTER_GATEWAY_AUTH_SCHEME="Bearer") == {}
            assert ask(**shown, JUPYTER_GATEWAY_VALIDATE_CERT="no") == {}
            assert heard == ["Bearer t", "token t"]
            with pytest.raises(NoGatewayHere, match="CERTIFICATE_VERIFY_FAILED"):
                ask(**shown)
            with pytest.raises(NoGatewayHere, match="does not answer"):
                ask(**trusted)
            with pytest.raises(NoGatewayHere, match=r"JUPYTER_GATEWAY_CA_CERTS='/nowhere'.* PEM"):
                ask(**shown, JUPYTER_GATEWAY_CA_CERTS="/nowhere")
        finally:
            gateway.shutdown()


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
                assert heard == ["/aliquot/api/v1/status"], "asked as Jupyter's own client asks it"
            else:
                with pytest.raises(GatewayRefusal, match="answered 302"):
                    asked.ask("status")
                assert heard == []
        finally:
            for server in (elsewhere, gateway):
                server.shutdown()


class PlainGateway(BaseHTTPRequestHandler):
    """A server of plain HTTP, which answers a wrong token as Jupyter does."""

    def do_GET(self) -> None:
        body = b'{"message": "Forbidden"}'
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def a_plain_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), PlainGateway) as gateway:
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        yield gateway.server_port
        gateway.shutdown()


@pytest.mark.parametrize("url", ["host:8888", "//host:8888", "ftp://host", "http://", "http://host:x", "http://h/ a"])
def test_an_address_of_another_form_is_told_with_its_variable_and_the_right_form(url: str) -> None:
    [asked] = OwnGateway.elsewhere({"JUPYTER_GATEWAY_URL": url, TOKEN: "t"})
    with pytest.raises(NoGatewayHere, match=r"^JUPYTER_GATEWAY_URL: .* Write http:// or https:// before HOST:PORT"):
        asked.ask("status")


def test_an_address_with_a_password_is_told_without_it() -> None:
    [asked] = OwnGateway.elsewhere({"JUPYTER_GATEWAY_URL": "http://ada:secret@host:8888"})
    with pytest.raises(NoGatewayHere, match=r"'…@host:8888/' has a user's name in it") as caught:
        asked.ask("status")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "http://127.0.0.1:8888/?token=secret",
            "'http://127.0.0.1:8888/' goes on with a '[?]'. Leave out .* set " + TOKEN,
        ),
        ("http://127.0.0.1:8888/lab#secret", "'http://127.0.0.1:8888/lab' goes on with a '#'"),
        ("host:8888/?token=secret", "'host:8888/' is no address"),
        ("http://ada:word@host:8888/?token=secret", "'…@host:8888/' has a user's name"),
        ("http://ada:secret?word@host:8888/", "'…' is no address"),
    ],
)
def test_an_address_with_a_token_is_told_without_it_and_no_request_is_sent(url: str, shown: str) -> None:
    [asked] = OwnGateway.elsewhere({"JUPYTER_GATEWAY_URL": url})
    with pytest.raises(NoGatewayHere, match=f"^JUPYTER_GATEWAY_URL: {shown}") as caught:
        asked.ask("status")
    assert "secret" not in str(caught.value)
    assert "word" not in str(caught.value)


def test_https_to_a_port_of_plain_http_is_said_to_be_that(a_plain_port: int) -> None:
    [asked] = OwnGateway.elsewhere({"JUPYTER_GATEWAY_URL": f"https://127.0.0.1:{a_plain_port}", TOKEN: "t"})
    with pytest.raises(NoGatewayHere, match=rf"speaks plain HTTP. Use http://127.0.0.1:{a_plain_port}/"):
        asked.ask("status")


def test_https_to_a_server_that_waits_for_a_whole_request_is_said_to_be_plain_http() -> None:
    """A real gateway reads the handshake as the beginning of a request."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            held = []
            while True:
                connection, _ = listening.accept()
                held.append(connection)
                if connection.recv(1 << 16).startswith(b"HEAD "):
                    connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")
                    return

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(NoGatewayHere, match="speaks plain HTTP"):
                OwnGateway(f"https://127.0.0.1:{listening.getsockname()[1]}/", "t").ask("status", seconds=1.0)
        finally:
            thread.join()


class BothWays(ThreadingHTTPServer):
    """A server of TLS which answers a plain request with 400, as nginx, Apache and Go do."""

    context: ssl.SSLContext

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if connection.recv(1, socket.MSG_PEEK) == b"\x16":
            return self.context.wrap_socket(connection, server_side=True), address
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        return connection, address


def test_a_server_that_wants_a_clients_certificate_is_asked_with_it_and_never_said_to_be_plain_http(
    tmp_path: Path,
) -> None:
    """A handshake without the certificate fails at once, as TLS 1.2 has it."""
    files = certificates(tmp_path)
    with BothWays(("127.0.0.1", 0), PlainGateway) as gateway:
        gateway.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files["ca"])
        gateway.context.load_cert_chain(files["cert"], files["key"])
        gateway.context.verify_mode, gateway.context.maximum_version = ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        url, without = f"https://127.0.0.1:{gateway.server_port}/", Tls(files["ca"])
        try:
            with pytest.raises(GatewayRefusal, match="does not know the token"):
                OwnGateway(url, "t", tls=Tls(files["ca"], files["cert"], files["key"])).ask("status")
            with pytest.raises(NoGatewayHere, match=r"does not answer: .*ALERT"):
                OwnGateway(url, "t", tls=without).ask("status")
        finally:
            gateway.shutdown()


def test_a_plain_answer_that_refuses_the_request_makes_no_port_one_of_plain_http() -> None:
    """An ingress may end a handshake without a word, as for a name that it does not know."""
    with BothWays(("127.0.0.1", 0), PlainGateway) as gateway:
        gateway.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        gateway.context.sni_callback = lambda *of: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        try:
            with pytest.raises(NoGatewayHere, match="does not answer"):
                OwnGateway(f"https://127.0.0.1:{gateway.server_port}/", "t").ask("status")
        finally:
            gateway.shutdown()


def test_a_port_that_speaks_tls_since_the_last_request_is_asked_again(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    with HTTPServer(("127.0.0.1", 0), PlainGateway) as gateway:
        asked = OwnGateway(f"https://127.0.0.1:{gateway.server_port}/", "t", tls=Tls(files["ca"]))
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        try:
            with pytest.raises(NoGatewayHere, match="speaks plain HTTP"):
                asked.ask("status")
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(files["cert"], files["key"])
            gateway.socket = context.wrap_socket(gateway.socket, server_side=True)
            with pytest.raises(GatewayRefusal, match="does not know the token"):
                asked.ask("status")
        finally:
            gateway.shutdown()


def test_plain_http_elsewhere_is_told_with_what_becomes_of_the_token() -> None:
    with HTTPServer(("0.0.0.0", 0), PlainGateway) as gateway:
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        try:
            here = scheme_problem(f"https://127.0.0.1:{gateway.server_port}/")
            assert here.endswith(f"Use http://127.0.0.1:{gateway.server_port}/")
            there = scheme_problem(f"https://0.0.0.0:{gateway.server_port}/")
            assert "only where you trust the network on the way: the token then goes there in plain text" in there
        finally:
            gateway.shutdown()


def test_plain_http_to_a_port_of_tls_is_said_to_be_that(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["cert"], files["key"])
    with ThreadingHTTPServer(("127.0.0.1", 0), PlainGateway) as gateway:
        gateway.socket = context.wrap_socket(gateway.socket, server_side=True)
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        try:
            with pytest.raises(NoGatewayHere, match=rf"port speaks TLS. Use https://127.0.0.1:{gateway.server_port}/"):
                OwnGateway(f"http://127.0.0.1:{gateway.server_port}/", "t").ask("status")
        finally:
            gateway.shutdown()


def test_a_wrong_token_is_told_with_its_place_and_the_way_to_a_right_one(a_plain_port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{a_plain_port}"
    [named] = OwnGateway.elsewhere({"JUPYTER_GATEWAY_URL": url, TOKEN: "wrong"})
    with pytest.raises(GatewayRefusal, match=rf"token in {TOKEN} \(403\). Set .*`jupyter server list` shows"):
        named.ask("status")
    runtime = RuntimeDir(tmp_path)
    runtime.gateway_lock.write_text("1\n")
    file = tmp_path / "jpserver-1.json"
    file.write_text(json.dumps({"url": f"{url}/", "token": "old"}))
    with pytest.raises(GatewayRefusal, match=rf"token of {file} \(403\). Set JUPYTER_GATEWAY_URL to"):
        OwnGateway.find(runtime, tmp_path).ask("status")


@pytest.mark.parametrize("token", ["secret\nword", "secret\tword", "sécret", " secret", "secret "])
def test_a_token_that_no_header_carries_is_told_without_it(token: str) -> None:
    [asked] = OwnGateway.elsewhere({"JUPYTER_GATEWAY_URL": "http://host:8888", TOKEN: token})
    with pytest.raises(NoGatewayHere, match=rf"The token in {TOKEN} has characters that no header can carry") as caught:
        asked.ask("status")
    assert token.strip() not in str(caught.value)


def test_a_token_with_a_space_inside_is_sent_as_jupyter_takes_it() -> None:
    heard: list[str | None] = []

    class Gateway(PlainGateway):
        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"])
            super().do_GET()

    with HTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        threading.Thread(target=gateway.handle_request, daemon=True).start()
        with pytest.raises(GatewayRefusal):
            OwnGateway(f"http://127.0.0.1:{gateway.server_port}/", "two words").ask("status")
    assert heard == ["token two words"]
    assert IdentityProvider.auth_header_pat.fullmatch("token two words") is not None


def test_a_port_where_nothing_listens_is_told_in_the_systems_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(NoGatewayHere, match=r"does not answer: Connection refused$"):
        OwnGateway(f"http://127.0.0.1:{port}/", "t").ask("status")
