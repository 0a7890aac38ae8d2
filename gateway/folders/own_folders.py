"""Which folders of this machine are Aliquot's own: never shared with a kernel, and never covered in one."""

from __future__ import annotations

import os

from jupyter_core.paths import jupyter_data_dir

from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gpu_hook.paths import find_runtime_dir


def private_folders(knobs: Aliquot) -> tuple[str, ...]:
    """The runtime folder with its sockets, and the folder in which gateways remember; as they are written, and real."""
    runtime = knobs.runtime_dir or str(find_runtime_dir().path)
    state = knobs.state_dir or os.path.join(jupyter_data_dir(), "aliquot")
    paths = [os.path.abspath(path) for path in (runtime, state)]
    return tuple(dict.fromkeys([*paths, *map(os.path.realpath, paths)]))
