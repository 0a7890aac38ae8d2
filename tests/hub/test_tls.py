"""TLS on every way, by a private authority.

The ways are browsers and servers to the proxy, the proxy, the Hub and servers to the gateway, and
the gateway to the Hub; each trusts by the configuration in docs/how-to/jupyterhub.md.
"""

from __future__ import annotations

import json
import signal
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
from hub_gateway import TOKEN, start_gateway
from hub_kernels import run_cell
from hub_process import PASSWORD, HubProcess, hub_problem
from hub_visitor import Visitor

LIMITS = {"alice": 0.5}
_INTERNAL = """
c.JupyterHub.internal_ssl = True
c.JupyterHub.internal_certs_location = "{folder}"
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_bind_url.replace("http:", "https:")
c.ConfigurableHTTPProxy.api_url = c.ConfigurableHTTPProxy.api_url.replace("http:", "https:")
"""
_MORE = """
c.JupyterHub.bind_url = "https://127.0.0.1:{port}"
c.JupyterHub.ssl_key, c.JupyterHub.ssl_cert = "{key}", "{certificate}"
c.Spawner.environment["SSL_CERT_FILE"] = "{authority}"
"""


class Files(NamedTuple):
    """Paths of a key, its certificate for this machine, and the authority that made it."""

    key: str
    certificate: str
    authority: str


def certified(folder: Path) -> Files:
    """Make certificates with JupyterHub's own library for them."""
    from certipy import Certipy  # type: ignore[import-not-found, unused-ignore]  # where there is no Hub there is none

    maker = Certipy(store_dir=str(folder))
    maker.create_ca("authority")
    made = maker.create_signed_pair("here", "authority", alt_names=["IP:127.0.0.1", "DNS:localhost"])["files"]
    return Files(made["key"], made["cert"], made["ca"])


@pytest.mark.soak(alone="starts one more Hub")
def test_a_hub_and_its_gateway_work_over_tls_by_a_private_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if problem := hub_problem():
        pytest.skip(problem)
    files = certified(tmp_path)
    hub = HubProcess(with_lab=False, arguments={"api_token": TOKEN, "user_limits": LIMITS})
    more = _MORE.format(port=hub.port, key=files.key, certificate=files.certificate, authority=files.authority)
    plain = f"http://127.0.0.1:{hub.gateway_port}"
    config = hub.home / "jupyterhub_config.py"
    config.write_text(config.read_text().replace(plain, plain.replace("http", "https")) + more)
    hub.url, hub.gateway_url = (url.replace("http:", "https:") for url in (hub.url, hub.gateway_url))
    # For this test, and for the Hub with its proxy.
    for name in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "WEBSOCKET_CLIENT_CA_BUNDLE"):
        monkeypatch.setenv(name, files.authority)
    gateway = start_gateway(
        hub,
        f"--ServerApp.certfile={files.certificate}",
        f"--ServerApp.keyfile={files.key}",
        limits=LIMITS,
        scheme="https",
        api_url=f"{hub.url}/hub/api",
        environment={"SSL_CERT_FILE": files.authority},
    )
    try:
        with hub:
            assert hub.gateway_url.startswith("https:")
            assert_all_works(hub)
            assert_nobody_else_is_trusted(hub)
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(120)
    except BaseException:
        print((hub.home / "gateway.log").read_text(errors="replace") if hub.home.exists() else "")
        raise
    finally:
        gateway.kill()
        gateway.wait()


@pytest.mark.soak(alone="starts one more Hub")
def test_a_gateway_on_loopback_works_with_a_hub_whose_internal_tls_is_on(tmp_path: Path) -> None:
    if problem := hub_problem():
        pytest.skip(problem)
    with HubProcess(with_lab=False, more=_INTERNAL.format(folder=tmp_path)) as hub:
        assert_all_works(hub)


def assert_all_works(hub: HubProcess) -> None:
    page = Visitor().log_in(f"{hub.gateway_url}/", "alice", PASSWORD)
    assert (page.status, page.url) == (200, f"{hub.gateway_url}/aliquot/api/v1/status")
    assert json.loads(page.text)["user"]["name"] == "alice"
    hub.start_server("alice", gpu="0.25")
    token = hub.token_of("alice")
    made = hub.server("alice", "api/kernels", "POST", {"name": "python3"}, token=token)
    assert made["name"] == "python3.gpu-0.25"
    for url in (f"{hub.url}/user/alice", hub.gateway_url):
        assert run_cell(url, token, made["id"], "print(6 * 7)") == "42\n"
    status = hub.server("alice", "aliquot/api/v1/status", token=token)
    assert [one["id"] for one in status["kernels"]] == [made["id"]], "the panel of the user's server"


def assert_nobody_else_is_trusted(hub: HubProcess) -> None:
    """Check that the connections above depend on the authority: without it they fail."""
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        urllib.request.urlopen(hub.gateway_url, timeout=90, context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
