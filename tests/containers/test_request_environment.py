"""Variables of requests on an engine.

Of four requests at once, each one's variables reach its own kernel, now and ever after.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.containers.container_engines import Engine
    from tests.containers.gateway_node import ContainerNode, parts
else:
    from container_engines import Engine
    from gateway_node import ContainerNode, parts

WHO = ("alice", "bob", "carol", "dave")
ASKED = {
    "alice": {"KERNEL_KEY": "of alice", "SECRET": "of alice", "KERNEL_USERNAME": "ada", "LD_PRELOAD": "/tmp/x.so"},
    "bob": {"KERNEL_KEY": "of bob", "KERNEL_OTHER": "of bob", "HOME": "/data"},
}
WANT = {"alice": {"KERNEL_KEY": "of alice"}, "bob": {"KERNEL_KEY": "of bob", "KERNEL_OTHER": "of bob"}}


@pytest.fixture
def a_shared_node(a_podman: Engine) -> Iterator[ContainerNode]:
    """A node on one engine: the gateway's requests to the engine are the same for all engines."""
    node = ContainerNode(Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp")), a_podman)
    users = {name: {"token": f"token of {name}"} for name in WHO}
    users["ada"] = {"token": parts.TOKEN, "role": "admin"}
    node.add_config(f"c.AliquotIdentityProvider.users = {users!r}")
    node.add_config("c.ImageCatalogue.allowed_env = ['KERNEL_*']")
    node.environment["KERNEL_OF_THE_SERVER"] = "the server's own"
    yield node
    node.close()
    shutil.rmtree(node.folder, ignore_errors=True)


def asked(node: ContainerNode, kernel_id: str) -> dict[str, str]:
    """Return the container's variables that a request may set, as its engine reports them."""
    env = dict(entry.split("=", 1) for entry in node.box(kernel_id).attrs["Config"]["Env"])
    assert "of alice" not in env.get("LD_PRELOAD", "")
    return {name: value for name, value in env.items() if name.startswith(("KERNEL_", "SECRET"))}


def test_four_requests_at_once_and_after_a_restart_of_the_gateway(a_shared_node: ContainerNode) -> None:
    node = a_shared_node
    gateway = node.gateway()

    def start(who: str) -> str:
        body: dict[str, Any] = {"name": "small", **({"env": ASKED[who]} if who in ASKED else {})}
        return str(gateway.call("POST", "/api/kernels", body, f"token of {who}")["id"])

    with ThreadPoolExecutor(3) as pool:
        starts = {}
        for who in WHO[:3]:
            starts[who] = pool.submit(start, who)
            time.sleep(0.02)  # at this distance some gateways are known to mix them up
        kernels = {who: started.result() for who, started in starts.items()}
    kernels["dave"] = start("dave")
    want = {who: WANT.get(who, {}) for who in WHO}
    assert {who: asked(node, kernel) for who, kernel in kernels.items()} == want
    home = next(entry for entry in node.box(kernels["bob"]).attrs["Config"]["Env"] if entry.startswith("HOME="))
    assert home != "HOME=/data"

    gateway.stop(signal.SIGKILL)
    after = node.next(gateway)
    first = {who: node.box(kernel).id for who, kernel in kernels.items()}
    for who in ("dave", "alice"):
        after.call("POST", f"/api/kernels/{kernels[who]}/restart", token=f"token of {who}")
        parts.wait_until(lambda who=who: node.box_id(kernels[who]) not in ("", first[who]))
        assert asked(node, kernels[who]) == want[who]
    for kernel in kernels.values():
        after.call("DELETE", f"/api/kernels/{kernel}")
