"""A JupyterHub of root whose users are accounts of the system, in a mount namespace of its own.

The machine's accounts stay untouched: the Hub and all below it see the files of a folder in their
place. The gateway runs as `aliquot`; kernels run as their owners.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from hub_kernels import run_cell
from hub_process import PROXY, START_SECONDS, HubProcess, hub_problem
from made_accounts import GATEWAY, UIDS, MadeAccounts
from namespaced import can_enter
from quick_start import python_m

WITH_LAB = "eve"  # this user's server has JupyterLab, which makes it start late
_CONFIG = """
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.JupyterHub.db_url = "sqlite:///{home}/hub/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{home}/hub/cookie_secret"

from jupyterhub.auth import PAMAuthenticator

class Accounts(PAMAuthenticator):
    def system_user_exists(self, user):
        return True  # a test may have a token of a user without an account

c.JupyterHub.authenticator_class = Accounts
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.cmd = {server!r}
c.Spawner.args = ["--LanguageServerManager.autodetect=False"]
c.Spawner.start_timeout = c.Spawner.http_timeout = {seconds}
c.Spawner.environment = {{
    "JUPYTER_PREFER_ENV_PATH": "0",
    "JUPYTERHUB_SINGLEUSER_APP":
        lambda spawner: "" if spawner.user.name == "{with_lab}" else "jupyter_server.serverapp.ServerApp",
}}
c.ConfigurableHTTPProxy.command = ["{proxy}"]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.pid_file = "{home}/hub/proxy.pid"
c.JupyterHub.services = [{{"name": "tests", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [{{"name": "tests", "services": ["tests"], "scopes": ["admin:users", "admin:groups",
    "admin:servers", "tokens", "access:servers", "access:services", "list:services", "read:hub", "inherit"]}}]
"""
_CONFIGURE = """
from jupyter_aliquot.gateway.hub import configure

configure(
    c,
    url="http://127.0.0.1:{gateway_port}",
    gateway_user="aliquot",
    user_limit_gpus=0.5,
    account_of={{"ada.lovelace": "ada"}},
    gateway_options=["--Aliquot.driver=softgpu", "--Aliquot.agent_options=--overcommit", "--Aliquot.agent_options=1",
        "--Aliquot.softgpu_memory=16GiB", "--HostLimits.floor_memory=256MiB", *{options!r}],
    gateway_environment={{"ALIQUOT_RUNTIME_DIR": "{home}/run", "ALIQUOT_SPILL_DIR": "{home}/spill"}},
    **{arguments!r},
)
"""


class HubOfAccounts(HubProcess):
    """The Hub, with its ``accounts``. ``CONFIGURE`` ends its configuration, as a template."""

    CONFIGURE = _CONFIGURE

    def __init__(self, *options: str, **arguments: Any) -> None:
        """*options* are further ones of the gateway; HOME in them is the folder of all.

        *arguments* go into the call of `configure`, too.
        """
        super().__init__(with_lab=False)
        self._known.clear()
        self.home.chmod(0o711)
        (self.home / "hub").mkdir()
        self.accounts = MadeAccounts(self.home)
        text = (_CONFIG + self.CONFIGURE).format(
            port=self.port,
            hub_port=self.hub_port,
            proxy_port=self.proxy_port,
            gateway_port=self.gateway_port,
            home=self.home,
            with_lab=WITH_LAB,
            proxy=PROXY,
            token=self.token,
            seconds=int(START_SECONDS),
            server=python_m("jupyterhub.singleuser"),
            options=[one.replace("HOME", str(self.home)) for one in options],
            arguments=arguments,
        )
        self._config.write_text(text)

    def folder_of(self, user: str, *parts: str) -> Path:
        return Path(self.accounts.homes, user, *parts)

    def _command(self) -> list[str]:
        return self.accounts.command(super()._command())

    def _make_home(self, user: str) -> None:
        """The accounts have homes of their own."""

    def _stop(self) -> None:
        super()._stop()
        remove_software_gpus(self.home)


def remove_software_gpus(home: Path) -> None:
    """Remove the machines of the runtime folders below *home* alone: another run has the same accounts."""
    for left in Path("/dev/shm").glob(f"aliquot-{UIDS[GATEWAY]}-*"):
        if (left / "runtime").resolve().is_relative_to(home.resolve()):
            shutil.rmtree(left, ignore_errors=True)


class AccountUsers:
    """Users of such a Hub with their servers; ``kernels`` has one of each that a test started for its cells."""

    def __init__(self, hub: HubOfAccounts, *names: str) -> None:
        self.hub = hub
        self.tokens: dict[str, str] = {}
        self.kernels: dict[str, str] = {}
        for user in names:
            hub.start_server(user)
            self.tokens[user] = hub.token_of(user)

    def start(self, user: str, **body: Any) -> str:
        return str(self.ask(user, "api/kernels", "POST", body)["id"])

    def ask(self, user: str, path: str, method: str = "GET", body: Any = None) -> Any:
        return self.hub.server(user, path, method, body, token=self.tokens[user])

    def cell(self, user: str, code: str, kernel_id: str = "") -> str:
        url = f"{self.hub.url}/user/{user}"
        return run_cell(url, self.tokens[user], kernel_id or self.kernels[user], code).strip()

    def crash_of(self, user: str, kernel_id: str) -> Any:
        """Return why a kernel was last restarted without a request; None while it was not."""
        listed = self.hub.gateway("aliquot/api/v1/status", token=self.tokens[user])["kernels"]
        return next((one["last_crash"] for one in listed if one["id"] == kernel_id), None)

    def pid(self, user: str) -> int:
        return int(self.cell(user, "import os; print(os.getpid())"))


def accounts_problem() -> str:
    """Return why no such Hub can be started here; empty if it can."""
    if os.geteuid() != 0 or not can_enter():
        return "only root can start servers as other accounts, in a mount namespace of their own"
    return hub_problem()
