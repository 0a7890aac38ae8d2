"""The control groups of kernels, as a host of root makes them for the relays that it forks.

A machine on which none can be made starts kernels all the same: the log says it once, and the
gateway sees it by the group that is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.control_groups import NO_LIMITS, ControlGroups, GroupLimits
from jupyter_aliquot.provisioner.relay.wire.files import RelayRequest
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.peer import Refusal
from jupyter_aliquot.provisioner.resources import Bytes

_MOST_CPUS = 100_000.0
_MOST_BYTES = 1 << 60
_MOST_PIDS = 1 << 22  # the most that the system has


class KernelGroups:
    """The groups of one host. Made by the host, and used in the children that become relays."""

    def __init__(self, groups: ControlGroups | None = None) -> None:
        self._groups = groups or ControlGroups()
        self._is_there = True
        try:
            self._groups.prepare()
        except OSError as error:
            self._is_there = False
            log("no_control_groups", reason=f"{error}; kernels have no limits of memory, CPUs and processes")

    def enter(self, uid: int, kernel_id: str, request: RelayRequest | None) -> None:
        """Enter a kernel's group, in the child that becomes its relay and is still root's.

        Without a *request* the relay follows a killed one, and enters the group of that.
        """
        limits = NO_LIMITS if request is None else _limits(request.group_memory, request.group_cpus, request.group_pids)
        if not self._is_there or (request is not None and not limits):
            return
        try:
            self._groups.enter(uid, kernel_id, limits)
        except OSError as error:
            log("no_control_group", kernel=kernel_id, reason=error)

    def change(self, folder: Path, header: Mapping[str, Any]) -> None:
        """Change the limits of a kernel that runs. Raises Refusal where the system does not."""
        limits = _limits(header.get("memory"), header.get("cpus"), header.get("pids", 0))
        if not limits:
            raise Refusal("bad_request", "a limit has memory, a number of bytes, and cpus, a number")
        try:
            if self._is_there:
                self._groups.limit(folder.lstat().st_uid, folder.name, limits)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Refusal("internal", f"the system does not set {limits.memory} as its memory: {reason}") from error

    def remove_others(self, kernel_ids: Collection[str]) -> None:
        """Remove groups that have no process and no relay."""
        if self._is_there:
            self._groups.remove_others(kernel_ids)


def _limits(memory: object, cpus: object, pids: object) -> GroupLimits:
    """Return the limits of a request; none for what is no number."""
    if not isinstance(memory, int) or not isinstance(cpus, (int, float)) or not isinstance(pids, int):
        return NO_LIMITS
    is_right = 0 < memory < _MOST_BYTES and 0 < cpus < _MOST_CPUS and 0 <= pids < _MOST_PIDS
    return GroupLimits(Bytes(memory), float(cpus), pids) if is_right else NO_LIMITS
