"""Environment defaults that keep frameworks from reserving most of a GPU at their start. Pure.

JAX reserves 75 % of what a kernel may have at its first operation, TensorFlow nearly all of it.
Memory that is reserved and unused makes each swap longer. Each variable is that of the framework's
own documentation, and is set only where the user, the kernelspec, the image and the administrator
set none of its group.
"""

from __future__ import annotations

from collections.abc import Mapping

# Variable, value, and variables by which a user chose otherwise.
_DEFAULTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # https://docs.jax.dev/en/latest/gpu_memory_allocation.html: a fraction is of what is preallocated
    (
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "false",
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR"),
    ),
    # https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth
    ("TF_FORCE_GPU_ALLOW_GROWTH", "true", ()),
)


def with_framework_defaults(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the defaults for which nothing was set."""
    found = dict(env)
    for name, value, others in _DEFAULTS:
        if not any(one in env for one in (name, *others)):
            found[name] = value
    return found
