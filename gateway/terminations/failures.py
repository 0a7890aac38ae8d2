"""The class of a kernel's failure: the part at fault, as far as its end tells. Pure.

A request that was refused and an end that was asked for are no failures.
"""

from __future__ import annotations

import re
from enum import Enum

from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.terminations import Ending, EndingCode


class Failure(str, Enum):
    """The class of a kernel's failure, or of its failed start."""

    USER = "user"  # its code, its environment or its request
    OUT_OF_MEMORY = "out_of_memory"
    NODE = "node"  # the machine, the node agent, the relay or the container engine
    DRIVER = "driver"  # the GPU, its driver, or the hook in front of it
    STORAGE = "storage"  # a folder or a disk
    EVICTION = "eviction"  # its team's policy ended it for the team that is owed its GPU


_BY_CODE = {
    EndingCode.OOM: Failure.OUT_OF_MEMORY,
    EndingCode.MEMORY_LIMIT: Failure.OUT_OF_MEMORY,
    EndingCode.NODE_LOST: Failure.NODE,
    EndingCode.ORPHANED: Failure.NODE,
    EndingCode.INTERCEPTION: Failure.DRIVER,
    EndingCode.CRASH: Failure.USER,
    EndingCode.EXITED: Failure.USER,
    EndingCode.UNCONTROLLED: Failure.USER,
}
# The narrowest class that fits comes first.
_BY_ERROR: tuple[tuple[type[BaseException], Failure | None], ...] = (
    (errors.WithdrawnError, None),
    (errors.DeviceLostError, Failure.DRIVER),
    (errors.InterceptionError, Failure.DRIVER),
    (errors.FolderError, Failure.STORAGE),
    (errors.StateError, Failure.STORAGE),
    (errors.GrantLostError, Failure.NODE),
    (errors.AgentError, Failure.NODE),
    (errors.RelayError, Failure.NODE),
    (errors.EngineError, Failure.NODE),
    (errors.RequestError, Failure.USER),
    (errors.GrantError, None),  # it got no GPU: the queue or a limit
    (errors.AccountError, Failure.USER),
    (MemoryError, Failure.OUT_OF_MEMORY),
)
# What a process, an engine or the system says where its own words are all that is known.
_BY_WORDS = (
    (
        re.compile(r"No space left on device|Disk quota exceeded|Read-only file system|Stale file handle|Input/output"),
        Failure.STORAGE,
    ),
    (
        re.compile(
            r"CUDA_ERROR_(ECC_UNCORRECTABLE|DEVICE_UNAVAILABLE|NO_DEVICE|SYSTEM_NOT_READY|SYSTEM_DRIVER_MISMATCH|"
            r"HARDWARE_STACK_ERROR)|uncorrectable ECC error|GPU has fallen off the bus"
        ),
        Failure.DRIVER,
    ),
    (re.compile(r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|\bMemoryError\b"), Failure.OUT_OF_MEMORY),
)


def failure_of_start(error: BaseException) -> Failure | None:
    """Return the class of a start that failed; None for one that was withdrawn, or got no GPU."""
    for kind, failure in _BY_ERROR:
        if isinstance(error, kind):
            return failure
    return _of_words(str(error)) or Failure.USER


def is_worth_a_retry(error: BaseException) -> bool:
    """Return whether a start that had its GPU failed by a fault of the infrastructure that may pass.

    An engine that refuses an image, or a hook that cannot intercept, does so again.
    """
    theirs = (errors.AgentError, errors.RelayError, errors.EngineUnavailableError, errors.GrantLostError)
    return isinstance(error, theirs)


def is_of_node(error: BaseException) -> bool:
    """Return whether a failed start speaks against the node.

    Three of them cordon a node, so nothing counts that a user can cause: no text, and no refusal by
    the container engine, which may be for the user's image. An agent or a relay host that is away
    comes back by itself, and a lost GPU gets no kernel anyway.
    """
    others = (
        errors.AgentUnavailableError,
        errors.RelayUnavailableError,
        errors.RelayRefusedError,
        errors.DeviceLostError,
    )
    theirs = (errors.AgentError, errors.RelayError, errors.EngineUnavailableError)
    return isinstance(error, theirs) and not isinstance(error, others)


def failure_of_end(ending: Ending, *, is_for_quota: bool = False) -> Failure | None:
    """Return the class of an end; None for one that was asked for.

    ``is_for_quota``: its team's policy ended it. The last words of a process that ended by itself
    count more than the way in which it went.
    """
    if is_for_quota:
        return Failure.EVICTION
    found = _BY_CODE.get(ending.code)
    return (_of_words(ending.message) or found) if found is Failure.USER else found


def _of_words(text: str) -> Failure | None:
    return next((failure for words, failure in _BY_WORDS if words.search(text)), None)
