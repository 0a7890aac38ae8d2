"""Commands that ask a gateway with users: their token, their variables, and their refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ports import free_port

from jupyter_aliquot.gateway.cli.app import main
from jupyter_aliquot.gateway.doctor.gateways import check_chosen_gateway
from jupyter_aliquot.gateway.doctor.messages import check_messages
from jupyter_aliquot.gateway.doctor.runner import OK

from .conftest import TOKENS, Server
from .test_remote_kernels import NOTHING

VERBS = (("resize", "{}", "0.5"), ("swap", "{}"), ("restore", "{}"), ("share", "{}"))


@pytest.fixture
def run_as(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str]]:
    """Return a function that runs a command in this process with this gateway's variables.

    The function returns the command's exit code and its output.
    """

    def run(url: str, token: str, *words: str) -> tuple[Any, str]:
        monkeypatch.setenv("JUPYTER_GATEWAY_URL", url)
        if token:
            monkeypatch.setenv("JUPYTER_GATEWAY_AUTH_TOKEN", token)
        else:
            monkeypatch.delenv("JUPYTER_GATEWAY_AUTH_TOKEN", raising=False)
        code: Any = 0
        try:
            main(list(words))
        except SystemExit as end:
            code = end.code
        return code, "".join(capsys.readouterr())

    return run


def test_every_verb_asks_as_the_user_whose_token_is_set_and_says_what_cannot_be(
    a_gateway: Server, run_as: Callable[..., tuple[Any, str]]
) -> None:
    started = a_gateway.ask("POST", "api/kernels", {"name": "python3.gpu-0.25"}, TOKENS["alice"])
    kernel_id = started.body["id"]  # it waits, because no agent runs there
    nowhere = f"http://127.0.0.1:{free_port()}"
    for verb in VERBS:
        words, unknown = [word.format(kernel_id) for word in verb], [word.format("nobody") for word in verb]
        code, said = run_as(a_gateway.url, TOKENS["alice"], *words)
        assert (code, "it is queued" in said or "is shared with no other user" in said) in ((1, True), (0, True)), said
        code, said = run_as(a_gateway.url, "wrong", *words)
        assert (code, "does not know the token in JUPYTER_GATEWAY_AUTH_TOKEN" in said) == (1, True), said
        code, said = run_as(nowhere, TOKENS["alice"], *words)
        assert (code, f"the gateway at {nowhere}/ does not answer" in said) == (1, True), said
        for who in ("alice", "bob"):
            code, said = run_as(a_gateway.url, TOKENS[who], *unknown)
            assert (code, "no running kernel has" in said) == (1, True), said
        code, said = run_as(a_gateway.url, TOKENS["bob"], *words)
        assert (code, "alice" in said, "oes not exist" in said or "no running kernel" in said) == (1, False, True), said
    shared = run_as(a_gateway.url, TOKENS["alice"], "share", kernel_id, "--user", "bob")
    assert shared == (0, f"{kernel_id} is shared with user bob (read)\n")
    code, said = run_as(a_gateway.url, TOKENS["bob"], "resize", kernel_id, "0.5")
    assert (code, "is shared with you read-only by alice" in said) == (1, True), said


@pytest.mark.parametrize(
    "words",
    [
        *(("status",), ("quota",), ("queue",), ("usage",), ("history",), ("holders",)),
        *(("resize", "a.ipynb", "0.5"), ("swap", "a.ipynb"), ("share", "a.ipynb"), ("cordon", "n")),
    ],
    ids=lambda words: words[0],
)
def test_without_a_token_every_command_asks_the_named_gateway_and_says_that_the_token_is_missing(
    words: tuple[str, ...], a_gateway: Server, run_as: Callable[..., tuple[Any, str]]
) -> None:
    code, said = run_as(a_gateway.url, "", *words)
    want = f"The gateway at {a_gateway.url} refuses a request without a token (403), and JUPYTER_GATEWAY_AUTH_TOKEN"
    assert (code, want in said) == (1, True), said


def test_without_a_token_the_doctor_says_so_too(a_gateway: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GATEWAY_URL", a_gateway.url)
    monkeypatch.delenv("JUPYTER_GATEWAY_AUTH_TOKEN", raising=False)
    for check in (check_messages, check_chosen_gateway):
        (found,) = check()
        assert (found.state != OK, "JUPYTER_GATEWAY_AUTH_TOKEN is not set" in found.found) == (True, True), found


def test_what_is_shown_is_the_users_own_and_a_folder_that_is_named_means_this_machine(
    a_gateway: Server, run_as: Callable[..., tuple[Any, str]]
) -> None:
    started = a_gateway.ask("POST", "api/kernels", {"name": "python3.gpu-0.25"}, TOKENS["alice"])
    code, said = run_as(a_gateway.url, TOKENS["alice"], "status")
    assert (code, started.body["id"][:8] in said or "python3.gpu-0.25" in said) == (0, True), said
    code, said = run_as(a_gateway.url, TOKENS["bob"], "status")
    assert (code, "python3.gpu-0.25" in said) == (0, False), said
    code, said = run_as(a_gateway.url, TOKENS["alice"], "history", "--json")
    assert (code, "devices" in json.loads(said)) == (0, True)
    here = ("--runtime-dir", f"{a_gateway.folder}/run")
    code, said = run_as(a_gateway.url, TOKENS["alice"], "resize", NOTHING, "0.5", *here)
    assert (code, "JUPYTER_GATEWAY_AUTH_TOKEN to a token of yours" in said or "node agent" in said) == (1, True), said
    code, said = run_as(a_gateway.url, TOKENS["alice"], "status", *here)
    assert (code, "of the gateway" in said) == (1, False), said
