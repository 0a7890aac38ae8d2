"""Servers other than a JupyterLab alone.

They are Notebook 7, and a gateway whose users have a JupyterLab each. Notebook 7 is read from
build/notebook7, where tools/setup.py puts it: in the environment, its server extension would run in
every Jupyter server that the tests start.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.labextension.lab_process import REPOSITORY, LabProcess
else:
    from lab_process import REPOSITORY, LabProcess

from quick_start import python_m

NOTEBOOK = REPOSITORY / "build" / "notebook7"
TOKENS = {"alice": "a-token-of-alice", "bob": "a-token-of-bob", "ada": "a-token-of-ada"}
ADMINISTRATOR = "ada"


class NotebookProcess(LabProcess):
    """A running Notebook 7 with our bundle."""

    @property
    def tree_url(self) -> str:
        return f"{self.url}tree?token={self.token}"

    def notebook_url(self, path: str) -> str:
        return f"{self.url}notebooks/{path}?token={self.token}"

    def _command(self) -> list[str]:
        schemas = self._home / "schemas"  # both: the first loaded answers for the settings
        folders = [f"--{app}.schemas_dir={schemas}" for app in ("JupyterNotebookApp", "LabApp")]
        return python_m("notebook", "--JupyterNotebookApp.expose_app_in_browser=True", *folders, with_lab=True)

    def _environment(self) -> dict[str, str]:
        paths = [str(NOTEBOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**super()._environment(), "PYTHONPATH": os.pathsep.join(paths)}

    def _write_folders(self, settings: dict[str, dict[str, Any]]) -> None:
        super()._write_folders(settings)
        share = NOTEBOOK / "share" / "jupyter"
        (self._home / "data" / "labextensions" / "@jupyter-notebook").symlink_to(
            share / "labextensions" / "@jupyter-notebook"
        )
        from jupyterlab.commands import get_app_dir

        schemas = self._home / "schemas"  # Lab's and Notebook's own: the application reads only one folder
        schemas.mkdir()
        for folder in (Path(get_app_dir()) / "schemas", share / "lab" / "schemas"):
            for package in folder.iterdir():
                (schemas / package.name).symlink_to(package)


class GatewayProcess(LabProcess):
    """A running `aliquot serve` with two users and an administrator; it has no pages of its own."""

    def __init__(self, *, options: tuple[str, ...] = (), config: str = "", port: int = 0) -> None:
        super().__init__(with_aliquot=True, options=options, port=port)
        users = {name: {"token": token} for name, token in TOKENS.items()}
        users[ADMINISTRATOR]["role"] = "admin"
        text = f"c.AliquotIdentityProvider.users = {users!r}\nc.Aliquot.keep_kernels = 'never'\n{config}"
        (self._home / "serve.py").write_text(text)

    def _command(self) -> list[str]:
        return python_m("jupyter_aliquot.gateway.cli.app", "serve", f"--config={self._home / 'serve.py'}")

    def lab_of(
        self, user: str, settings: dict[str, dict[str, Any]] | None = None, more: tuple[str, ...] = ()
    ) -> LabProcess:
        """Return the user's own JupyterLab in gateway mode, not started yet."""
        options = (f"--gateway-url={self.url}", f"--GatewayClient.auth_token={TOKENS[user]}", *more)
        return LabProcess(with_aliquot=True, settings=settings, options=(*options, "--Aliquot.keep_kernels=never"))


class GatewayWithPages(GatewayProcess):
    """A gateway with a JupyterLab of its own, whose pages are the administrator's."""

    @property
    def lab_url(self) -> str:
        return f"{self.url}lab?token={TOKENS[ADMINISTRATOR]}&reset"

    def _command(self) -> list[str]:
        return [*LabProcess._command(self), f"--config={self._home / 'serve.py'}"]


@contextlib.contextmanager
def labs_side_by_side(
    gateway: GatewayProcess, users: tuple[str, ...], settings: dict[str, dict[str, Any]]
) -> Iterator[list[LabProcess]]:
    """A JupyterLab for each user on one gateway."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(gateway.lab_of(user, settings)) for user in users]


def why_no_notebook() -> str | None:
    """Return why Notebook 7 cannot be started here; None when it can."""
    if (NOTEBOOK / "setup.stamp").exists():
        return None
    return f"{NOTEBOOK.relative_to(REPOSITORY)} is missing; `python tools/setup.py test` fetches Notebook 7"


def an_empty_notebook(folder: Path, path: str, kernel_name: str, source: str = "") -> str:
    """Write a notebook of one cell for this kernel; return its path."""
    cell = {"cell_type": "code", "id": "only", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
    spec = {"kernelspec": {"name": kernel_name, "display_name": kernel_name, "language": "python"}}
    (folder / path).write_text(json.dumps({"cells": [cell], "metadata": spec, "nbformat": 4, "nbformat_minor": 5}))
    return path
