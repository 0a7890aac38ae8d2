"""Jupyter's server application with our extension on.

So `lab` and `serve` need no configuration file. Whatever the user configures (files or options)
still wins.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

from jupyter_server.serverapp import ServerApp
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado.ioloop import PeriodicCallback
from traitlets import default
from traitlets.config import Application
from traitlets.config.loader import ConfigFileNotFound

import jupyter_aliquot.gateway.serverapp.lazy_rfc3987  # noqa: F401 (before Jupyter's server, which imports jsonschema)
from jupyter_aliquot.gateway.auth.identity import operating_system_user
from jupyter_aliquot.gateway.base.errors import CommandError
from jupyter_aliquot.gateway.base.gil import take_short_turns

from .freed_memory import give_back, keep_little
from .gc_policy import CalmCollector

EXTENSION = "jupyter_aliquot.gateway"
_MOST_FILES = 65_536
_COLLECT_SECONDS = 60.0


class AliquotServerApp(ServerApp):
    """A Jupyter server with our extension on; the extension puts our managers in place."""

    @default("min_open_files_limit")
    def _default_min_open_files_limit(self) -> int | None:
        """Return a limit for more than a thousand kernels, where Jupyter's 4096 would end.

        Each kernel takes three of this process's descriptors, each browser two.
        """
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)

    def load_config_file(self, suppress_errors: bool = True) -> None:  # type: ignore[override]  # as JupyterApp has it
        """Called by ServerApp.initialize.

        Jupyter skips a file of --config that it cannot read, or that fails, and the server would run
        without the limits in it. Other programs' files may fail as ever.
        """
        if not self.config_file:
            super().load_config_file(suppress_errors)
            return
        folder, name = os.path.split(self.config_file)
        self._check_config_file()
        with contextlib.suppress(ConfigFileNotFound):
            Application.load_config_file(self, "jupyter_config", path=self.config_file_paths)
        found, self.raise_config_file_errors = self.raise_config_file_errors, True
        try:
            Application.load_config_file(self, name, path=folder)
        except Exception as error:
            raise CommandError(
                f"--config={self.config_file} fails: {type(error).__name__}: {error}. Correct the file"
            ) from error
        finally:
            self.raise_config_file_errors = found

    def _check_config_file(self) -> None:
        """Check that Jupyter reads the file: it looks for a .py and a .json of that name."""
        stem, kind = os.path.splitext(self.config_file)
        if kind not in ("", ".py", ".json"):
            raise CommandError(f"--config={self.config_file}: Jupyter reads files .py and .json alone. Rename it")
        names = [self.config_file] if kind else [f"{stem}.py", f"{stem}.json"]
        try:
            open(next(filter(os.path.exists, names), names[0]), "rb").close()
        except OSError as error:
            raise CommandError(
                f"--config={self.config_file}: this account ({operating_system_user().name}) cannot read it: "
                f"{error.strerror}. Make it readable, or name another file"
            ) from error

    def find_server_extensions(self) -> None:
        """Called by ServerApp.initialize. Enables our extension as its configuration file would."""
        self.jpserver_extensions = {**self.jpserver_extensions, EXTENSION: True}
        super().find_server_extensions()


class KernelFolders(AsyncLargeFileManager):
    """A contents manager that knows the folder in which a kernel starts, and serves no file.

    Jupyter's own contents manager would add a route.
    """

    def get_extra_handlers(self) -> list[Any]:
        """Called by ServerWebApplication."""
        return []


class GatewayServerApp(AliquotServerApp):
    """A server of kernels, sessions, kernelspecs and our API.

    It serves no files, no terminals and no browser application.
    """

    name = "aliquot serve"
    description = "The Aliquot gateway."
    # Whether its users are a Hub's.
    is_hub_service = False
    subcommands: dict[str, Any] = {}
    # jupyter_server fixes the tuple's length by its type, yet says that subclasses may shorten it.
    default_services = ("api", "auth", "kernels", "kernelspecs", "sessions", "security")  # type: ignore[assignment]

    @default("config_file_name")
    def _default_config_file_name(self) -> str:
        # Jupyter would look for a file of our name, which no document mentions.
        return "jupyter_server_config"

    @default("contents_manager_class")
    def _default_contents_manager_class(self) -> Any:
        return KernelFolders

    @default("open_browser")
    def _default_open_browser(self) -> bool:
        return False

    @default("terminals_enabled")
    def _default_terminals_enabled(self) -> bool:
        return False

    @default("default_url")
    def _default_default_url(self) -> str:
        return "/api"

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Called by launch_instance. No other program shares this process."""
        keep_little(os.environ)
        take_short_turns()
        super().initialize(*args, **kwargs)

    def start(self) -> None:
        """Called by launch_instance. Serves until the process is stopped."""
        collector = CalmCollector()
        collector.start()

        def collect() -> None:
            collector.collect_if_due()
            give_back()

        PeriodicCallback(collect, 1e3 * _COLLECT_SECONDS).start()
        super().start()

    def find_server_extensions(self) -> None:
        """Called by ServerApp.initialize.

        Enables our extension, and those that the command line or a ServerApp setting names.
        """
        self.jpserver_extensions = {**self.jpserver_extensions, EXTENSION: True}
