"""Start Jupyter's own programs without the grammar that takes more than half of their start.

`aliquot serve` and `lab` defer it themselves.
"""

from __future__ import annotations

import sys

_RUN = """
import runpy, jupyter_aliquot.gateway.serverapp.lazy_rfc3987
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def python_m(module: str, *words: str) -> list[str]:
    """Return the command that does the same as `python -m module words`."""
    return [sys.executable, "-c", _RUN.format(module=module), *words]
