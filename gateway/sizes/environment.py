"""The size that a request for a kernel names in its own body, `KERNEL_GPU`: so a server in gateway mode sends it.

Pure: it makes a kernelspec's name of it, reads no environment of a process, and remembers nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_aliquot.provisioner.errors import RequestError, SizeNameError
from jupyter_aliquot.provisioner.resources import GpuShare

from .grammar import NO_GPU, parse_size, parse_size_name, size_name, size_suffix

VARIABLE = "KERNEL_GPU"
_LONGEST = 100


def asks_for_size(env: Mapping[str, str]) -> bool:
    """Whether these variables name a size at all."""
    return env.get(VARIABLE, "").strip().lower() not in ("", NO_GPU)


def with_size(kernel_name: str, env: Mapping[str, str], largest: GpuShare) -> str:
    """The kernelspec to start: this one in the size that ``env`` names; a name that has a size keeps it.

    Raises RequestError for what is no size.
    """
    if not asks_for_size(env) or _looks_sized(kernel_name):
        return kernel_name
    asked = env[VARIABLE].strip()
    try:
        return size_name(kernel_name, parse_size(asked[:_LONGEST], largest))
    except SizeNameError as error:
        raise RequestError(
            f"{VARIABLE} of the request: {error}. {VARIABLE} takes what follows 'gpu-' in such a name, or {NO_GPU!r}"
        ) from None


def default_size(env: Mapping[str, str], largest: GpuShare) -> str | None:
    """What these variables, a server's own, make of a name without a size: ``0.5-8g-low``.

    None for nothing, and for what the gateway refuses: then no kernel starts at all, and the refusal says why.
    """
    if not asks_for_size(env):
        return None
    try:
        return size_suffix(parse_size(env[VARIABLE].strip()[:_LONGEST], largest)).removeprefix("gpu-")
    except SizeNameError:
        return None


def _looks_sized(name: str) -> bool:
    try:
        return parse_size_name(name) is not None
    except SizeNameError:
        return True
