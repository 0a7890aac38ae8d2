"""Holder pods: each has one whole GPU of the cluster for a pool, by what the cluster's queue wants. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from jupyter_aliquot.provisioner.containers.plan import LABEL_PREFIX
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.kubernetes.objects import (
    Manifest,
    container_security,
    metadata,
    object_name,
    pod_security,
)
from jupyter_aliquot.provisioner.kubernetes.record import (
    GATEWAY_LABEL,
    HOLDER_ROLE,
    MANAGED_BY_LABEL,
    MANAGER,
    ROLE_LABEL,
    label_value,
)
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster

from .claims import with_claims

POOL_LABEL = f"{LABEL_PREFIX}pool"
HOLDER_LABEL = f"{LABEL_PREFIX}holder"
_CONTAINER = "holder"
_NO_ACCOUNT = 65532
_WAIT = "import signal; signal.signal(signal.SIGTERM, lambda *_: None)\nwhile True: signal.pause()"
_RESOURCES = {"cpu": "10m", "memory": "32Mi"}


@dataclass(frozen=True)
class Pool:
    """The holders of a team, or of all teams.

    ``guaranteed`` holders are always wanted, ``most`` is the largest number. ``grace_seconds`` is the
    time in which a holder that must go empties its GPU. ``device_class`` is that of a DRA driver, whose
    ResourceClaims give the GPUs; empty: the cluster's resource does.
    """

    name: str
    image: str
    guaranteed: int = 0
    most: int = 8
    grace_seconds: int = 120
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    device_class: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.guaranteed <= self.most:
            raise RequestError(
                f"The pool {self.name!r} guarantees {self.guaranteed} holders and has {self.most} at most. Guarantee 0 "
                "to as many as it may have"
            )


class Queueing(Protocol):
    """The demands of the cluster's queue on a holder, and on its pool."""

    def adapt(self, pod: Manifest, pool: Pool) -> Manifest:
        """Return the holder as this queue takes it."""

    def pool_objects(self, cluster: Cluster, pool: Pool) -> list[Manifest]:
        """Return the objects that the pool needs beside its holders."""


@dataclass(frozen=True)
class PlainQueueing:
    """The cluster's own scheduler, without a queue."""

    def adapt(self, pod: Manifest, pool: Pool) -> Manifest:
        return pod

    def pool_objects(self, cluster: Cluster, pool: Pool) -> list[Manifest]:
        return []


@dataclass(frozen=True)
class KueueQueueing:
    """Kueue: a label names the LocalQueue, which admits each holder."""

    queue: str
    priority_class: str = ""

    def adapt(self, pod: Manifest, pool: Pool) -> Manifest:
        labels = {"kueue.x-k8s.io/queue-name": self.queue}
        if self.priority_class:
            labels["kueue.x-k8s.io/priority-class"] = self.priority_class
        return _with(pod, labels=labels)

    def pool_objects(self, cluster: Cluster, pool: Pool) -> list[Manifest]:
        return []


@dataclass(frozen=True)
class KaiQueueing:
    """KAI: its scheduler, its queue, and one PodGroup a pool.

    The guaranteed holders are the group's ``minMember``, which KAI (0.18 or newer) does not preempt;
    it reclaims the others first.
    """

    queue: str

    def adapt(self, pod: Manifest, pool: Pool) -> Manifest:
        group = {"pod-group-name": _group_name(pool), "kai.scheduler/skip-podgrouper": "true"}
        adapted = _with(pod, labels={"kai.scheduler/queue": self.queue}, annotations=group)
        return {**adapted, "spec": {**adapted["spec"], "schedulerName": "kai-scheduler"}}

    def pool_objects(self, cluster: Cluster, pool: Pool) -> list[Manifest]:
        labels = {**_pool_labels(cluster, pool), "kai.scheduler/queue": self.queue}
        return [
            {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "metadata": metadata(cluster, _group_name(pool), labels),
                "spec": {"minMember": max(1, pool.guaranteed), "queue": self.queue},
            }
        ]


@dataclass(frozen=True)
class HolderSettings:
    """The pool, by what the cluster's queue wants. A holder that is not needed ends after ``idle_seconds``."""

    pool: Pool
    queueing: Queueing
    idle_seconds: float


def holder_pod(cluster: Cluster, pool: Pool, holder_id: str, queueing: Queueing) -> Manifest:
    """Return the holder with this id."""
    name = object_name("aliquot-holder", holder_id)
    amounts = _RESOURCES if pool.device_class else {**_RESOURCES, cluster.gpu_resource: "1"}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pool.grace_seconds,
        "securityContext": {**pod_security(_NO_ACCOUNT, _NO_ACCOUNT)},
        "containers": [
            {
                "name": _CONTAINER,
                "image": pool.image,
                # It keeps the GPU until nothing is on it: the gateway then ends it, or its grace period does.
                "command": ["python", "-c", _WAIT],
                "resources": {"requests": dict(amounts), "limits": dict(amounts)},
                "securityContext": container_security(),
            }
        ],
    }
    if pool.node_selector:
        spec["nodeSelector"] = dict(pool.node_selector)
    if cluster.tolerations:
        spec["tolerations"] = [dict(one) for one in cluster.tolerations]
    if pool.priority_class:
        spec["priorityClassName"] = pool.priority_class
    if cluster.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": one} for one in cluster.image_pull_secrets]
    if pool.device_class:
        spec = with_claims(spec, _CONTAINER, [name])
    labels = {**_pool_labels(cluster, pool), ROLE_LABEL: HOLDER_ROLE, HOLDER_LABEL: label_value(holder_id)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(cluster, name, labels), "spec": spec}
    return queueing.adapt(pod, pool)


def holder_selector(cluster: Cluster, pool: Pool) -> str:
    """Return the label selector of a pool's holders."""
    labels = {**_pool_labels(cluster, pool), ROLE_LABEL: HOLDER_ROLE}
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _pool_labels(cluster: Cluster, pool: Pool) -> dict[str, str]:
    return {MANAGED_BY_LABEL: MANAGER, GATEWAY_LABEL: label_value(cluster.gateway), POOL_LABEL: label_value(pool.name)}


def _group_name(pool: Pool) -> str:
    return object_name("aliquot-pool", pool.name)


def _with(pod: Manifest, *, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> Manifest:
    told = {**pod["metadata"], "labels": {**pod["metadata"]["labels"], **labels}}
    if annotations:
        told["annotations"] = {**pod["metadata"].get("annotations", {}), **annotations}
    return {**pod, "metadata": told}
