"""Variables of a request: they reach its own kernel alone.

The tests overlap four requests, restart kernels, and rename notebooks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.containers.environment import allowed_env, without_servers_own
from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel

from .conftest import TOKENS, USERS, Ask, write_light_spec

MORE = ("carol", "dave")
SECRETS = {
    "alice": {"SECRET": "of alice", "KERNEL_KEY": "alice's", "KERNEL_USERNAME": "ada", "JUPYTERHUB_USER": "ada"},
    "bob": {"SECRET": "of bob", "KERNEL_KEY": "bob's", "KERNEL_USERNAME": "ada", "LD_PRELOAD": "/tmp/bob.so"},
}


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    for name in MORE:
        monkeypatch.setitem(TOKENS, name, f"a-token-of-{name}")
    return {**USERS, **{name: {"token": TOKENS[name]} for name in MORE}}


@pytest.fixture
def jp_server_config(jp_server_config: Config, jp_data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Configure a kernel that starts at once, and set variables that a Hub gives its services."""
    write_light_spec(jp_data_dir / "kernels", env={"OF_THE_SPEC": "yes"})
    for name in ("JUPYTERHUB_API_TOKEN", "JUPYTER_GATEWAY_AUTH_TOKEN", "KERNEL_USERNAME"):
        monkeypatch.setenv(name, "the server's own")
    return jp_server_config


@pytest.fixture
def environment(a_server: ServerApp) -> Callable[[str], dict[str, str]]:
    """Return a function that reads the environment that the kernel's process was started with."""

    def read(kernel_id: str) -> dict[str, str]:
        pid = a_server.kernel_manager.get_kernel(kernel_id).provisioner.pid
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    return read


@pytest.fixture
def held_starts(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], asyncio.Event]:
    """Hold each start until the event is set; return the list of owners with a start under way."""
    begun: list[str] = []
    go = asyncio.Event()
    original = ManagedKernel._get_container

    async def wait(kernel: ManagedKernel, kwargs: dict[str, Any]) -> Any:
        begun.append(kernel.owner)
        await go.wait()
        return await original(kernel, kwargs)

    monkeypatch.setattr(ManagedKernel, "_get_container", wait)
    return begun, go


async def start(ask: Ask, who: str) -> str:
    body = {"name": "light", **({"env": SECRETS[who]} if who in SECRETS else {})}
    answer = await ask(who, "POST", "api/kernels", body=body)
    assert answer.status == 201, answer
    return str(answer.json["id"])


def foreign(found: dict[str, str]) -> dict[str, str]:
    """Return the variables that neither the machine, nor the kernelspec, nor the server has set."""
    return {name: value for name, value in found.items() if name.startswith(("SECRET", "KERNEL_", "JUPYTERHUB", "LD_"))}


async def test_four_requests_at_once_leave_nothing_in_each_others_kernels(
    ask: Ask, environment: Any, held_starts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = held_starts
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    await ask("ada", "GET", "api/status")
    starts = {}
    for who in ("alice", "bob", "carol"):
        starts[who] = asyncio.ensure_future(start(ask, who))
        while who not in begun:
            assert not starts[who].done()
            await asyncio.sleep(0.005)
    go.set()
    kernels = {who: await started for who, started in starts.items()}
    kernels["dave"] = await start(ask, "dave")
    assert begun == ["alice", "bob", "carol", "dave"]
    for who, kernel in kernels.items():
        found = environment(kernel)
        assert foreign(found) == {}, who
        assert not any("alice" in value or "bob" in value for value in found.values()), who
        assert (found["OF_THE_SPEC"], found["PATH"]) == ("yes", os.environ["PATH"])
        assert (await ask(who, "GET", "api/kernels", kernel)).status == 200
        assert len((await ask(who, "GET", "api/kernels")).json) == 1

    # Each restart replays the owner's variables, even if an administrator requested it.
    for who in ("alice", "ada"):
        assert (await ask(who, "POST", f"api/kernels/{kernels['alice']}/restart", body={})).status == 200
        assert foreign(environment(kernels["alice"])) == {}


async def test_a_kernel_bears_its_owners_notebook_whoever_else_opens_it(ask: Ask, environment: Any) -> None:
    body = {"path": "own.ipynb", "name": "own.ipynb", "type": "notebook", "kernel": {"name": "light"}}
    kernel = (await ask("alice", "POST", "api/sessions", body=body)).json["kernel"]["id"]
    adas = await ask("ada", "POST", "api/sessions", body={**body, "path": "spy.ipynb", "kernel": {"id": kernel}})
    other = {"path": "salaries.ipynb", "name": "salaries.ipynb"}
    renamed = await ask("ada", "PATCH", "api/sessions", adas.json["id"], body=other)
    assert (adas.status, renamed.status) == (201, 200)
    assert (await ask("alice", "POST", f"api/kernels/{kernel}/restart", body={})).status == 200
    assert os.path.basename(environment(kernel)["JPY_SESSION_NAME"]) == "own.ipynb"
    alices = (await ask("alice", "GET", "api/sessions")).json
    mine = next(session["id"] for session in alices if session["path"] == "own.ipynb")
    changed = await ask("alice", "PATCH", "api/sessions", mine, body={"path": "new.ipynb", "name": "new.ipynb"})
    assert changed.status == 200
    assert (await ask("alice", "POST", f"api/kernels/{kernel}/restart", body={})).status == 200
    assert os.path.basename(environment(kernel)["JPY_SESSION_NAME"]) == "new.ipynb"


@pytest.mark.parametrize(
    ("allowed", "want"),
    [
        (["KERNEL_KEY"], {"KERNEL_KEY": "k"}),
        (["KERNEL_*"], {"KERNEL_KEY": "k", "KERNEL_WORKING_DIR": "/w"}),
        (["K*", "L*", "P*", "A*", "J*", "H*"], {"KERNEL_KEY": "k", "KERNEL_WORKING_DIR": "/w"}),
        ([], {}),
    ],
)
def test_an_allow_list_lets_nothing_through_that_says_who_one_is_or_what_is_loaded(
    allowed: list[str], want: dict[str, str]
) -> None:
    asked = {"KERNEL_KEY": "k", "KERNEL_WORKING_DIR": "/w", "KERNEL_USERNAME": "ada", "KERNEL_ID": "another"}
    loaded = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "HOME", "ALIQUOT_SOCKET", "JPY_SESSION_NAME", "JUPYTERHUB_USER")
    assert allowed_env({**asked, **dict.fromkeys(loaded, "x")}, allowed) == want


def test_the_session_is_the_kernels_and_credentials_are_the_servers() -> None:
    servers = ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_SERVICE_PREFIX", "JPY_API_TOKEN", "JUPYTER_TOKEN")
    kernels = {"JPY_SESSION_NAME": "a.ipynb", "PATH": "/usr/bin", "JUPYTER_PATH": "/share", "CUDA_HOME": "/cuda"}
    assert without_servers_own({**kernels, **dict.fromkeys(servers, "secret")}) == kernels
