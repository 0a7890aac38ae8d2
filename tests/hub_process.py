"""A JupyterHub of our own, all in one folder.

It has the Hub, its real proxy, the gateway as its service, and servers of users, on the software
GPU, on loopback, on free ports. It installs nothing, and ends by pid the processes that it started.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hub_remains import RunningProcesses
from ports import free_port
from quick_start import WITHOUT_PAGES, python_m
from started import Started

REPOSITORY = Path(__file__).resolve().parents[1]
PROXY = REPOSITORY / "build" / "hub-proxy" / "node_modules" / ".bin" / "configurable-http-proxy"
BUNDLE = REPOSITORY / "labextension" / "dist"
PASSWORD = "a password of tests"
ADMIN = "ada"
GROUPS = {"vision": ["alice"], "speech": ["bob"]}
SERVICE = "aliquot"
START_SECONDS = 120.0
OPTIONS = (
    "--Aliquot.keep_kernels=never",
    "--Aliquot.driver=softgpu",
    "--Aliquot.agent_options=--overcommit",
    "--Aliquot.agent_options=1",
    "--Aliquot.softgpu_memory=16GiB",  # the default follows the machine's memory
    "--allow-root",
    "--Aliquot.allow_root_kernels=True",
)
STOP_SECONDS = 60.0

_CONFIG = """
from jupyter_aliquot.gateway.hub import configure

c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.JupyterHub.db_url = "sqlite:///{home}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{home}/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "{password}"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"ada"}}
c.JupyterHub.load_groups = {{name: {{"users": users}} for name, users in {groups!r}.items()}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{home}/home/{{username}}"
c.Spawner.cmd = {server!r}
c.Spawner.args = ["--allow-root", *{pages!r}]
c.Spawner.start_timeout = c.Spawner.http_timeout = {seconds}
c.Spawner.environment = {{
    "JUPYTERLAB_WORKSPACES_DIR": "{home}/workspaces",
    "JUPYTER_CONFIG_DIR": "{home}/config",
    "JUPYTER_PREFER_ENV_PATH": "0",
    "JUPYTERHUB_SINGLEUSER_APP": "{app}",
}}
c.ConfigurableHTTPProxy.command = ["{proxy}"]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.pid_file = "{home}/proxy.pid"
c.JupyterHub.services = [{{"name": "tests", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [{{"name": "tests", "services": ["tests"], "scopes": ["admin:users", "admin:groups",
    "admin:servers", "tokens", "access:servers", "access:services", "list:services", "read:hub", "inherit"]}}]
folders = {{
    "ALIQUOT_RUNTIME_DIR": "{home}/run", "JUPYTER_CONFIG_DIR": "{home}/gateway", "IPYTHONDIR": "{home}/ipython",
    "JUPYTER_DATA_DIR": "{home}/gateway-data", "JUPYTER_RUNTIME_DIR": "{home}/gateway-run", "HOME": "{home}",
}}
arguments = {{"url": "http://127.0.0.1:{gateway_port}", **{arguments!r}}}
managed = {{}} if "api_token" in arguments else {{"gateway_options": {options!r}, "gateway_environment": folders}}
if others := {others!r}:
    own = {{"name": "aliquot", "url": arguments.pop("url"), **managed}}
    arguments["gateways"], managed = [own, *others], {{}}
configure(c, **{{**managed, **arguments}})
{more}
"""


def until(claim: Callable[[], Any], seconds: float) -> Any:
    """Poll until a claim about processes without events holds; return its value."""
    deadline = time.monotonic() + seconds
    while not (found := claim()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


class HubProcess(Started):
    """A JupyterHub as a context manager.

    ``with_lab``: users' servers have JupyterLab, which makes them start late. ``arguments`` goes
    into the call of `configure`, ``more`` follows it in the file; ``options`` are the gateway's own
    (`--Aliquot.…`); by default its kernels end with it. ``others`` are entries of further gateways,
    which the test starts; GATEWAY_PORT in an address is the port of the Hub's own.
    """

    def __init__(
        self,
        *,
        arguments: Mapping[str, Any] | None = None,
        options: tuple[str, ...] = (),
        more: str = "",
        with_lab: bool = True,
        others: tuple[dict[str, str], ...] = (),
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
        self.port, self.hub_port, self.proxy_port, self.gateway_port = (free_port() for _ in range(4))
        self.url = f"http://127.0.0.1:{self.port}"
        self.gateway_url = f"{self.url}/services/{SERVICE}"
        self.token = os.urandom(16).hex()
        self._known = {"alice", "bob", ADMIN}
        for user in self._known:
            self._make_home(user)
        text = _CONFIG.format(
            **{
                "port": self.port,
                "hub_port": self.hub_port,
                "proxy_port": self.proxy_port,
                "gateway_port": self.gateway_port,
            },
            **{"home": self.home, "password": PASSWORD, "proxy": PROXY, "token": self.token, "more": more},
            app="" if with_lab else "jupyter_server.serverapp.ServerApp",
            server=python_m("jupyterhub.singleuser", with_lab=with_lab),
            # A server that looks for language servers starts npm, to be told where it is.
            pages=["--LanguageServerManager.autodetect=False"] if with_lab else [WITHOUT_PAGES],
            groups=GROUPS,
            seconds=int(START_SECONDS),
            # A duplicate option is an error.
            options=[*(one for one in OPTIONS if one.partition("=")[0] not in str(options)), *options],
            arguments=dict(arguments or {}),
            others=[{**one, "url": one["url"].replace("GATEWAY_PORT", str(self.gateway_port))} for one in others],
        )
        self._config = self.home / "jupyterhub_config.py"
        self._config.write_text(text)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Return the log of the Hub, its proxy, the gateway and the users' servers so far."""
        path = self.home / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def api(self, path: str, method: str = "GET", body: Any = None, token: str = "") -> Any:
        """Call the Hub's REST API; without a token as the service "tests", which may do all."""
        return self._ask(f"{self.url}/hub/api/{path}", method, body, token or self.token)

    def gateway(self, path: str, method: str = "GET", body: Any = None, *, token: str, name: str = SERVICE) -> Any:
        """Call a path of a gateway, through the proxy: `api/kernels`, `aliquot/api/v1/status`."""
        return self._ask(f"{self.url}/services/{name}/{path}", method, body, token)

    def server(self, user: str, path: str, method: str = "GET", body: Any = None, *, token: str) -> Any:
        """Call a path of the user's own server, through the proxy."""
        return self._ask(f"{self.url}/user/{user}/{path}", method, body, token)

    def token_of(self, user: str, *scopes: str, expires_in: int | None = None) -> str:
        """Return a new API token of the user's, by default with the user's scopes.

        Revoke it by its `id`.
        """
        return str(self.new_token(user, *scopes, expires_in=expires_in)["token"])

    def new_token(self, user: str, *scopes: str, expires_in: int | None = None) -> dict[str, Any]:
        """Return a new token with the Hub's fields: `id`, `token`, `scopes`, `expires_at`."""
        self.add_user(user)
        wanted: dict[str, Any] = {"note": "of a test"}
        if scopes:
            wanted["scopes"] = list(scopes)
        if expires_in is not None:
            wanted["expires_in"] = expires_in
        made: dict[str, Any] = self.api(f"users/{user}/tokens", "POST", wanted)
        return made

    def revoke_token(self, user: str, token_id: str) -> None:
        self.api(f"users/{user}/tokens/{token_id}", "DELETE")

    def add_user(self, user: str) -> None:
        """Add a user whom the Hub does not know yet."""
        if user in self._known:
            return
        self._known.add(user)
        self._make_home(user)
        try:
            self.api(f"users/{user}", "POST")
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise

    def start_server(self, user: str, **options: Any) -> str:
        """Start the user's server with these options; return its address, once it answers.

        Without options, the Hub uses the last ones.
        """
        self.add_user(user)
        self.api(f"users/{user}/server", "POST", options or None)
        self.wait_for_server(user)
        return f"{self.url}/user/{user}/"

    def wait_for_server(self, user: str) -> None:
        """Wait until the user's server answers, by whichever way it was started."""
        self._until(lambda: self._server_of(user).get("ready"), f"the server of {user}")

    def stop_server(self, user: str) -> None:
        """Stop a server as a click on "Stop My Server" or the Hub's culler does; wait for its end."""
        self.api(f"users/{user}/server", "DELETE")
        self._until(lambda: not self._server_of(user), f"the end of the server of {user}")

    def restart(self, number: int = signal.SIGTERM, folder: Path | None = None) -> None:
        """End the Hub by this signal, and start it again, in another *folder* if one is named.

        It ends its processes, unless it is killed.
        """
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS)
        self._start(folder)

    def wait_for_gateway(self) -> None:
        """Wait until the gateway answers through the proxy."""

        def answers() -> bool:
            try:
                self._ask(f"{self.gateway_url}/api", "GET", None, self.token)
            except (urllib.error.HTTPError, OSError) as error:
                return isinstance(error, urllib.error.HTTPError) and error.code in (401, 403)
            return True

        self._until(answers, "the gateway")

    def _stop(self) -> None:
        """End all of it, and remove its folder."""
        process = self._process
        if process is not None:
            started = RunningProcesses.below(process.pid, self.home)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            started.end()
        self._process = None
        shutil.rmtree(self.home, ignore_errors=True)

    def _start(self, folder: Path | None = None) -> None:
        temporary = self.home / "tmp"
        temporary.mkdir(exist_ok=True)
        # The folder's name in the environment identifies the Hub's processes, if the Hub dies.
        environment = {**os.environ, "TMPDIR": f"{temporary}/"}
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=folder or self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._until(self._hub_answers, "the Hub")
        self.wait_for_gateway()

    def _command(self) -> list[str]:
        return python_m("jupyterhub", f"--config={self._config}")

    def _hub_answers(self) -> bool:
        try:
            self.api("info")
        except (urllib.error.HTTPError, OSError):
            return False
        return True

    def _server_of(self, user: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api(f"users/{user}")["servers"].get("", {})
        return found

    def _until(self, claim: Any, what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not claim():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"waited {START_SECONDS:.0f} s for {what}; the Hub said:\n{self.log}")
            time.sleep(0.2)

    def _make_home(self, user: str) -> None:
        """Make the home with the bundle of this checkout: the environment may have an older one."""
        extension = (
            self.home
            / "home"
            / user
            / ".local"
            / "share"
            / "jupyter"
            / "labextensions"
            / "@jupyter-aliquot"
            / "labextension"
        )
        if not extension.exists():
            extension.parent.mkdir(parents=True)
            extension.symlink_to(BUNDLE)

    def _ask(self, url: str, method: str, body: Any, token: str) -> Any:
        headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def hub_problem() -> str:
    """Return why no Hub can be started here; empty if it can."""
    if not PROXY.exists():
        return "configurable-http-proxy is not installed in build/hub-proxy: it needs Node (tools/setup.py test)"
    if importlib.util.find_spec("jupyterhub") is None:
        return "jupyterhub is not installed"
    return ""
