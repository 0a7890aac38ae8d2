"""The record of a kernel on its pod: labels to select by, and one annotation that holds all of it. Pure.

A restarted gateway reads its kernels from there alone. Values of labels are short and plain; a longer
or other text is represented by its digest, and stands in full in the annotation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.provisioner.containers.plan import LABEL_PREFIX
from jupyter_aliquot.provisioner.errors import AgentProtocolError, RequestError, StateError
from jupyter_aliquot.provisioner.grants.codec import grant_record, read_grant, read_request, request_record
from jupyter_aliquot.provisioner.resources import Grant, Request

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "aliquot"
ROLE_LABEL = f"{LABEL_PREFIX}role"
GATEWAY_LABEL = f"{LABEL_PREFIX}gateway"
KERNEL_LABEL = f"{LABEL_PREFIX}kernel-id"
OWNER_LABEL = f"{LABEL_PREFIX}owner"
RECORD_ANNOTATION = f"{LABEL_PREFIX}record"
KERNEL_ROLE, HOLDER_ROLE = "kernel", "holder"

_VERSION = 1
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DIGEST = "sha256-"
_DIGEST_LETTERS = 40


@dataclass(frozen=True)
class KernelRecord:
    """The facts of a kernel that a gateway needs after a restart.

    ``grant`` None: a kernel that still waits for one, or has none. ``created`` is in seconds since the
    epoch.
    """

    kernel_id: str
    owner: str
    gateway: str
    request: Request
    label: str = ""
    kernelspec: str = ""
    teams: frozenset[str] = frozenset()
    session: str = ""
    created: float = 0.0
    grant: Grant | None = None


def label_value(text: str) -> str:
    """Return the text if it may be a label's value, else a digest; no two texts share a value."""
    if _VALUE.fullmatch(text) and not text.startswith(_DIGEST):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return _DIGEST + digest[:_DIGEST_LETTERS]


def kernel_labels(record: KernelRecord) -> dict[str, str]:
    """Return the labels of all objects of this kernel."""
    return {
        MANAGED_BY_LABEL: MANAGER,
        ROLE_LABEL: KERNEL_ROLE,
        GATEWAY_LABEL: label_value(record.gateway),
        KERNEL_LABEL: label_value(record.kernel_id),
        OWNER_LABEL: label_value(record.owner),
    }


def kernel_selector(gateway: str) -> str:
    """Return the label selector of all kernels of one gateway."""
    return f"{MANAGED_BY_LABEL}={MANAGER},{ROLE_LABEL}={KERNEL_ROLE},{GATEWAY_LABEL}={label_value(gateway)}"


def kernel_annotations(record: KernelRecord) -> dict[str, str]:
    """Return the annotation of the kernel's pod."""
    told: dict[str, Any] = {
        "version": _VERSION,
        "kernel_id": record.kernel_id,
        "owner": record.owner,
        "gateway": record.gateway,
        "label": record.label,
        "kernelspec": record.kernelspec,
        "teams": sorted(record.teams),
        "session": record.session,
        "created": record.created,
        "request": request_record(record.request),
        "grant": None if record.grant is None else grant_record(record.grant),
    }
    return {RECORD_ANNOTATION: json.dumps(told, sort_keys=True, separators=(",", ":"))}


def read_kernel(metadata: Mapping[str, Any]) -> KernelRecord:
    """Return the record in a pod's metadata, the inverse of the functions above.

    Raises StateError for a pod without a record, of another version, or whose labels are another
    kernel's.
    """
    name = metadata.get("name", "?")
    try:
        told = json.loads((metadata.get("annotations") or {})[RECORD_ANNOTATION])
        if told["version"] != _VERSION:
            raise ValueError(f"version {told['version']!r}, but this gateway reads version {_VERSION}")
        grant = told["grant"]
        record = KernelRecord(
            kernel_id=str(told["kernel_id"]),
            owner=str(told["owner"]),
            gateway=str(told["gateway"]),
            request=read_request(told["request"]),
            label=str(told["label"]),
            kernelspec=str(told["kernelspec"]),
            teams=frozenset(map(str, told["teams"])),
            session=str(told["session"]),
            created=float(told["created"]),
            grant=None if grant is None else read_grant(grant),
        )
    except (KeyError, TypeError, ValueError, AttributeError, AgentProtocolError, RequestError) as error:
        raise StateError(
            f"The record on the pod {name} cannot be read: {error}. The gateway leaves the pod as it is; delete it by "
            "kubectl if it is not needed"
        ) from error
    labels = metadata.get("labels") or {}
    if any(labels.get(key) != value for key, value in kernel_labels(record).items()):
        raise StateError(
            f"The labels of the pod {name} are not those of its record, so it was changed by another program. The "
            "gateway leaves the pod as it is"
        )
    return record
