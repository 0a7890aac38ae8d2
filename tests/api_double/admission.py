"""The reasons for which a server takes no new object, or no other amounts: code, reason and words of each. Pure.

The texts are those of a control plane of 1.36, as far as tests read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Object = dict[str, Any]
Refusal = tuple[int, str, str]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_TIMES = ("acquireTime", "renewTime")
_LEVEL = "pod-security.kubernetes.io/enforce"
_UNITS = {"m": 0.001, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def refused_name(kind: str, name: str) -> Refusal | None:
    """Refuse a name that is no subdomain."""
    if _NAME.fullmatch(name):
        return None
    told = f'{kind} "{name}" is invalid: metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must '
    return 422, "Invalid", f"{told}consist of lower case alphanumeric characters, '-' or '.'"


def refused_lease(told: Object) -> Refusal | None:
    """Refuse a Lease whose times are none."""
    for name in _TIMES:
        time = (told.get("spec") or {}).get(name)
        if time is not None and not _TIME.fullmatch(str(time)):
            told_as = f'parsing time "{time}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "{time}" as "2006"'
            return 400, "BadRequest", f'Lease in version "v1" cannot be handled as a Lease: {told_as}'
    return None


def refused_pod(namespace: Object, pod: Object) -> Refusal | None:
    """Refuse a privileged container at the levels that forbid it. It looks at nothing else."""
    level = (namespace["metadata"].get("labels") or {}).get(_LEVEL, "privileged")
    names = [one["name"] for one in _containers(pod) if (one.get("securityContext") or {}).get("privileged")]
    if level == "privileged" or not names:
        return None
    why = f'privileged (container "{names[0]}" must not set securityContext.privileged=true)'
    told = f'pods "{pod["metadata"]["name"]}" is forbidden: violates PodSecurity "{level}:latest": {why}'
    return 403, "Forbidden", told


def refused_quota(quotas: Iterable[Object], resource: str, name: str, used: int) -> Refusal | None:
    """Refuse one object more than a ResourceQuota has room for."""
    for one in quotas:
        most = (one["spec"].get("hard") or {}).get(resource)
        if most is not None and used >= int(most):
            told = f"requested: {resource}=1, used: {resource}={used}, limited: {resource}={most}"
            quota = one["metadata"]["name"]
            return 403, "Forbidden", f'{resource} "{name}" is forbidden: exceeded quota: {quota}, {told}'
    return None


def refused_resize(pod: Object, node: Object) -> Refusal | None:
    """Refuse a resize on a node that tells no container's amounts, and more CPU than the pod's node has at all."""
    name = pod["metadata"]["name"]
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = [one for one in statuses if "running" in (one.get("state") or {})]
    if running and "resources" not in running[0]:
        told = f'Pod "{name}" is invalid: spec: Forbidden: Pod running on node without support for resize'
        return 422, "Invalid", told
    known = (node.get("status") or {}).get("allocatable") or {}
    allocatable = _thousandths(known.get("cpu", "0"))
    resources = (one.get("resources") or {} for one in _containers(pod))
    asked = sum(_thousandths((one.get("requests") or {}).get("cpu", "0")) for one in resources)
    if "cpu" not in known or asked <= allocatable:
        return None
    told = f"cpu, requested: {asked}, allocatable: {allocatable}"
    return 403, "Forbidden", f'pods "{name}" is forbidden: node didn\'t have enough allocatable resources: {told}'


def _containers(pod: Object) -> Iterator[Object]:
    spec = pod.get("spec") or {}
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _thousandths(amount: str) -> int:
    number, unit = re.fullmatch(r"([\d.]+)(\w*)", str(amount)).groups()  # type: ignore[union-attr]
    return round(float(number) * _UNITS.get(unit, 1) * 1000)
