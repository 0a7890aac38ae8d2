"""Run the node agent: ``python -m jupyter_aliquot.gpu_hook.agent``."""

from __future__ import annotations

import gc
import sys

from .base.precedence import take_precedence

if __name__ == "__main__":
    take_precedence()  # most of a start is imports, which wait for a processor like any work
gc.disable()  # imports leave no garbage; searching for it takes a tenth of the start
from .main import main  # noqa: E402 - after that

gc.enable()

if __name__ == "__main__":
    sys.exit(main())
