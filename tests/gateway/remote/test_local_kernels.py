"""Plain kernels that a server in gateway mode runs itself, beside the gateway's.

They run whether or not the gateway answers.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.web import HTTPError

from jupyter_aliquot.gateway.remote.mixed_kernels import is_own_id, new_own_id
from jupyter_aliquot.gateway.remote.mixed_kernelspecs import MixedKernelSpecManager

from .conftest import Server
from .test_remote_kernels import a_session

LOCAL = "local.python3"
PID = "import os; print('pid', os.getpid())"


def a_kernel(server: Server, name: str) -> str:
    answer = server.ask("POST", "api/kernels", {"name": name})
    assert answer.status == 201, answer
    assert answer.body["name"] == name
    return str(answer.body["id"])


def specs(server: Server) -> dict[str, Any]:
    answer = server.ask("GET", "api/kernelspecs")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.body["kernelspecs"]
    return found


def test_an_id_tells_whose_kernel_it_is() -> None:
    assert is_own_id(new_own_id())
    assert not is_own_id(str(uuid.uuid4()))
    assert not is_own_id("no uuid")


def test_kernels_of_both_kinds_live_side_by_side(a_gateway: Server, own_servers: Callable[..., list[Server]]) -> None:
    [mine] = own_servers("alice")
    listed = specs(mine)
    assert listed["python3"]["spec"]["display_name"] == "Python 3 (ipykernel)", "the gateway's keep their names"
    assert listed[LOCAL]["spec"]["display_name"] == "Python 3 (ipykernel) (this server)"
    assert not any(name.startswith("local.") and ".gpu-" in name for name in listed), "the server has no GPUs"
    for path in (f"api/kernelspecs/{LOCAL}", f"kernelspecs/{LOCAL}/kernel.json"):
        assert mine.ask("GET", path).status == 200, path
    assert mine.ask("GET", f"kernelspecs/{LOCAL}/..%2f..%2fjupyter").status == 404
    there, here = a_kernel(mine, "python3"), a_kernel(mine, LOCAL)
    assert (mine.kernels(), a_gateway.kernels()) == (sorted([there, here]), [there])
    assert mine.ask("GET", f"api/kernels/{here}/channels?session_id=none").status == 400, "no handshake"
    assert mine.ask("GET", f"api/kernels/{here}").body["connections"] == 0
    for kernel_id in (there, here):
        before = mine.execute(kernel_id, f"x = 1; {PID}", until="\n")
        assert mine.ask("POST", f"api/kernels/{kernel_id}/interrupt").status == 204
        assert mine.ask("POST", f"api/kernels/{kernel_id}/restart").status == 200
        assert mine.execute(kernel_id, PID, until="\n") != before, "it was started again"
        assert mine.ask("GET", f"api/kernels/{kernel_id}").body["id"] == kernel_id
    body = {"path": "l.ipynb", "name": "l", "type": "notebook", "kernel": {"name": LOCAL}}
    session = mine.ask("POST", "api/sessions", body)
    assert (session.status, session.body["kernel"]["name"]) == (201, LOCAL)
    moved = mine.ask("PATCH", f"api/sessions/{session.body['id']}", {"kernel": {"id": there}})
    assert (moved.status, moved.body["kernel"]["id"]) == (200, there)
    again = mine.ask("POST", "api/sessions", {**body, "path": "m.ipynb", "kernel": {"id": here}})
    assert (again.status, again.body["kernel"]["id"]) == (201, here)
    mine.end(signal.SIGTERM)
    mine.start()
    found = [one["path"] for one in mine.ask("GET", "api/sessions").body]
    assert found == ["l.ipynb"], "what ran on the server ended with it"
    assert (mine.kernels(), a_gateway.kernels()) == ([there], [there])
    assert mine.ask("DELETE", f"api/kernels/{there}").status == 204
    assert a_gateway.kernels() == []


def test_local_kernels_work_while_the_gateway_is_away(
    own_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("alice", gateway=own_gateway, more=["--GatewayClient.gateway_retry_max=0"])
    there, here = a_session(mine)["kernel"]["id"], a_kernel(mine, LOCAL)
    assert "python3" in specs(mine)
    own_gateway.end(signal.SIGKILL)
    assert mine.execute(here, "print(6 * 7)", until="\n") == "42\n"
    assert set(specs(mine)) >= {"python3", LOCAL}, "as the gateway told them last"
    states = {kernel["id"]: kernel["execution_state"] for kernel in mine.ask("GET", "api/kernels").body}
    assert states[there] == "unknown", "nobody can tell, and it is not given up"
    assert here in states
    more = a_kernel(mine, LOCAL)
    assert mine.execute(more, "print('more')", until="\n") == "more\n"
    assert mine.ask("POST", "api/kernels", {"name": "python3"}).status in (500, 503, 599)
    for kernel_id in (here, more):
        assert mine.ask("DELETE", f"api/kernels/{kernel_id}").status == 204


def test_a_server_that_starts_while_the_gateway_is_away_has_its_own_kernels(
    own_servers: Callable[..., list[Server]], tmp_path: Path
) -> None:
    nowhere = Server(tmp_path, [], "")
    [mine] = own_servers("alice", gateway=nowhere, more=["--GatewayClient.gateway_retry_max=0"])
    assert set(specs(mine)) == {name for name in specs(mine) if name.startswith("local.")}
    body = {"path": "l.ipynb", "name": "l", "type": "notebook", "kernel": {"name": LOCAL}}
    session = mine.ask("POST", "api/sessions", body).body
    assert mine.execute(session["kernel"]["id"], "print(6 * 7)", until="\n") == "42\n"
    assert [one["id"] for one in mine.ask("GET", "api/sessions").body] == [session["id"]]
    assert mine.kernels() == [session["kernel"]["id"]]


def test_idle_kernels_of_the_server_are_culled_by_jupyters_own_knobs(own_servers: Callable[..., list[Server]]) -> None:
    cull = ["--MappingKernelManager.cull_idle_timeout=1", "--MappingKernelManager.cull_interval=1"]
    [mine] = own_servers("alice", more=cull)
    kernel_id = a_kernel(mine, LOCAL)
    mine.until(lambda: kernel_id not in mine.kernels())


def test_the_knob_leaves_the_gateways_alone(own_servers: Callable[..., list[Server]]) -> None:
    [mine] = own_servers("alice", more=["--Aliquot.local_kernels=False"])
    assert not any(name.startswith("local.") for name in specs(mine))
    assert mine.ask("POST", "api/kernels", {"name": LOCAL}).status in (404, 500)
    assert mine.kernels() == []


def test_a_size_of_a_kernelspec_of_this_server_is_refused_in_words_and_nothing_waits_for_it(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("alice")
    there = a_kernel(mine, "python3")
    for name, words in ((f"{LOCAL}.gpu-0.25", "GPU sizes are the gateway's"), ("local.no-such", "")):
        answer = mine.ask("POST", "api/kernels", {"name": name})
        assert answer.status in (404, 500)
        assert words in answer.body, answer
    assert mine.kernels() == [there]
    mine.end(signal.SIGTERM)
    log = (mine.folder / "log").read_text()
    assert "Kernel does not exist" not in log, log[-3000:]


def test_a_kernelspec_of_this_server_may_be_called_like_a_size() -> None:
    own = SimpleNamespace(find_kernel_specs=lambda: {"local.torch": "", "local.torch.gpu-env": ""})
    specs: Any = SimpleNamespace(own=own, _is_twin=lambda _: False)
    MixedKernelSpecManager.refuse_size(specs, "local.torch.gpu-env")
    with pytest.raises(HTTPError, match="GPU sizes are the gateway's"):
        MixedKernelSpecManager.refuse_size(specs, "local.torch.gpu-0.25")
