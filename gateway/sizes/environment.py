"""The size in the body of a request for a kernel, `KERNEL_GPU`. Pure.

A server in gateway mode sends it. It becomes part of a kernelspec's name. No environment of a
process is read.
"""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_aliquot.provisioner.errors import RequestError, SizeNameError
from jupyter_aliquot.provisioner.resources import GpuShare

from .grammar import NO_GPU, parse_size_name, parse_whole_size, size_name, size_suffix

VARIABLE = "KERNEL_GPU"
_LONGEST = 100


def asks_for_size(env: Mapping[str, str]) -> bool:
    """Return whether these variables name a size."""
    return env.get(VARIABLE, "").strip().lower() not in ("", NO_GPU)


def with_size(kernel_name: str, env: Mapping[str, str], largest: GpuShare) -> str:
    """Return the kernelspec in the size that *env* names. A name with a size keeps it.

    Raises RequestError for a size that is not valid.
    """
    if not asks_for_size(env) or _looks_sized(kernel_name):
        return kernel_name
    asked = env[VARIABLE].strip()
    try:
        return size_name(kernel_name, *parse_whole_size(asked[:_LONGEST], largest))
    except SizeNameError as error:
        raise RequestError(f"{VARIABLE} of the request: {error}, or {NO_GPU!r} for no GPU") from None


def default_size(env: Mapping[str, str], largest: GpuShare) -> str | None:
    """Return the size that a server's own variables give to a name without one: ``0.5-8g-low``.

    Return None if they give none, or one that the gateway refuses. Then no kernel starts, and the
    refusal says why.
    """
    if not asks_for_size(env):
        return None
    try:
        return size_suffix(*parse_whole_size(env[VARIABLE].strip()[:_LONGEST], largest)).removeprefix("gpu-")
    except SizeNameError:
        return None


def _looks_sized(name: str) -> bool:
    try:
        return parse_size_name(name) is not None
    except SizeNameError:
        return True
