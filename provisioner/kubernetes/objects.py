"""Parts that several builders share: names, metadata, and the restricted security contexts. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .settings import Cluster

Manifest = dict[str, Any]

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LONGEST_NAME = 63
_DIGEST_LETTERS = 16


def object_name(prefix: str, key: str) -> str:
    """Return the name of an object for this key; another key has another name.

    Names of pods hold lower-case letters, digits and hyphens; a key with others is represented by its
    digest.
    """
    name = f"{prefix}-{key}"
    if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LETTERS]
    return f"{prefix}-x{digest}"


def metadata(
    cluster: Cluster, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> Manifest:
    """Return the metadata of an object, which goes with the cluster's owner."""
    told: Manifest = {"name": name, "namespace": cluster.namespace, "labels": dict(labels)}
    if annotations:
        told["annotations"] = dict(annotations)
    if cluster.owner is not None:
        told["ownerReferences"] = [cluster.owner.reference()]
    return told


def pod_security(uid: int, gid: int, fs_gid: int | None = None, groups: Sequence[int] = ()) -> Manifest:
    """Return the security context of a pod, within Pod Security's level *restricted*."""
    more = {"supplementalGroups": list(groups)} if groups else {}
    return {
        "runAsNonRoot": True,
        "runAsUser": uid,
        "runAsGroup": gid,
        "fsGroup": gid if fs_gid is None else fs_gid,
        **more,
        # A home of a million files is not walked at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Manifest:
    """Return the security context of a container, within the same level."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
    }


def on_node(node: str) -> Manifest:
    """Return the affinity to one node by its name.

    The scheduler still checks the node's resources and taints, which it does not for ``nodeName``.
    """
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    term = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
