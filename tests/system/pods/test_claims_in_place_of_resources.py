"""GPUs held by ResourceClaims (DRA): holders and the kernels on their GPUs share claims, all parts real."""

from __future__ import annotations

from typing import Any

from api_double.store import RESOURCES
from memory_cells import FILL, GPU

from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod_name
from tests.system.conftest import Kernel, wait_until

from .conftest import PODS, Ring, a_ring

HOLDERS = """
c.HolderPods.most = 2
c.HolderPods.guaranteed = 2
c.HolderPods.grace_seconds = 40
c.HolderPods.device_class = "gpu.nvidia.com"
"""
AGENTS = ("--hold-softgpu", "--gpu-claims", "gpu.nvidia.com")


def claims(ring: Ring) -> dict[str, Any]:
    found = ring.double.store.list(RESOURCES["resourceclaims"], "default")[0]
    return {one["metadata"]["name"]: one for one in found}


def users(claim: Any) -> set[str]:
    return {one["name"] for one in (claim.get("status") or {}).get("reservedFor") or ()}


def claim_of(ring: Ring, kernel: Kernel) -> str:
    (told,) = ring.pod(kernel)["spec"]["resourceClaims"]
    return str(told["resourceClaimName"])


def test_kernels_share_the_claim_of_their_gpus_holder_and_end_when_the_cluster_takes_it() -> None:
    with a_ring(HOLDERS, *AGENTS) as ring:
        kernels = []
        for seed in range(2):  # the second one when the first has its GPU
            kernel = ring.server.start("box.gpu-0.25")
            kernels.append(kernel)
            assert kernel.run(GPU + FILL.format(seed=seed, mebibytes=16)).status == "ok", ring.logs()
        held = {claim_of(ring, kernel) for kernel in kernels}
        assert len(held) == 1, "they are on one GPU"
        (name,) = held
        pods = {kernel_pod_name(one.id) for one in kernels}
        assert users(claims(ring)[name]) == {name, *pods}
        kernels[0].end()
        wait_until(lambda: users(claims(ring)[name]) == {name, kernel_pod_name(kernels[1].id)})

        ring.double.store.delete(PODS, "default", name, {})
        told = wait_until(lambda: (kernels[1].on_node() or {}).get("scheduled_termination"))
        assert "its pod has the GPU's ResourceClaim" in told["message"]
        wait_until(lambda: name not in claims(ring))
        listed = ring.server.call("GET", "/aliquot/api/v1/kernels")["kernels"]
        (ended,) = [one for one in listed if one["id"] == kernels[1].id]
        assert "the cluster took its GPU back" in ended["reason"], ring.logs()
        wait_until(lambda: len(claims(ring)) == 2 and all(map(users, claims(ring).values())))
