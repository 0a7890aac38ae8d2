"""Start Jupyter's own programs without work that is most of their start and that no test asks for.

`aliquot serve` and `lab` defer the grammar of addresses themselves.
"""

from __future__ import annotations

import sys

_RUN = """
import runpy, jupyter_aliquot.gateway.serverapp.lazy_rfc3987
{before}runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
# JupyterLab starts Node twice to read Yarn's settings, which it needs to build extensions alone.
# Where there is no Node, it goes on with these, too.
_NO_YARN = """import jupyterlab.commands
jupyterlab.commands._yarn_config = lambda logger: {"yarn config": {}, "npm config": {}}
"""
# Extensions that serve pages and language servers, and start Node and npm for that.
_PAGES = ("jupyterlab", "jupyter_lsp", "notebook_shim")
WITHOUT_PAGES = f"--ServerApp.jpserver_extensions={dict.fromkeys(_PAGES, False)}"


def program(module: str, *, with_lab: bool = False, before: str = "") -> str:
    """Return the code that does the same as `python -m module`, for `python -c`, after *before*."""
    return _RUN.format(module=module, before=before + (_NO_YARN if with_lab else ""))


def python_m(module: str, *words: str, with_lab: bool = False, before: str = "") -> list[str]:
    """Return the command that does the same as `python -m module words`, after *before*."""
    return [sys.executable, "-c", program(module, with_lab=with_lab, before=before), *words]
