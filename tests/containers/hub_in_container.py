"""A Hub in a container, by docs/how-to/jupyterhub.md.

DockerSpawner runs users' servers as containers next to it. The guide's own block is a part of its
configuration. It is on the software GPU, and ends all that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guide_blocks import HUB_GUIDE, blocks_of
from hub_process import PASSWORD, PROXY
from started import Started

if TYPE_CHECKING:
    from tests.containers.container_engines import WHOLE_IMAGE, Engine
else:
    from container_engines import WHOLE_IMAGE, Engine

NETWORK = HUB_NAME = "jupyterhub"
NOTEBOOK_IMAGE = "your/notebook:1"
USER = 4321
SECONDS = 240.0
ANSWER_SECONDS = 40.0

_BEFORE = """
import jupyter_aliquot.gateway.hub as hub

def configure(c, **settings):
    return hub.configure(c, **settings, user_limits={{"alice": 0.5}}, gateway_options=[
        "--Aliquot.keep_kernels=never", "--Aliquot.driver=softgpu", "--allow-root",
        "--Aliquot.allow_root_kernels=True"],
        gateway_environment={{"ALIQUOT_RUNTIME_DIR": "{home}/run", "HOME": "{home}"}})

c.JupyterHub.bind_url = "http://:8000"
c.JupyterHub.db_url = "sqlite:///{home}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{home}/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "{password}"
c.Authenticator.allow_all = True
c.Spawner.start_timeout = c.Spawner.http_timeout = {seconds}
c.ConfigurableHTTPProxy.command = ["{proxy}"]
c.JupyterHub.services = [{{"name": "tests", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [{{"name": "tests", "services": ["tests"],
    "scopes": ["admin:users", "admin:servers", "tokens", "access:servers", "access:services", "inherit"]}}]
"""


class HubInContainer(Started):
    """The Hub as a context manager. ``url``: this machine's address of the Hub's proxy."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.home = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
        self.home.chmod(0o755)
        self._token = os.urandom(16).hex()
        before = _BEFORE.format(home=self.home, password=PASSWORD, proxy=PROXY, token=self._token, seconds=int(SECONDS))
        (block,) = blocks_of(HUB_GUIDE, "Docker")
        assert NOTEBOOK_IMAGE in block
        (self.home / "jupyterhub_config.py").write_text(before + block)
        self.url = ""
        self._network: Any = None
        self._box: Any = None

    @property
    def log(self) -> str:
        return "" if self._box is None else self._box.logs().decode(errors="replace")

    def server_box(self, user: str) -> Any:
        """Return the container of a user's server; None if there is none."""
        found = self._engine.client().containers.list(all=True, filters={"name": f"^jupyter-{user}$"})
        return found[0] if found else None

    def ask(self, path: str, method: str = "GET", body: Any = None, token: str = "") -> Any:
        """Request a path below the proxy; as "tests" without a token.

        Paths are `hub/api/…`, `user/…` and `services/aliquot/…`.
        """
        headers = {"Authorization": f"token {token or self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def wait_for_server(self, user: str, asked: Callable[[], Any]) -> None:
        """Wait for a user's server.

        The engine changes the bridge meanwhile, and an answer that crosses it then may be lost: the
        test then looks for the server.
        """
        with contextlib.suppress(TimeoutError):
            asked()
        self.until(lambda: self.ask(f"hub/api/users/{user}")["servers"].get("", {}).get("ready"), f"{user}'s server")

    def stop_server(self, user: str) -> None:
        """Stop a server as a click on "Stop My Server" does."""
        with contextlib.suppress(TimeoutError):
            self.ask(f"hub/api/users/{user}/server", "DELETE")
        self.until(lambda: not self.ask(f"hub/api/users/{user}")["servers"].get(""), f"the end of {user}'s server")

    def until(self, claim: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + SECONDS
        while not (found := self._look(claim)):
            self._box.reload()
            if self._box.status != "running" or time.monotonic() > deadline:
                raise RuntimeError(f"waited for {what}; the Hub said:\n{self.log}")
            time.sleep(0.2)
        return found

    @staticmethod
    def _look(claim: Callable[[], Any]) -> Any:
        try:
            return claim()
        except TimeoutError:
            return None

    def _stop(self) -> None:
        self._engine.remove_containers()
        if self._network is not None:
            self._network.remove()
        shutil.rmtree(self.home, ignore_errors=True)

    def _start(self) -> None:
        client = self._engine.client()
        self._network = client.networks.create(NETWORK, driver="bridge")
        self._make_notebook_image()
        folders = {str(self.home): {"bind": str(self.home), "mode": "rw"}}
        # Docker's client looks here by itself.
        folders[f"{self._engine.folder}/engine.sock"] = {"bind": "/var/run/docker.sock", "mode": "rw"}
        self._box = client.containers.run(
            WHOLE_IMAGE,
            ["python3", "-m", "jupyterhub", f"--config={self.home}/jupyterhub_config.py"],
            name=HUB_NAME,
            network=NETWORK,
            working_dir=str(self.home),
            environment={"HOME": str(self.home), "TMPDIR": str(self.home)},
            volumes=folders,
            init=True,
            detach=True,
        )
        self._box.reload()
        address = self._box.attrs["NetworkSettings"]["Networks"][NETWORK]["IPAddress"]
        self.url = f"http://{address}:8000"
        for path in ("hub/api/info", "services/aliquot/api/kernels"):
            self.until(lambda path=path: self._answers(path), path)  # type: ignore[misc]

    def _answers(self, path: str) -> bool:
        try:
            self.ask(path)
        except OSError as error:
            return isinstance(error, urllib.error.HTTPError) and error.code == 403
        return True

    def _make_notebook_image(self) -> None:
        """Make the notebook image.

        Its user does not exist on this machine; its command is that of JupyterHub's own images.
        """
        (base,) = [image for image in self._engine.client().images.list() if f"{WHOLE_IMAGE}:latest" in str(image.tags)]
        folder = self.home / "image"
        folder.mkdir()
        lines = [f"FROM {base.id}", f"USER {USER}:{USER}", "ENV HOME=/tmp", "WORKDIR /tmp"]
        (folder / "Dockerfile").write_text("\n".join([*lines, 'CMD ["jupyterhub-singleuser"]', ""]))
        self._engine.client().images.build(path=str(folder), tag=NOTEBOOK_IMAGE)
