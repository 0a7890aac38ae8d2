"""A real Hub: the size is chosen on its page, and kernels outlive their user's server."""

from __future__ import annotations

import re
import shlex
import urllib.error
from collections.abc import Callable
from typing import Any

import pytest
from hub_kernels import run_cell, run_line
from hub_process import PASSWORD, HubProcess, until
from hub_remains import server_environment
from hub_visitor import HubUser
from quick_start import python_m

HUB = {
    "with_lab": False,
    # The next look announces a server that is gone; the announced end is an hour away, and so never
    # here.
    "arguments": {"user_limits": {"alice": 0.5}, "team_limits": {"speech": 0.25}, "minutes_without_server": 0.1},
    "options": ("--Culling.warning_seconds=3600",),
}
SECONDS = 120.0
USES_CUDA = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
print((cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)))
"""


def refusal(hub: HubProcess, user: str, **options: Any) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        hub.start_server(user, **options)
    return caught.value.code, caught.value.read().decode()


def sizes_on(page: str) -> list[str]:
    return re.findall(r'name="gpu" id="[^"]*" value="([^"]*)"', page)


def test_a_size_that_the_user_may_not_have_is_refused_by_page_and_api(a_hub: HubProcess) -> None:
    code, text = refusal(a_hub, "alice", gpu="1")
    assert (code, "alice may have 0.5" in text) == (400, True), text
    code, text = refusal(a_hub, "bob", gpu="0.5")
    assert (code, "the team speech may have 0.25 together" in text) == (400, True), text
    for wrong in ("0.333", "-1", "9", "<b>", ["0.25"], {"gpus": 1}, 0.25, "0" * 5000):
        code, text = refusal(a_hub, "alice", gpu=wrong)
        assert code == 400, wrong
        assert "gpu-" not in text, "a form knows sizes, not kernelspec names"
    alice = HubUser(a_hub.url, "alice", PASSWORD)
    status, page = alice.get("hub/spawn")
    assert (status, sizes_on(page)) == (200, ["none", "0.25", "0.5", "0.25-low"])
    status, page = alice.post("hub/spawn", **{"gpu": "0.25", "gpu-custom": "0.75"})
    assert "alice may have 0.5" in page
    assert sizes_on(page), "the form is there again"
    for field in ("gpu", "gpu-custom"):
        for wrong in ("<script>alert(1)</script>", "0.25\0", "9" * 5000):
            status, page = alice.post("hub/spawn", **{"gpu": "0.25", field: wrong})
            # JupyterHub 5.3 shows the page of a refused form with 200.
            assert status in (200, 400)
            assert ("spawn-error-msg" in page, bool(sizes_on(page))) == (True, True), (field, wrong)
            assert ("<script>alert" in page, "\0" in page) == (False, False)


def status_of(ask: Callable[..., Any], *words: Any, token: str) -> int:
    try:
        ask(*words, token=token)
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def test_what_a_server_sends_the_gateway_opens_the_gateway_alone_and_ends_with_the_server(a_hub: HubProcess) -> None:
    a_hub.start_server("bob", gpu="none")
    environment = server_environment(a_hub.home, "bob")
    token = environment["JUPYTER_GATEWAY_AUTH_TOKEN"]
    assert status_of(a_hub.server, "bob", "api/contents", token=environment["JUPYTERHUB_API_TOKEN"]) == 200
    for path, method in (("api/contents", "GET"), ("api/terminals", "POST"), ("api/kernels", "POST")):
        assert status_of(a_hub.server, "bob", path, method, token=token) == 403, path
    assert status_of(a_hub.api, "users/bob/server", "POST", token=token) in (403, 404)
    assert status_of(a_hub.api, "users/bob/tokens", "POST", {"note": "more"}, token=token) in (403, 404)
    assert status_of(a_hub.gateway, "api/kernels", token=token) == 200
    scopes = a_hub.api("user", token=token)["scopes"]
    # The Hub lets each token ask whose it is.
    assert [one for one in scopes if not one.startswith("read:users:")] == ["access:services!service=aliquot"]
    a_hub.stop_server("bob")
    assert status_of(a_hub.api, "user", token=token) == 403


def test_a_servers_kernels_outlive_it_and_have_the_size_of_the_spawn_page(a_hub: HubProcess) -> None:
    alice = HubUser(a_hub.url, "alice", PASSWORD)
    alice.post("hub/spawn", **{"gpu": "0.25", "gpu-custom": "0.30"})
    a_hub.wait_for_server("alice")
    token = a_hub.token_of("alice")
    made = a_hub.server("alice", "api/kernels", "POST", {"name": "python3"}, token=token)
    (kernel,) = a_hub.gateway("api/kernels", token=token)
    assert (kernel["id"], kernel["name"]) == (made["id"], "python3.gpu-0.3")
    server = f"{a_hub.url}/user/alice"
    run_cell(server, token, kernel["id"], "kept = 6 * 7")
    ours = "('JUPYTERHUB_', 'JUPYTER_GATEWAY_', 'JUPYTER_TOKEN', 'KERNEL_')"
    code = f"import os; print([name for name in os.environ if name.startswith({ours})])"
    assert run_cell(server, token, kernel["id"], code) == "[]\n", "neither the service's nor the server's tokens"
    commands_work_in_a_terminal(a_hub, token, kernel["id"])

    a_hub.stop_server("alice")
    report = until(lambda: soon_ending(a_hub, token, kernel["id"]), SECONDS)
    assert "after their user's server has gone" in report["message"]
    assert [one["id"] for one in a_hub.gateway("api/kernels", token=token)] == [kernel["id"]]

    # Without options: the last choice counts.
    a_hub.start_server("alice")
    assert [one["id"] for one in a_hub.server("alice", "api/kernels", token=token)] == [kernel["id"]]
    assert run_cell(server, token, kernel["id"], "print(kept)") == "42\n"
    until(lambda: soon_ending(a_hub, token, kernel["id"]) is None, SECONDS)
    with pytest.raises(urllib.error.HTTPError) as caught:
        a_hub.server("alice", "api/kernels", "POST", {"name": "python3"}, token=token)
    assert caught.value.code == 403, "the last choice was sent again, and twice 0.3 is more than alice may have"
    a_hub.server("alice", f"api/kernels/{kernel['id']}", "DELETE", token=token)


def commands_work_in_a_terminal(hub: HubProcess, token: str, kernel_id: str) -> None:
    """Each command asks the gateway as the terminal's user, and finds the address itself."""
    terminal = hub.server("alice", "api/terminals", "POST", {}, token=token)["name"]
    ours = shlex.join(python_m("jupyter_aliquot.gateway.cli.app"))

    def typed(words: str) -> str:
        return run_line(f"{hub.url}/user/alice", token, terminal, f"{ours} {words} | cat")

    assert "has 0.4 GPU, " in typed(f"resize {kernel_id[:8]} 0.4")
    assert "nothing to swap out before it uses CUDA" in typed(f"swap {kernel_id} 2>&1")
    assert run_cell(f"{hub.url}/user/alice", token, kernel_id, USES_CUDA) == "(0, 0)\n"
    until(lambda: "in host memory" in typed(f"swap {kernel_id} 2>&1"), SECONDS)  # once it is idle
    assert "is on GPU" in typed(f"restore {kernel_id}")
    assert "from the gateway http" in typed("status")
    assert "0.4 GPU" in typed("history")
    refused = typed("resize unknown 0.4 2>&1")
    assert "no running kernel has the id or the notebook" in refused
    assert "may have 0.5 in all" in typed(f"resize {kernel_id} 0.6 2>&1")


def test_the_page_shows_the_last_choice(a_hub: HubProcess) -> None:
    alice = HubUser(a_hub.url, "alice", PASSWORD)
    a_hub.stop_server("alice")
    _, page = alice.get("hub/spawn")
    assert 'id="aliquot-gpu-0.3" value="0.3" checked' in page


def soon_ending(hub: HubProcess, token: str, kernel_id: str) -> dict[str, Any] | None:
    (report,) = [one for one in hub.gateway("aliquot/api/v1/status", token=token)["kernels"] if one["id"] == kernel_id]
    found: dict[str, Any] | None = report["scheduled_termination"]
    return found
