"""Ten points of a kernel's life at which a gateway's process kills itself, right before a call of a named method."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

_DYING = """
import os, signal
from {module} import {owner} as owner

real, calls = owner.{method}, []

def dying(self, *args, **kwargs):
    matches = {condition}
    calls.extend([1] if matches else [])
    if matches and len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *args, **kwargs)

owner.{method} = dying
"""


@dataclass(frozen=True)
class Point:
    """The call before which the gateway dies; ``condition`` is about ``args`` and ``kwargs``."""

    module: str
    owner: str
    method: str
    condition: str = "True"
    call: int = 1

    @property
    def code(self) -> str:
        """Return the code that a gateway's program runs before its own."""
        return _DYING.format(**vars(self))


KERNEL, RECORDS = "jupyter_aliquot.gateway.kernels.kernel", "jupyter_aliquot.gateway.state.records"
PROVISIONER = "jupyter_aliquot.provisioner.provisioner"
STARTS = {
    "granted, not launched": Point(KERNEL, "ManagedKernel", "_async_pre_start_kernel"),
    "relay started, kernel not spawned": Point(PROVISIONER, "AliquotProvisioner", "launch_kernel"),
    "kernel spawned, not bound": Point(PROVISIONER, "AliquotProvisioner", "_bind"),
    "bound, not noted as running": Point(KERNEL, "ManagedKernel", "note", "args[0].value == 'running'"),
    "just bound, ready not set": Point(KERNEL, "ManagedKernel", "_async_post_start_kernel"),
}
RESTARTS = {
    "asked to restart, still running": Point(KERNEL, "ManagedKernel", "stop_restarter"),
    "ended for its restart, not started": Point(PROVISIONER, "AliquotProvisioner", "launch_kernel", call=2),
}
ENDS = {
    "asked to end, still running": Point(KERNEL, "ManagedKernel", "withdraw"),
    "process ended, relay not": Point(PROVISIONER, "AliquotProvisioner", "_let_go"),
    "ended, record not removed": Point(RECORDS, "KernelRecords", "remove"),
}


def cases(points: Mapping[str, Point], everyday: Collection[str]) -> list[Any]:
    """Return the points as parameters of a test; those that are not named are for `make soak` alone."""
    rare = pytest.mark.soak(alone="kills gateways at one more point")
    assert points.keys() >= set(everyday)
    return [pytest.param(one, id=name, marks=() if name in everyday else rare) for name, one in points.items()]
