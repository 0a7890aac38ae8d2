"""Find cuda.h and nvml.h for builds, tests and benchmarks, with the standard library alone."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

VARIABLES = {"cuda.h": "CUDA_INCLUDE", "nvml.h": "NVML_INCLUDE"}
_WHEEL_PARTS = ("cu13", "cuda_runtime", "nvml_dev")
_TOOLKITS = Path("/usr/local")


class HeaderMissingError(LookupError):
    """A header that a build needs is missing; the message says what to do."""


def header_folder(name: str) -> Path:
    """Return the folder of ``cuda.h`` or ``nvml.h``.

    The header's variable names it; else it is in one of NVIDIA's wheels or in a toolkit.

    Raises HeaderMissingError.
    """
    variable = VARIABLES[name]
    for folder in _candidates(variable):
        if (folder / name).exists():
            return folder
    raise HeaderMissingError(
        f"{name} is neither in NVIDIA's wheels nor under {_TOOLKITS}/cuda: set {variable} to its folder, or "
        "pip install 'nvidia-cuda-runtime==13.0.*' 'nvidia-nvml-dev==13.0.*'"
    )


def _candidates(variable: str) -> Iterator[Path]:
    if os.environ.get(variable):
        yield Path(os.environ[variable])
    sites = dict.fromkeys([*sys.path, *(sysconfig.get_paths()[key] for key in ("purelib", "platlib"))])
    for site in filter(None, sites):
        yield from (Path(site) / "nvidia" / part / "include" for part in _WHEEL_PARTS)
    for pattern in ("cuda/include", "cuda*/include", "cuda*/targets/*/include"):
        yield from sorted(_TOOLKITS.glob(pattern))
