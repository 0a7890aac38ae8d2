"""The settings of kernels that are pods of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from traitlets import Callable, Dict, Enum, Float, Int, List, TraitError, Unicode, Union, validate
from traitlets.config import Configurable

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster, PodSettings, Volume
from jupyter_aliquot.provisioner.kubernetes.slugs import FIELDS, SCHEMES, unknown_fields


class KernelPods(Configurable):
    """The pods of kernels, where `c.Aliquot.runtime` is kubernetes.

    KUBECONFIG, or the gateway's own pod, names the cluster.
    """

    namespace = Unicode("default", help="Namespace of the kernels' pods, as in the NetworkPolicies.").tag(config=True)
    relay_image = Unicode(
        "", help="Image with Aliquot for the sidecar of each kernel's pod; its entrypoint is the sidecar."
    ).tag(config=True)
    relay_port = Int(8787, help="Port of that sidecar, as in the NetworkPolicy of kernels.").tag(config=True)
    kernel_resource = Unicode(
        "aliquot.dev/kernel", help="Resource of the node agents' device plugin; each kernel's pod requests one."
    ).tag(config=True)
    uid = Union(
        [Int(1000), Callable()], help="User id of kernels whose image sets none, never 0; or a function of the owner."
    ).tag(config=True)
    gid = Union(
        [Int(100), Callable()], help="Group id of kernels whose image sets none; or a function of the owner."
    ).tag(config=True)
    fs_gid = Union(
        [Int(None, allow_none=True), Callable()], help="Group id of the pods' volumes; None: `gid`. Or a function."
    ).tag(config=True)
    supplemental_gids = List(Int(), help="More groups of kernels.").tag(config=True)
    home = Unicode("/tmp", help="Folder in which kernels start, and their HOME.").tag(config=True)
    slug_scheme = Enum(
        SCHEMES, "safe", help="How {username} becomes a name of Kubernetes: as `c.KubeSpawner.slug_scheme`."
    ).tag(config=True)
    volumes = List(
        Dict(),
        help="Volumes of the pods, as KubeSpawner has them, with {username}, {user_server} and {unescaped_username}.",
    ).tag(config=True)
    volume_mounts = List(Dict(), help="Where the kernel has these volumes, as KubeSpawner has them.").tag(config=True)
    image_pull_secrets = List(Unicode(), help="Names of the Secrets by which nodes pull images.").tag(config=True)
    tolerations = List(Dict(), help="Taints of nodes that the pods tolerate, as Kubernetes has them.").tag(config=True)
    deployment = Unicode(
        "", help="The gateway's own Deployment in that namespace: the pods go with it. Empty: they stay."
    ).tag(config=True)
    lease = Unicode(
        "", help="Lease of the gateway's replicas: one leads, and keeps its state in the cluster. Empty: one gateway."
    ).tag(config=True)
    start_seconds = Float(600.0, help="How long a pod may take until its kernel runs.").tag(config=True)
    grace_seconds = Int(30, help="How long a kernel may take to end when its pod is deleted.").tag(config=True)

    def settings(self, gateway: str) -> PodSettings:
        """Return the values of the pods of the gateway of this identity. Raises TraitError."""
        return PodSettings(
            self.cluster(gateway),
            partial(_of_owner, self.uid),
            partial(_of_owner, self.gid),
            partial(_of_owner, self.fs_gid),
            tuple(self.supplemental_gids),
            self.home,
            self.slug_scheme,
            self.mounted(),
            self.start_seconds,
            self.grace_seconds,
        )

    def cluster(self, gateway: str) -> Cluster:
        """Return the values of the cluster for the gateway of this identity. Raises TraitError."""
        if not self.relay_image:
            raise TraitError(
                "c.KernelPods.relay_image: kernels as pods need an image with Aliquot for their sidecar, and none is "
                "named. Set it, or c.Aliquot.runtime = 'local'"
            )
        try:
            return Cluster(
                self.namespace,
                gateway,
                self.relay_image,
                None,
                self.kernel_resource,
                deployment=self.deployment,
                relay_port=self.relay_port,
                image_pull_secrets=tuple(self.image_pull_secrets),
                tolerations=tuple(self.tolerations),
            )
        except RequestError as error:
            raise TraitError(f"c.KernelPods: {error}") from error

    def mounted(self) -> tuple[Volume, ...]:
        """Return the volumes with their mounts. Raises TraitError."""
        sources = {str(one["name"]): {key: told for key, told in one.items() if key != "name"} for one in self.volumes}
        for mount in self.volume_mounts:
            if mount["name"] not in sources:
                raise TraitError(
                    f"c.KernelPods.volume_mounts: there is no volume {mount['name']!r}. Name it in c.KernelPods.volumes"
                )
        return tuple(
            Volume(
                str(mount["name"]),
                sources[mount["name"]],
                str(mount["mountPath"]),
                bool(mount.get("readOnly")),
                str(mount.get("subPath", "")),
            )
            for mount in self.volume_mounts
        )

    @validate("uid")
    def _is_no_root(self, proposal: dict[str, Any]) -> Any:
        uid = proposal["value"]
        if isinstance(uid, int) and uid < 1:
            raise TraitError(f"c.KernelPods.uid: {uid} is no user that kernels may run as. Use 1 or more")
        return uid

    @validate("volumes")
    def _have_names(self, proposal: dict[str, Any]) -> list[Any]:
        for one in proposal["value"]:
            if not isinstance(one.get("name"), str):
                raise TraitError(f"c.KernelPods.volumes: {one!r:.80} has no name. Write {{'name': …, …}}")
        _check_fields("volumes", proposal["value"])
        return list(proposal["value"])

    @validate("volume_mounts")
    def _have_volumes(self, proposal: dict[str, Any]) -> list[Any]:
        for one in proposal["value"]:
            if not isinstance(one.get("name"), str) or not str(one.get("mountPath", "")).startswith("/"):
                raise TraitError(
                    f"c.KernelPods.volume_mounts: {one!r:.80} is no mount. Write {{'name': …, 'mountPath': '/…'}}"
                )
        _check_fields("volume_mounts", proposal["value"])
        return list(proposal["value"])


def _check_fields(setting: str, told: object) -> None:
    """Raise TraitError for a field that no kernel's pod fills in."""
    for text in _texts(told):
        for field in unknown_fields(text):
            known = ", ".join(f"{{{one}}}" for one in FIELDS)
            raise TraitError(
                f"c.KernelPods.{setting}: {text!r:.80} has the field {{{field}}}, which no pod of a kernel fills in. "
                f"Use {known}"
            )


def _texts(told: object) -> Iterator[str]:
    if isinstance(told, str):
        yield told
    elif isinstance(told, Mapping):
        for one in told.values():
            yield from _texts(one)
    elif isinstance(told, list):
        for one in told:
            yield from _texts(one)


def _of_owner(told: Any, owner: str) -> Any:
    """Return the value of a setting for an owner's kernels."""
    return told(owner) if callable(told) else told
