"""The pod of one kernel: the kernel's container, and the relay as a native sidecar. Pure.

The pod requests no GPU of the cluster. The node's device plugin gives it the hook and the device
files of the GPUs that Aliquot holds there; where claims hold them, it shares those of its own GPUs.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.launch_spec import LIBRARIES, PREPEND, add_grant, add_own_driver
from jupyter_aliquot.provisioner.resources import Grant

from .holding.claims import with_claims
from .objects import Manifest, container_security, metadata, object_name, on_node, pod_security
from .record import KernelRecord, kernel_annotations, kernel_labels
from .settings import Cluster, PodPlan, Volume

KERNEL_CONTAINER, RELAY_CONTAINER = "kernel", "relay"
CONNECTION_PATH, KEYS_PATH, OUTPUT_PATH = "/run/aliquot/connection", "/run/aliquot/keys", "/run/aliquot/output"
# The kernel gets this file of the Secret, so that it starts while the sidecar does.
CONNECTION_KEY = "connection.json"
CONNECTION_FILE = f"/run/aliquot/kernel/{CONNECTION_KEY}"
# The sidecar listens at the pod's own address alone.
ADDRESS_VARIABLE = "ALIQUOT_POD_IP"
# It keeps output there that no page has, up to a bound, and for most of the pod's grace period.
OUTPUT_VARIABLE, BOUND_VARIABLE, GRACE_VARIABLE = "ALIQUOT_OUTPUT", "ALIQUOT_OUTPUT_BYTES", "ALIQUOT_GRACE_SECONDS"
_CONNECTION, _FILE, _KEYS, _TMP = "aliquot-connection", "aliquot-kernel", "aliquot-keys", "aliquot-tmp"
_OUTPUT = "aliquot-output"
_TAKEN = (_CONNECTION, _FILE, _KEYS, _TMP, _OUTPUT)
# Several copies of the largest message that is kept.
RELAY_MEMORY_BYTES = 384 << 20
_RELAY_RESOURCES = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"memory": f"{RELAY_MEMORY_BYTES >> 20}Mi"},
}
_OF_THE_PLUGIN = ("ALIQUOT_KERNEL_DIR", "ALIQUOT_REAL_CUDA", "ALIQUOT_REAL_NVML")
# CUDA's base images set it to "all", and NVIDIA's legacy runtime would obey.
_NO_DEVICES = {"NVIDIA_VISIBLE_DEVICES": "void"}


def granted_environment(
    grant: Grant, cuda_compat: str = "", libraries: str | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the variables that a kernel's pod sets for its grant.

    The node's device plugin sets the others: paths of the node, the kernel's socket among them. A
    pod's own variables win over them, as they do for the image's own libcuda in the folder
    ``cuda_compat``. ``libraries`` is the pod's own LD_LIBRARY_PATH; the hook's folder goes before it.
    """
    first = "" if libraries is None else LIBRARIES + PREPEND
    own = [(name, value) for name, value in grant.env if name == first or PREPEND not in name]
    given = replace(grant, env=tuple((name, value) for name, value in own if name not in _OF_THE_PLUGIN))
    env = add_grant({} if libraries is None else {LIBRARIES: libraries}, given)
    return tuple(add_own_driver(env, grant, cuda_compat).items())


def kernel_pod_name(kernel_id: str) -> str:
    """Return the name of the kernel's pod and of its Secret."""
    return object_name("aliquot-kernel", kernel_id)


def pod_attribute(cluster: Cluster, kernel_id: str) -> str:
    """Return the pod of a kernel as its reservation names it to the node's agent."""
    return f"{cluster.namespace}/{kernel_pod_name(kernel_id)}"


def kernel_pod(cluster: Cluster, record: KernelRecord, plan: PodPlan) -> Manifest:
    """Return the pod of one kernel. Raises RequestError for a volume with a name of ours."""
    name = kernel_pod_name(record.kernel_id)
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": plan.grace_seconds,
        "securityContext": pod_security(plan.uid, plan.gid, plan.fs_gid, plan.groups),
        "affinity": on_node(plan.node),
        "initContainers": [_relay(cluster, plan)],
        "containers": [_kernel(cluster, plan)],
        "volumes": _volumes(name, plan),
    }
    if cluster.tolerations:
        spec["tolerations"] = [dict(one) for one in cluster.tolerations]
    if cluster.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": one} for one in cluster.image_pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(cluster, name, kernel_labels(record), kernel_annotations(record)),
        "spec": with_claims(spec, KERNEL_CONTAINER, plan.claims),
    }


def _relay(cluster: Cluster, plan: PodPlan) -> Manifest:
    """Return the sidecar, which ends after the kernel (``restartPolicy: Always``).

    It has no probe: the kubelet would start the kernel only after the next look at the port.
    """
    return {
        "name": RELAY_CONTAINER,
        "image": cluster.relay_image,
        "restartPolicy": "Always",
        "args": ["--connection", CONNECTION_PATH, "--keys", KEYS_PATH, "--port", str(cluster.relay_port)],
        "env": [
            {"name": ADDRESS_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": OUTPUT_VARIABLE, "value": OUTPUT_PATH},
            {"name": BOUND_VARIABLE, "value": str(plan.output_bytes)},
            {"name": GRACE_VARIABLE, "value": str(plan.grace_seconds)},
        ],
        "ports": [{"name": "relay", "containerPort": cluster.relay_port, "protocol": "TCP"}],
        "resources": {name: dict(amounts) for name, amounts in _RELAY_RESOURCES.items()},
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": _CONNECTION, "mountPath": CONNECTION_PATH},
            {"name": _KEYS, "mountPath": KEYS_PATH, "readOnly": True},
            {"name": _OUTPUT, "mountPath": OUTPUT_PATH},
        ],
    }


def _kernel(cluster: Cluster, plan: PodPlan) -> Manifest:
    env = {**dict(plan.env), **_NO_DEVICES}
    container: Manifest = {
        "name": KERNEL_CONTAINER,
        "image": plan.image,
        "imagePullPolicy": plan.pull_policy,
        "command": list(plan.argv),
        "env": [{"name": name, "value": value} for name, value in sorted(env.items())],
        "resources": _resources(cluster, plan),
        # CPU and memory follow a resize of the kernel, which goes on running.
        "resizePolicy": [{"resourceName": one, "restartPolicy": "NotRequired"} for one in ("cpu", "memory")],
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": _CONNECTION, "mountPath": CONNECTION_PATH},
            {"name": _FILE, "mountPath": os.path.dirname(CONNECTION_FILE), "readOnly": True},
            {"name": _TMP, "mountPath": "/tmp"},
            *(_mount(volume) for volume in plan.volumes),
        ],
    }
    if plan.cwd:
        container["workingDir"] = plan.cwd
    return container


def _resources(cluster: Cluster, plan: PodPlan) -> Manifest:
    """Return requests equal to the limits: nothing else of the node is promised to the kernel."""
    amounts: dict[str, str] = {cluster.kernel_resource: "1"}
    if plan.cpus is not None:
        amounts["cpu"] = f"{round(plan.cpus * 1000)}m"
    if plan.memory is not None:
        amounts["memory"] = str(int(plan.memory))
    return {"requests": dict(amounts), "limits": dict(amounts)}


def _volumes(name: str, plan: PodPlan) -> list[Manifest]:
    known: dict[str, Any] = {}
    for volume in plan.volumes:
        if volume.name in _TAKEN:
            raise RequestError(
                f"The volume {volume.name!r} has the name of one of Aliquot's own. Give it another name in KubeSpawner"
            )
        # One volume may be mounted at several paths.
        known[volume.name] = {"name": volume.name, **volume.source}
    secret = {"secretName": name, "defaultMode": 0o440}
    return [
        {"name": _CONNECTION, "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": _FILE, "secret": {**secret, "items": [{"key": CONNECTION_KEY, "path": CONNECTION_KEY}]}},
        {"name": _KEYS, "secret": secret},
        {"name": _TMP, "emptyDir": {}},
        {"name": _OUTPUT, "emptyDir": {}},
        *known.values(),
    ]


def _mount(volume: Volume) -> Manifest:
    mount: Manifest = {"name": volume.name, "mountPath": volume.mount_path}
    if volume.read_only:
        mount["readOnly"] = True
    if volume.sub_path:
        mount["subPath"] = volume.sub_path
    return mount
