"""ResourceClaims (DRA) in place of a resource's name: one claim a holder, which kernels on its GPU share. Pure.

A claim's spec cannot be changed, so one of several GPUs could neither grow nor shrink with the queue. It
goes with its holder; a GPU is free again once no pod refers to its claim any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_aliquot.provisioner.kubernetes.objects import Manifest, metadata
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster

CLAIMS_PREFIX = "/apis/resource.k8s.io/v1"
_REQUEST = "gpu"


def holder_claim(cluster: Cluster, holder: Manifest, device_class: str) -> Manifest:
    """Return the claim of one GPU for a holder that was created. Both have one name, and the queue's labels."""
    told = holder["metadata"]
    claim = metadata(cluster, told["name"], told["labels"])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": told["name"], "uid": told["uid"]}
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {**claim, "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [{"name": _REQUEST, "exactly": exactly}]}},
    }


def with_claims(spec: Mapping[str, Any], container: str, claims: Iterable[str]) -> Manifest:
    """Return a pod's spec whose *container* has the devices of these claims."""
    names = sorted(set(claims))
    if not names:
        return dict(spec)
    entries = [f"gpu-{number}" for number in range(len(names))]
    containers = [
        {**one, "resources": {**one["resources"], "claims": [{"name": entry} for entry in entries]}}
        if one["name"] == container
        else one
        for one in spec["containers"]
    ]
    references = [{"name": entry, "resourceClaimName": name} for entry, name in zip(entries, names, strict=True)]
    return {**spec, "containers": containers, "resourceClaims": references}
