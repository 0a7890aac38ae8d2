"""The part of a relay's record that a gateway believes.

Relays of kernels that run as their owners are written by those owners. Of such a record the gateway
takes the process alone, and only one of the owner's account. Owner, teams, grant and kernelspec come
from the gateway's own record of the kernel.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.state.persistence import recorded_facts
from jupyter_aliquot.gateway.state.records import KernelRecord
from jupyter_aliquot.gpu_hook.base.process_account import account_of
from jupyter_aliquot.provisioner.errors import AccountError
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.relay.wire.ports import FRONT_PORTS

# The parts of a connection file that name no place. Another key leads to no other kernel.
# The gateway must be able to use them: it could not take the kernel over, to limit it and to cull it.
_WORDS = ("key", "signature_scheme", "kernel_name", "curve_publickey", "curve_secretkey")
SCHEMES = frozenset(f"hmac-{name}" for name in hashlib.algorithms_guaranteed if not name.startswith("shake"))


class DoubtError(Exception):
    """The gateway does not believe a relay's record; the message says why."""


class UnsureError(Exception):
    """The gateway cannot tell whether to believe the record of a relay that runs; the message says why."""


def believed(relay: RelayRecord, record: KernelRecord | None, has_folder: Callable[[str, Path], bool]) -> RelayRecord:
    """Return the record of another account's relay, with the gateway's own facts.

    *has_folder* tells whether a folder is of a user's account, or raises AccountError. Raises
    DoubtError and UnsureError.
    """
    if record is None:
        raise DoubtError("this gateway has no record of it, and its owner can write what the relay says")
    if not _is_of_owner(relay, record, has_folder):
        raise DoubtError(f"its folder is not of the account of its owner {record.owner!r}")
    if relay.kernel is not None and account_of(relay.kernel.pid) not in (None, os.stat(relay.folder).st_uid):
        raise DoubtError(f"it names the process {relay.kernel.pid} of another account")
    facts = recorded_facts(record)
    if facts is None:
        raise _unsure(relay, "this gateway's record of it is of an earlier version, which had less in it")
    return replace(relay, facts=facts, front=_front(relay))


def _is_of_owner(relay: RelayRecord, record: KernelRecord, has_folder: Callable[[str, Path], bool]) -> bool:
    if record.uid is not None:
        return os.stat(relay.folder).st_uid == record.uid
    try:
        return has_folder(record.owner, relay.folder)
    except AccountError as error:  # it says nothing against the owner: a list of accounts may be away
        raise _unsure(relay, f"the account of its owner cannot be looked up: {error}") from error


def _unsure(relay: RelayRecord, why: str) -> UnsureError | DoubtError:
    """Return the error for a record that may be right. It matters only while something runs."""
    return UnsureError(why) if relay.is_alive or relay.has_living_kernel else DoubtError(why)


def _front(relay: RelayRecord) -> Mapping[str, Any]:
    """Return the connection info of the relay's own sockets, whatever place it names. Raises DoubtError."""
    words = {name: text for name in _WORDS if isinstance(text := relay.front.get(name), str)}
    strange = [name for name, text in words.items() if not text.isascii()]
    if strange:
        raise DoubtError(f"its {strange[0]} has other characters than ASCII")
    if words.get("signature_scheme", "hmac-sha256") not in SCHEMES:
        raise DoubtError(f"it names the signature scheme {words['signature_scheme']!r:.60}, which no gateway uses")
    return {**words, **FRONT_PORTS, "transport": "ipc", "ip": os.fspath(relay.folder / "f")}
