"""The environment of a page's reader.

Commands may change it, for nothing in it belongs to the tests. It is a virtual environment that
borrows the packages of the one that runs the tests, and owns the folders into which Jupyter's and
Aliquot's commands write: `etc/jupyter` and `share/jupyter`.
"""

from __future__ import annotations

import os
import shutil
import site
import sys
import venv
from pathlib import Path

_PROGRAMS = ("aliquot", "jupyter", "jupyter-*", "jupyterhub*", "papermill", "pip")


def make_environment(path: Path) -> None:
    """Make the environment within a second: no package is installed or copied."""
    venv.EnvBuilder(symlinks=True).create(path)
    (packages,) = (path / "lib").glob("python*/site-packages")
    lenders = [folder for folder in site.getsitepackages() if folder.startswith(sys.prefix)]
    # addsitedir, and not the bare path: the lender has .pth files of its own, the editable install among them.
    (packages / "lender.pth").write_text("".join(f"import site; site.addsitedir({folder!r})\n" for folder in lenders))
    own, lender = path / "bin", Path(sys.executable).parent
    for program in (found for pattern in _PROGRAMS for found in lender.glob(pattern)):
        text = program.read_text()
        (own / program.name).write_text(text.replace(str(lender / "python"), str(own / "python"), 1))
        (own / program.name).chmod(0o755)
    shutil.copytree(Path(sys.prefix) / "etc" / "jupyter", path / "etc" / "jupyter")
    shutil.copytree(Path(sys.prefix) / "share" / "jupyter" / "kernels", path / "share" / "jupyter" / "kernels")


def variables_of(environment: Path | None, home: Path) -> dict[str, str]:
    """Return the variables of a reader's shell.

    This environment comes first, and there is no setting of the account that runs the tests. None:
    a new terminal, in which no environment was activated.
    """
    foreign = ("JUPYTER_", "ALIQUOT_", "XDG_", "VIRTUAL_ENV", "PYTHON")
    cleared = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    lender = Path(sys.executable).parent
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != lender]
    path = os.pathsep.join(folders if environment is None else [str(environment / "bin"), *folders])
    return cleared | {"PATH": path, "HOME": str(home), "ALIQUOT_RUNTIME_DIR": str(home / "run")}
