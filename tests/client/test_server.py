"""The address and the token that a client takes, and the server that Jupyter's variables name."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_aliquot.client import ClientError, Server, find_server
from jupyter_aliquot.client.errors import REFUSALS, RefusedError, ServerError, refusal_of

GATEWAY = {"JUPYTER_GATEWAY_URL": "http://gpu.example.org:8890", "JUPYTER_GATEWAY_AUTH_TOKEN": "t"}
OWN = {
    "JUPYTERHUB_USER": "ada",
    "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:9999/user/ada/",
    "JUPYTERHUB_API_TOKEN": "own",
}


@pytest.mark.parametrize("url", ["http://h:8888", "http://h:8888/", "https://h/user/ada", "http://[::1]:8888/base/"])
def test_an_address_may_have_a_base_url_and_a_slash_or_none(url: str) -> None:
    assert Server(url).address("api") == f"{url.rstrip('/')}/api"
    assert Server(url).websocket_address("api").startswith("ws")


@pytest.mark.parametrize(
    "url",
    [
        *("", "h:8888", "ftp://h/", "http://", "http:///x", "http://h/?token=t", "http://h/#a", "http://a:b@h/"),
        *("http://h:x/", "http://h /", "http://h\r\nX: y/", "http://[::1"),
    ],
)
def test_other_addresses_are_refused_before_a_token_is_sent(url: str) -> None:
    with pytest.raises(ClientError, match="http://HOST:PORT"):
        Server(url, "t")


@pytest.mark.parametrize(
    "url",
    [
        *("http://h:8888/base/?token=SECRET", "http://h:8888/base/#SECRET", "http://ada:SECRET@h/base/"),
        *("http://ada:SECRET@", "http:/ada:SECRET@h/", "ada:SECRET@h", "http://ada:a/SECRET@h/", "http://[SECRET"),
    ],
)
def test_the_refusal_of_an_address_repeats_no_secret(url: str) -> None:
    with pytest.raises(ClientError) as caught:
        Server(url)
    assert "SECRET" not in str(caught.value)


def test_the_refusal_of_an_address_repeats_its_scheme_host_and_path() -> None:
    with pytest.raises(ClientError, match=r"'http://gpu\.example\.org/base/'"):
        Server("http://gpu.example.org:8888/base/?token=t")


@pytest.mark.parametrize("token", ["secret ", " secret", "a\nb", "a\r\nX-Header: y", "é"])
def test_a_token_that_no_header_carries_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ClientError) as caught:
        Server("http://h/", token)
    assert token not in str(caught.value)


def test_a_token_with_a_space_inside_is_sent_as_jupyter_takes_it() -> None:
    assert Server("http://gpu.example.org/", "two words").headers() == {"Authorization": "token two words"}


def test_the_token_is_in_no_representation() -> None:
    assert "a-secret" not in repr(Server("http://h/", "a-secret"))


def test_a_query_is_encoded() -> None:
    assert Server("http://h/").address("x", (("a", "1 2"), ("a", "&"))) == "http://h/x?a=1+2&a=%26"


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"none\.pem"):
        Server("https://h/", ca_certs=str(tmp_path / "none.pem")).tls_context()


def test_the_users_own_server_comes_before_the_gateway() -> None:
    assert find_server(OWN | GATEWAY) == Server(OWN["JUPYTERHUB_SERVICE_URL"], "own")
    assert find_server(GATEWAY | {"JUPYTERHUB_USER": "ada"}) == Server(GATEWAY["JUPYTER_GATEWAY_URL"], "t")
    with pytest.raises(ClientError, match="Set JUPYTER_GATEWAY_URL"):
        find_server({})


def test_an_own_address_without_a_host_gives_way_to_the_gateway() -> None:
    everywhere = OWN | {"JUPYTERHUB_SERVICE_URL": "http://:8888/user/ada/"}
    assert find_server(everywhere | GATEWAY) == Server(GATEWAY["JUPYTER_GATEWAY_URL"], "t")
    with pytest.raises(ClientError, match="http://HOST:PORT"):
        find_server(everywhere)


def test_each_status_has_an_error_of_the_tree() -> None:
    for status in range(300, 600):
        assert issubclass(refusal_of(status), RefusedError)
    assert {refusal_of(status) for status in range(500, 600)} == {ServerError}
    assert {refusal_of(status) for status in REFUSALS} == set(REFUSALS.values())
