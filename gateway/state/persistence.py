"""The state of kernels that a later gateway needs.

It is in records in files, and in metadata with the relay of each kernel. Either is enough to
recover a running kernel. Only a record knows a kernel that still waits.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from jupyter_aliquot.gateway.sharing.shares import UNSHARED, Shares
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.errors import RequestError, StateError
from jupyter_aliquot.provisioner.grants.codec import grant_record, read_request, request_record
from jupyter_aliquot.provisioner.relay.wire.files import (
    UNREAD_BYTES,
    UNSENT,
    UnreadableRecordError,
    UnsentBytes,
    read_relay_record,
)
from jupyter_aliquot.provisioner.resources import Grant, Request
from jupyter_aliquot.provisioner.terminations import Asked, Ending

from .record_queue import RecordQueue
from .records import KernelRecord, KernelState

FACTS_VERSION = 1


@dataclass(frozen=True)
class PendingResize:
    """Another size that a running kernel waits for. ``since`` is in seconds since the epoch."""

    request: Request
    since: float

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**request_record(self.request), "since": self.since}


def read_pending_resize(record: Mapping[str, Any]) -> PendingResize | None:
    """Read what PendingResize.record returned; None for an empty record. Raises RequestError."""
    try:
        return PendingResize(read_request(record), float(record["since"])) if record else None
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"The size that the kernel waited for cannot be read: {error!r}") from error


class Remembered(Protocol):
    """The part of a kernel's manager that is kept."""

    kernel_id: Any
    kernel_name: Any
    owner: str
    teams: frozenset[str]
    queued_at: float
    start_arguments: dict[str, Any]
    pending_resize: PendingResize | None
    shares: Shares
    last_crash: Ending | None

    @property
    def label(self) -> str:
        """The name that users know."""
        ...

    @property
    def grant(self) -> Grant | None:
        """The grant that it holds."""
        ...

    def stanza(self) -> dict[str, Any]:
        """Return its kernelspec, as it was at its start."""
        ...


class KernelMemory:
    """The writer of the state of this gateway's kernels.

    ``gateway`` is the identity under which kernels are found again; empty where no kernel outlives
    this process.
    """

    def __init__(
        self,
        records: RecordQueue,
        runtime: RuntimeDir,
        gateway: str,
        boot_id: str,
        orphan_seconds: float,
        unread_bytes: int = UNREAD_BYTES,
        unsent_bytes: UnsentBytes = UNSENT,
    ) -> None:
        """Bound what may wait in a kernel's relay.

        *unread_bytes* bounds messages for a kernel that does not read, 0 for no bound.
        *unsent_bytes* bounds output for a client that does not.
        """
        self._records = records
        self._runtime = runtime
        self._orphan_seconds = orphan_seconds
        self._unread_bytes = unread_bytes
        self._unsent_bytes = unsent_bytes
        self.gateway = gateway
        self.boot_id = boot_id

    @property
    def problem(self) -> str:
        """The reason why a kernel may not be recovered; empty when all is well."""
        return self._records.problem

    def note(self, kernel: Remembered, state: KernelState, asked: Asked | None = None) -> None:
        """Note the kernel's state, and by whose request it ends.

        ``noted`` waits for the disk.
        """
        record = KernelRecord(
            kernel_id=kernel.kernel_id,
            owner=kernel.owner,
            teams=tuple(sorted(kernel.teams)),
            kernelspec=kernel.kernel_name,
            state=state,
            queued_at=kernel.queued_at,
            boot_id=self.boot_id,
            label=kernel.label,
            arguments=lasting_arguments(kernel.start_arguments),
            pending_resize={} if kernel.pending_resize is None else kernel.pending_resize.record(),
            shares=kernel.shares,
            last_crash=kernel.last_crash,
            grant=None if kernel.grant is None else grant_record(kernel.grant),
            spec=kernel.stanza(),
            uid=self._account(kernel.kernel_id),
            ended_for={} if asked is None else {"code": asked.code.value, "message": asked.message, "by": asked.by},
        )
        self._records.write(record)

    def _account(self, kernel_id: str) -> int | None:
        """Return the account of the folder of a kernel's relay; None for our own, and before there is one.

        A later gateway needs no list of accounts to know it: that may not answer when the gateway
        starts.
        """
        with contextlib.suppress(OSError):
            uid = os.stat(self._runtime.relay(kernel_id)).st_uid
            return uid if uid not in (0, os.geteuid()) else None  # root's until root gave it away
        return None

    async def noted(self, kernel_id: str) -> None:
        """Wait until the notes of a kernel are on disk.

        Called before an action that a note protects.
        """
        await self._records.written(kernel_id)

    def forget(self, kernel_id: str) -> None:
        """Remove the record of a kernel that has ended, or never started."""
        self._records.remove(kernel_id)

    def freeze(self) -> None:
        """Change no record any more: the server stops, and its kernels do not."""
        self._records.freeze()

    async def close(self) -> None:
        """Wait until all notes are on disk."""
        await self._records.close()

    def has_relay(self, kernel_id: str) -> bool:
        """Return whether the kernel has a relay that waits for this gateway to come back."""
        try:
            relay = read_relay_record(self._runtime.relay(kernel_id))
        except (FileNotFoundError, UnreadableRecordError):
            return False
        return relay.is_alive and relay.gateway == self.gateway

    def facts(self, kernel: Remembered, grant: Grant | None) -> dict[str, Any]:
        """Return the metadata that the kernel's relay keeps.

        A gateway recovers the kernel from it without a record.
        """
        return {
            "version": FACTS_VERSION,
            "gateway": self.gateway,
            "orphan_seconds": self._orphan_seconds,
            "unread_bytes": self._unread_bytes,
            "unsent_bytes": vars(self._unsent_bytes),
            "owner": kernel.owner,
            "teams": sorted(kernel.teams),
            "kernelspec": kernel.kernel_name,
            "spec": kernel.stanza(),
            "label": kernel.label,
            "queued_at": kernel.queued_at,
            "arguments": lasting_arguments(kernel.start_arguments),
            "grant": None if grant is None else grant_record(grant),
        }


@dataclass(frozen=True)
class SavedKernel:
    """The saved state of a kernel: the facts of its start, from its record or its relay."""

    owner: str
    kernelspec: str
    label: str
    queued_at: float
    arguments: Mapping[str, Any]
    grant: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] | None = None
    teams: frozenset[str] = frozenset()
    # Only a record has these.
    shares: Shares = UNSHARED
    last_crash: Ending | None = None


def read_saved_kernel(record: KernelRecord | None, facts: Mapping[str, Any] | None) -> SavedKernel:
    """Read the saved state from a relay's metadata, or else from the record.

    The metadata is from the start itself. A kernel that never started has a record alone. Raises
    StateError for metadata that this version cannot read, where there is no record.
    """
    try:
        if facts is not None:
            found = _read_facts(facts)
            # A record is written again when the notebook gets another name, and the kernel another
            # size.
            if record is None:
                return found
            return replace(
                found,
                kernelspec=record.kernelspec,
                label=record.label,
                arguments=record.arguments,
                shares=record.shares,
                last_crash=record.last_crash,
            )
    except (KeyError, TypeError, ValueError) as error:
        if record is None:
            names = sorted(facts or ())
            raise StateError(f"The metadata of a relay cannot be read: {error!r} in {names}") from error
    assert record is not None  # without facts there is one
    told = (record.owner, record.kernelspec, record.label, record.queued_at, record.arguments)
    return SavedKernel(*told, teams=frozenset(record.teams), shares=record.shares, last_crash=record.last_crash)


def recorded_facts(record: KernelRecord) -> dict[str, Any] | None:
    """Return the metadata of a kernel's relay as this gateway's own record has it.

    It takes the place of what the relay says where another account writes that. None for a record of
    an earlier version, which lacks part of it.
    """
    if record.spec is None:
        return None
    return {
        "runtime": "process",
        "owner": record.owner,
        "teams": list(record.teams),
        "kernelspec": record.kernelspec,
        "spec": dict(record.spec),
        "label": record.label,
        "queued_at": record.queued_at,
        "arguments": dict(record.arguments),
        "grant": None if record.grant is None else dict(record.grant),
    }


def _read_facts(facts: Mapping[str, Any]) -> SavedKernel:
    return SavedKernel(
        owner=str(facts["owner"]),
        kernelspec=str(facts["kernelspec"]),
        label=str(facts["label"]),
        queued_at=float(facts["queued_at"]),
        arguments=dict(facts["arguments"]),
        grant=None if facts["grant"] is None else dict(facts["grant"]),
        spec=dict(facts["spec"]),
        # A gateway from before teams had quotas wrote no teams.
        teams=frozenset(str(team) for team in facts.get("teams", ())),
    )


def lasting_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the start arguments as a later gateway can use them.

    Of the environment they have only the variables that differ from this gateway's own. The later
    gateway supplies the rest.
    """
    lasting: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == "env" and isinstance(value, Mapping):
            lasting[name] = {key: text for key, text in value.items() if os.environ.get(key) != text}
        elif isinstance(value, os.PathLike):
            lasting[name] = os.fspath(value)
        elif name != "kernel_id" and _is_json(value):
            lasting[name] = value
    return lasting


def live_arguments(lasting: Mapping[str, Any]) -> dict[str, Any]:
    """Read what lasting_arguments returned, in this process.

    A start without an environment gets none.
    """
    arguments = dict(lasting)
    if "env" in arguments:
        arguments["env"] = {**os.environ, **arguments["env"]}
    return arguments


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
