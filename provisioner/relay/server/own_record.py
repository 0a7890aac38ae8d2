"""relay.json: the fields for clients, and those for another relay that takes over the folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.files import (
    RELAY_VERSION,
    ProcessId,
    RelayRequest,
    UnreadableRecordError,
    connection_info,
    read_relay_fields,
    write_relay_fields,
)
from jupyter_aliquot.provisioner.relay.wire.messages import new_id
from jupyter_aliquot.provisioner.relay.wire.peer import Refusal
from jupyter_aliquot.provisioner.relay.wire.proc import read_boot_id, start_time_ticks

_KINDS: dict[str, tuple[type, ...]] = {
    "kernel_id": (str,),
    "key": (str,),
    "signature_scheme": (str,),
    "kernel_name": (str,),
    "gateway": (str, type(None)),
    "owner_pid": (int, type(None)),
    "owner_start_time_ticks": (int, type(None)),
    "orphan_seconds": (int, float),
    "tells_agent": (bool,),
    "waiting_notice": (bool,),
    "trim": (bool,),
    "memory_bytes": (int,),
    "store_bytes": (int,),
    "user": (str,),
    "user_store_bytes": (int,),
    "all_store_bytes": (int,),
    "unread_bytes": (int,),
    "log_bytes": (int,),
    "facts": (dict,),
    "curve_publickey": (str,),
    "curve_secretkey": (str,),
    "account": (str,),
    "group_memory": (int,),
    "group_cpus": (int, float),
    "group_pids": (int,),
    "has_sidecar": (bool,),
    "prefix": (str,),
}


def read_request(found: Any) -> RelayRequest:
    """Return the request in a record or in relay.json. Unknown fields are ignored. Raises Refusal."""
    if not isinstance(found, dict):
        raise Refusal("bad_request", f"a request is an object, not {type(found).__name__}")
    given = {field.name: found[field.name] for field in fields(RelayRequest) if field.name in found}
    for name in ("kernel_id", "key"):
        if name not in given:
            raise Refusal("bad_request", f"a request has a {name}")
    for name, value in given.items():
        if not isinstance(value, _KINDS[name]):
            raise Refusal("bad_request", f"{name} of a request is {type(value).__name__}")
    return RelayRequest(**given)


class OwnRecord:
    """A relay's record, which it alone writes.

    Each relay has its ``epoch``; ``identity`` and ``prefix`` stay.
    """

    def __init__(self, folder: Path, request: RelayRequest, kept: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self.request = request
        self.kernel_id = request.kernel_id
        self.facts: Mapping[str, Any] = request.facts
        self.kernel: ProcessId | None = None
        self.has_joined = False  # a relay joined that kernel: its sockets' names were there then
        self.reason = ""  # why the relay ends that kernel
        self.epoch = new_id()
        self.identity = f"relay-{new_id()}"
        self.prefix = request.prefix or f"link-{new_id()}-"
        if kept is not None:
            self._take_over(kept)

    @classmethod
    def found(cls, folder: Path) -> OwnRecord:
        """Return the record of a killed relay. Raises OSError, UnreadableRecordError and Refusal."""
        kept = read_relay_fields(folder)
        request = read_request(kept.get("request"))
        if request.kernel_id != folder.name:  # the host, which may be root, finds folders by ids
            raise UnreadableRecordError(f"{folder} holds a request for kernel {request.kernel_id!r:.60}")
        return cls(folder, request, kept)

    def public(self) -> dict[str, Any]:
        """Return the fields that clients read."""
        return {
            "version": RELAY_VERSION,
            "kernel_id": self.kernel_id,
            "front": {**connection_info(self.folder / "f", self.request), **self._curve()},
            "pid": os.getpid(),
            "start_time_ticks": start_time_ticks(os.getpid()) or 0,
            "boot_id": read_boot_id(),
            "facts": dict(self.facts),
            "gateway": self.request.gateway,
            "kernel": None if self.kernel is None else vars(self.kernel),
        }

    def _curve(self) -> dict[str, str]:
        public, secret = self.request.curve_publickey, self.request.curve_secretkey
        return {"curve_publickey": public, "curve_secretkey": secret} if secret else {}

    def kernel_connection(self) -> dict[str, Any]:
        """Return the content of the kernel's own connection file."""
        return connection_info(self.folder / "k" / "s", self.request)

    def started(self, kernel: ProcessId) -> None:
        """Note that another process runs from now on."""
        self.kernel, self.has_joined, self.reason = kernel, False, ""

    def write(self) -> None:
        """Write relay.json. Raises OSError."""
        own = {
            "identity": self.identity,
            "prefix": self.prefix,
            "request": {**asdict(self.request), "facts": {}},
            "has_joined": self.has_joined,
            "reason": self.reason,
        }
        write_relay_fields(self.folder, {**self.public(), **own})

    def _take_over(self, kept: Mapping[str, Any]) -> None:
        try:
            kernel = kept["kernel"]
            self.kernel = None if kernel is None else ProcessId(int(kernel["pid"]), int(kernel["start_time_ticks"]))
            self.identity, self.prefix = str(kept["identity"]), str(kept["prefix"])
            self.facts = dict(kept["facts"])
            self.has_joined, self.reason = bool(kept.get("has_joined")), str(kept.get("reason", ""))
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableRecordError(f"{self.folder} holds no record that can be taken over: {error!r}") from error
