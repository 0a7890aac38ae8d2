"""Compute what to run from a kernel's command, environment and Grant.

Pure: this module starts nothing and looks nothing up.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .framework_defaults import with_framework_defaults
from .resources import Grant

KERNEL_ID_VARIABLE = "ALIQUOT_KERNEL_ID"
PREPEND = "_PREPEND"
_DRIVER, _SOFTGPU = "ALIQUOT_REAL_CUDA", "ALIQUOT_SOFTGPU_"
LIBRARIES = "LD_LIBRARY_PATH"


@dataclass(frozen=True)
class LaunchSettings:
    """Settings of the node for every kernel.

    ``start_program`` None: no self-check program was built. ``has_image``: an image's environment
    comes before defaults of ours, so they are added with it.
    """

    start_program: str | None = None
    has_image: bool = False


@dataclass(frozen=True)
class LaunchSpec:
    """The command to run, as a value.

    ``program`` is the kernel's own, which argv starts with unless the self-check program comes
    before it.
    """

    kernel_id: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str | None = None
    program: str = ""


def launch_spec(
    kernel_id: str,
    cmd: Sequence[str],
    env: Mapping[str, str],
    grant: Grant | None,
    settings: LaunchSettings,
    cwd: str | None = None,
) -> LaunchSpec:
    """Return the launch of one kernel.

    Without a grant it is the kernelspec's own command and environment.
    """
    program = cmd[0] if cmd else ""
    if grant is None:
        return LaunchSpec(kernel_id, tuple(cmd), _sorted({**env, KERNEL_ID_VARIABLE: kernel_id}), cwd, program)
    prefix = () if settings.start_program is None else (settings.start_program,)
    own = env if settings.has_image else with_framework_defaults(env)
    granted = {**add_grant(own, grant), KERNEL_ID_VARIABLE: kernel_id}
    return LaunchSpec(kernel_id, (*prefix, *cmd), _sorted(granted), cwd, program)


def add_grant(env: Mapping[str, str], grant: Grant) -> dict[str, str]:
    """Return the environment with the grant's variables, which win over the user's.

    CUDA_VISIBLE_DEVICES says which devices were granted.
    """
    result = dict(env)
    for name, value in grant.env:
        if name.endswith(PREPEND):
            target = name.removesuffix(PREPEND)
            result[target] = _prepend(value, result.get(target, ""))
        else:
            result[name] = value
    return result


def add_own_driver(env: Mapping[str, str], grant: Grant, folder: str) -> dict[str, str]:
    """Return the environment with the libcuda of an image's own folder below the hook, for a newer CUDA.

    ``folder`` empty: the image has none. A software GPU keeps its own. The hook's folder stays first on
    the loader's path.
    """
    names = dict(grant.env)
    if not folder or _DRIVER not in names or any(name.startswith(_SOFTGPU) for name in names):
        return dict(env)
    first = names.get(LIBRARIES + PREPEND, "")
    path = _prepend(folder, env.get(LIBRARIES, ""))  # libcuda finds its compiler beside it
    path = _prepend(first, path) if first else path
    return {**env, LIBRARIES: path, _DRIVER: posixpath.join(folder, "libcuda.so.1")}


def _prepend(first: str, rest: str) -> str:
    """Put a folder first in a path, and only there.

    A kernel started from within a kernel inherits the shim folder.
    """
    folders = [folder for folder in rest.split(os.pathsep) if folder and folder != first]
    return os.pathsep.join([first, *folders])


def _sorted(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(env.items()))
