"""One object of each kind, for the golden manifests. Run as a program, it writes them anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from jupyter_aliquot.provisioner.kubernetes.holding.claims import holder_claim
from jupyter_aliquot.provisioner.kubernetes.holding.holders import (
    KaiQueueing,
    KueueQueueing,
    PlainQueueing,
    Pool,
    Queueing,
    holder_pod,
)
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod
from jupyter_aliquot.provisioner.kubernetes.objects import Manifest
from jupyter_aliquot.provisioner.kubernetes.protection import relay_secret
from jupyter_aliquot.provisioner.kubernetes.record import KernelRecord
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster, Owner, PodPlan, RelayKeys, Volume
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

GOLDEN = Path(__file__).parent / "golden"
GIB = 1 << 30
OWNER = Owner("apps/v1", "Deployment", "aliquot-gateway", "7d5c8a9e-0000-4000-8000-000000000001")
CLUSTER = Cluster(
    namespace="notebooks",
    gateway="team-a@0123abcd",
    relay_image="registry.example/aliquot/relay:0.1.0",
    owner=OWNER,
    tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
    image_pull_secrets=("registry",),
)
REQUEST = Request(GpuShare(25), Bytes(4 * GIB))
GRANT = Grant(
    kernel_id="3d5b8a4e-6f1c-4b0e-9a55-0c1d2e3f4a5b",
    owner="zoë@example.org",
    request=REQUEST,
    node="gpu-3",
    quotas=(Quota("GPU-00000000-0000-0000-0000-000000000001", 0, GpuShare(25), Bytes(4 * GIB), Bytes(2 * GIB)),),
    kernel_dir="/run/aliquot/kernels/3d5b8a4e-6f1c-4b0e-9a55-0c1d2e3f4a5b",
    env=(("ALIQUOT_SOCKET", "/run/aliquot/hook.sock"),),
    generation=2,
)
RECORD = KernelRecord(
    kernel_id=GRANT.kernel_id,
    owner=GRANT.owner,
    gateway=CLUSTER.gateway,
    request=REQUEST,
    label="models/train.ipynb",
    kernelspec="python3.gpu-0.25-4g",
    teams=frozenset({"ml", "research"}),
    session="a-session",
    created=1_800_000_000.5,
    grant=GRANT,
)
PLAN = PodPlan(
    image="registry.example/images/torch:2026-11",
    argv=("python", "-m", "ipykernel_launcher", "-f", "/run/aliquot/connection/kernel.json"),
    node="gpu-3",
    uid=1000,
    gid=100,
    env=(("HOME", "/home/jovyan"), ("NVIDIA_VISIBLE_DEVICES", "all")),
    cwd="/home/jovyan",
    cpus=2.5,
    memory=Bytes(8 * GIB),
    volumes=(
        Volume("home", {"persistentVolumeClaim": {"claimName": "claim-zoe"}}, "/home/jovyan"),
        Volume("home", {"persistentVolumeClaim": {"claimName": "claim-zoe"}}, "/scratch", sub_path="scratch"),
        Volume("data", {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}}, "/data", read_only=True),
    ),
)
KEYS = RelayKeys("a-token", b"-----BEGIN CERTIFICATE-----", b"-----BEGIN PRIVATE KEY-----", "a-key")
POOL = Pool("ml", "registry.k8s.io/pause:3.10", guaranteed=2, most=6, node_selector={"gpu": "h200"})
DRA_POOL = replace(POOL, device_class="gpu.nvidia.com")
QUEUEINGS: dict[str, Queueing] = {
    "plain": PlainQueueing(),
    "kueue": KueueQueueing("ml-queue", "notebooks"),
    "kai": KaiQueueing("ml"),
}


def manifests() -> dict[str, Manifest]:
    """Return all objects by the names of their files."""
    made = {
        "kernel-pod": kernel_pod(CLUSTER, RECORD, PLAN),
        "kernel-pod-plain": kernel_pod(
            Cluster("default", "g", "relay:1"),
            KernelRecord("k", "me", "g", Request(GpuShare(100))),
            PodPlan("python:3.12", ("python", "-m", "ipykernel_launcher"), "node-1"),
        ),
        "relay-secret": relay_secret(CLUSTER, RECORD, KEYS),
    }
    created = holder_pod(CLUSTER, DRA_POOL, "ml-1", KaiQueueing("ml"))
    uid = "7d5c8a9e-0000-4000-8000-000000000002"
    told = {**created, "metadata": {**created["metadata"], "uid": uid}}
    made["holder-dra"] = created
    made["holder-dra-claim"] = holder_claim(CLUSTER, told, DRA_POOL.device_class)
    made["kernel-pod-dra"] = kernel_pod(CLUSTER, RECORD, replace(PLAN, claims=("aliquot-holder-2", "aliquot-holder-1")))
    for name, queueing in QUEUEINGS.items():
        made[f"holder-{name}"] = holder_pod(CLUSTER, POOL, "ml-1", queueing)
        for number, one in enumerate(queueing.pool_objects(CLUSTER, POOL), 1):
            made[f"pool-{name}-{number}"] = one
    return made


def written(manifest: Manifest) -> str:
    return yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=110)


if __name__ == "__main__":
    for name, manifest in manifests().items():
        (GOLDEN / f"{name}.yaml").write_text(written(manifest))
