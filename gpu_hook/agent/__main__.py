"""``python -m jupyter_aliquot.gpu_hook.agent``."""

from __future__ import annotations

import gc
import sys

gc.disable()  # nothing of what is imported is garbage: to look for some takes a tenth of the start
from .main import main  # noqa: E402 - after that

gc.enable()

if __name__ == "__main__":
    sys.exit(main())
