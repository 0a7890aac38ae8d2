"""Values that the builders take: of the cluster, of one kernel's pod, and of holders. Frozen, and checked here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.resources import Bytes, Grant

_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ROOT = 0


@dataclass(frozen=True)
class Owner:
    """The object with which the others go: the cluster removes them once it is gone.

    The API server collects an object at once whose owner has another uid or namespace.
    """

    api_version: str
    kind: str
    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        return {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}


@dataclass(frozen=True)
class Cluster:
    """The values that are the same for all pods of one gateway.

    Attributes:
        namespace: Where kernels and holders are.
        gateway: The gateway's identity, as the records name it.
        relay_image: The image of the relay's sidecar.
        owner: None: nothing removes the objects with the gateway.
        kernel_resource: What the node's device plugin offers for kernel pods.
        gpu_resource: What holders request.
        deployment: The gateway's own Deployment, which the gateway looks up as the owner; empty: none.
    """

    namespace: str
    gateway: str
    relay_image: str
    owner: Owner | None = None
    kernel_resource: str = "aliquot.dev/kernel"
    gpu_resource: str = "nvidia.com/gpu"
    deployment: str = ""
    relay_port: int = 8787
    image_pull_secrets: tuple[str, ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise RequestError(f"The namespace {self.namespace!r} is not valid. Use letters a to z, digits and '-'")


@dataclass(frozen=True)
class Volume:
    """A volume and its mount, as KubeSpawner gives them to a user's server."""

    name: str
    source: Mapping[str, Any]
    mount_path: str
    read_only: bool = False
    sub_path: str = ""


@dataclass(frozen=True)
class PodSettings:
    """The settings of a gateway's pods.

    ``uid``, ``gid`` and ``fs_gid`` return those of an owner's kernels. ``volumes`` and ``home`` may have
    KubeSpawner's fields, such as ``{username}``. ``start_seconds``: how long a pod may take to run.
    ``leads`` returns whether no other replica of the gateway can lead now: no pod is made while one can.
    ``node_lost`` is called with a node that the cluster has no more. ``claims_of`` returns the ResourceClaims
    of the holders of a grant's GPUs.
    """

    cluster: Cluster
    uid: Callable[[str], int] = lambda owner: 1000
    gid: Callable[[str], int] = lambda owner: 100
    fs_gid: Callable[[str], int | None] = lambda owner: None
    groups: tuple[int, ...] = ()
    home: str = "/tmp"
    slug_scheme: str = "safe"
    volumes: tuple[Volume, ...] = ()
    start_seconds: float = 600.0
    grace_seconds: int = 30
    leads: Callable[[], bool] = lambda: True
    node_lost: Callable[[str], None] = lambda node: None
    claims_of: Callable[[Grant], tuple[str, ...]] = lambda grant: ()


@dataclass(frozen=True)
class PodPlan:
    """The gateway's decisions about one kernel's pod.

    ``node`` is the name of the node that the grant chose. ``uid`` and ``gid`` are those of the user's
    server, ``fs_gid`` is the group of its volumes, None for ``gid``. ``cpus`` and ``memory`` are limits; None: none.
    ``claims`` are the ResourceClaims of the holders of its GPUs. ``output_bytes`` bounds the output that the
    sidecar keeps; 0: none.
    """

    image: str
    argv: tuple[str, ...]
    node: str
    uid: int = 1000
    gid: int = 100
    fs_gid: int | None = None
    groups: tuple[int, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    cpus: float | None = None
    memory: Bytes | None = None
    volumes: tuple[Volume, ...] = ()
    grace_seconds: int = 30
    pull_policy: str = "IfNotPresent"
    claims: tuple[str, ...] = ()
    output_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if not self.argv:
            raise RequestError("The kernel's command is empty. Set argv in its kernelspec")
        if not self.node:
            raise RequestError("The kernel's pod has no node, but its GPU is on one. Place it first")
        if self.uid == _ROOT:
            raise RequestError(
                "Requested a kernel as root (uid 0), but kernel pods run as users alone. Set the uid of the "
                "server's pod"
            )


@dataclass(frozen=True)
class RelayKeys:
    """The secrets between the gateway and one kernel's relay: the token, and the certificate of its port.

    ``curve_secretkey`` is that of the relay's front; empty: its clients do not speak CurveZMQ.
    """

    token: str
    certificate: bytes
    private_key: bytes
    connection_key: str
    curve_secretkey: str = ""

    def __repr__(self) -> str:
        """Name no secret: values get into logs."""
        return "RelayKeys(…)"
