"""A JupyterLab of our own: one server process with private folders and a known address.

It serves the committed bundle. The browser tests and take_screenshot.py use it. It installs nothing
and touches no folder of the user's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))  # for take_screenshot.py, a program
import warm_start  # noqa: E402
from ports import free_port  # noqa: E402
from quick_start import python_m  # noqa: E402
from started import Started  # noqa: E402

# JupyterLab's own modules read variables at their import.
LAB = (*warm_start.SERVER, "httpx")
BUNDLE = REPOSITORY / "labextension" / "dist"
CHROMIUM = Path("/usr/bin/chromium")
# The same browser without the windows around a page, which take two fifths of a page's start.
_HEADLESS = Path("/usr/bin/chromium-headless-shell")
BROWSER = _HEADLESS if _HEADLESS.exists() else CHROMIUM
CHROMIUM_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
_WITH_ALIQUOT = REPOSITORY / "jupyter-config" / "server-config" / "aliquot.json"
# An installed package has its configuration in force everywhere: a server without Aliquot must undo
# it.
_WITHOUT_ALIQUOT = {
    "ServerApp": {
        "jpserver_extensions": {"jupyter_aliquot.gateway": False},
        "kernel_manager_class": "jupyter_server.services.kernels.kernelmanager.AsyncMappingKernelManager",
        "kernel_spec_manager_class": "jupyter_client.kernelspec.KernelSpecManager",
        "session_manager_class": "jupyter_server.services.sessions.sessionmanager.SessionManager",
        "identity_provider_class": "jupyter_server.auth.identity.PasswordIdentityProvider",
        "authorizer_class": "jupyter_server.auth.authorizer.AllowAllAuthorizer",
    }
}
# A server that looks for language servers starts npm to find its folder: half a second of each
# start.
_NO_LANGUAGES = {"LanguageServerManager": {"autodetect": False}}
_START_SECONDS = 90.0
_STOP_SECONDS = 30.0


class LabProcess(Started):
    """A running JupyterLab. Use as a context manager; ``notebooks`` is the folder that it serves."""

    def __init__(
        self,
        *,
        with_aliquot: bool,
        settings: dict[str, dict[str, Any]] | None = None,
        options: tuple[str, ...] = (),
        port: int = 0,
        disabled: tuple[str, ...] = (),
    ) -> None:
        """Prepare the server. ``disabled``: lab extensions and plugins that the page goes without."""
        self._disabled = disabled
        self._port = port or free_port()
        self._options = options
        self._home = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
        self.notebooks = self._home / "work"
        self.notebooks.mkdir()
        self._write_folders(settings or {})
        server_config = json.loads(_WITH_ALIQUOT.read_text()) if with_aliquot else _WITHOUT_ALIQUOT
        (self._home / "config" / "jupyter_server_config.json").write_text(json.dumps(server_config | _NO_LANGUAGES))
        self._process: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None
        self.url = ""
        self.token = ""

    def kill_and_start_again(self) -> None:
        self.kill()
        self.start_again()

    def freeze(self) -> None:
        """Let the server read nothing more, until it is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start_again(self) -> None:
        """Start again at the same address with a new token; a browser has its cookie."""
        self._start()

    def end_kernels(self) -> None:
        """End the kernels of the running server; a stop would leave them."""
        headers = {"Authorization": f"token {self.token}"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}api/kernels", headers=headers)) as answer:
            kernels = json.load(answer)
        for kernel in kernels:
            address = f"{self.url}api/kernels/{kernel['id']}"
            urllib.request.urlopen(urllib.request.Request(address, method="DELETE", headers=headers)).close()

    @property
    def lab_url(self) -> str:
        """Return the address of Lab with the token in it and an empty workspace."""
        return f"{self.url}lab?token={self.token}&reset"

    @property
    def log(self) -> str:
        """Return the server's log so far."""
        path = self._home / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _write_folders(self, settings: dict[str, dict[str, Any]]) -> None:
        extension = self._home / "data" / "labextensions" / "@jupyter-aliquot" / "labextension"
        extension.parent.mkdir(parents=True)
        extension.symlink_to(BUNDLE)
        page_config = self._home / "config" / "labconfig" / "page_config.json"
        page_config.parent.mkdir(parents=True)
        # Jupyter's question about its news would cover the page.
        disabled = ("@jupyterlab/apputils-extension:announcements", *self._disabled)
        page_config.write_text(json.dumps({"disabledExtensions": dict.fromkeys(disabled, True)}))
        for plugin, values in settings.items():
            package, _, name = plugin.partition(":")
            path = self._home / "settings" / package / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))

    def _environment(self) -> dict[str, str]:
        home = self._home
        return {
            **os.environ,
            "ALIQUOT_RUNTIME_DIR": str(home / "run"),
            "IPYTHONDIR": str(home / "ipython"),
            "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            # Otherwise an older bundle that is installed in the environment would come before the
            # one just built.
            "JUPYTER_PREFER_ENV_PATH": "0",
            "JUPYTER_RUNTIME_DIR": str(home / "jupyter"),
        }

    def _command(self) -> list[str]:
        """Return the program to run, and the options that only it understands."""
        return python_m("jupyterlab", "--LabApp.expose_app_in_browser=True", with_lab=True)

    def _start(self) -> None:
        command = [*self._command(), "--no-browser", "--allow-root"]
        command += [f"--ServerApp.port={self._port}", "--ServerApp.port_retries=0"]
        command += [f"--ServerApp.root_dir={self.notebooks}"]
        # A device of one size on any machine, on which kernels queue.
        options = ("--overcommit", "1", "--softgpu-memory", "16GiB")
        command += [f"--Aliquot.agent_options={option}" for option in options]
        command += self._options or ["--Aliquot.keep_kernels=never"]
        with (self._home / "log").open("wb") as log:
            self._process = warm_start.start(
                LAB,
                command[1:],
                cwd=self.notebooks,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait_for_address(self._process)

    def _wait_for_address(self, process: subprocess.Popen[bytes] | warm_start.WarmProcess) -> None:
        """Wait until the server listens; it writes its address a moment before."""
        path = self._home / "jupyter" / f"jpserver-{process.pid}.json"
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            try:
                found = json.loads(path.read_text())
                urllib.request.urlopen(f"{found['url']}api", timeout=5).close()
            except (OSError, json.JSONDecodeError):
                time.sleep(0.05)
                continue
            self.url, self.token = found["url"], found["token"]
            return
        raise RuntimeError(f"the server did not start within {_START_SECONDS:.0f} s; it said:\n{self.log}")

    def _stop(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stop_agent()
        shutil.rmtree(self._home, ignore_errors=True)

    def _stop_agent(self) -> None:
        """Stop the node agent that the gateway started; else it would outlive it for half a minute."""
        path = self._home / "run" / "agent.json"
        if not path.exists():
            return
        pid = int(json.loads(path.read_text())["pid"])
        deadline = time.monotonic() + _STOP_SECONDS
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.05)
