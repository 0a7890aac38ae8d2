"""The answer to Allocate: the hook, the slot's folder, the held devices, by mounts or by CDI names."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.agent.kubelet.allocation import (
    HeldGpu,
    NodeParts,
    allocation,
    device_minors,
    hook_allocation,
)
from jupyter_aliquot.gpu_hook.agent.kubelet.messages import (
    ClaimResource,
    ContainerDevices,
    ContainerResources,
    DynamicResource,
    PodResources,
)
from jupyter_aliquot.gpu_hook.agent.kubelet.pods import HOLDER_PREFIX, claimed_gpus, devices_by_pod, held_gpus
from jupyter_aliquot.gpu_hook.paths import Driver
from jupyter_aliquot.provisioner.kubernetes.holding.holders import PlainQueueing, Pool, holder_pod
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster

SLOT = Path("/run/aliquot/slots/3")
NVIDIA = NodeParts(
    Driver("nvidia", Path("/usr/lib64/libcuda.so.1"), Path("/usr/lib64/libnvidia-ml.so.1")),
    Path("/opt/aliquot/ab12/shim"),
    lambda: (Path("/opt/aliquot/ab12"),),
)
SOFTGPU = NodeParts(
    Driver(
        "softgpu", Path("/opt/aliquot/ab12/softgpu/libcuda.so.1"), Path("/opt/aliquot/ab12/softgpu/libnvidia-ml.so.1")
    ),
    Path("/opt/aliquot/ab12/shim"),
    lambda: (Path("/opt/aliquot/ab12"),),
    {"ALIQUOT_SOFTGPU_STATE": "/dev/shm/aliquot-0-1/machine/state"},
    Path("/dev/shm/aliquot-0-1/machine/state"),
)
GPUS = (HeldGpu("GPU-b", 3), HeldGpu("GPU-a", 1))


def test_mounts_are_at_the_hosts_paths_and_only_the_software_gpu_is_writable() -> None:
    found = allocation(SOFTGPU, SLOT, (), has_cdi=False)

    assert [(one.host_path, one.read_only) for one in found.mounts] == [
        ("/opt/aliquot/ab12", True),
        ("/dev/shm/aliquot-0-1/machine", False),
        ("/run/aliquot/slots/3", True),
    ]
    assert all(one.container_path == one.host_path for one in found.mounts)
    assert found.envs == {
        "ALIQUOT_SOFTGPU_STATE": "/dev/shm/aliquot-0-1/machine/state",
        "ALIQUOT_KERNEL_DIR": "/run/aliquot/slots/3",
        "ALIQUOT_REAL_CUDA": "/opt/aliquot/ab12/softgpu/libcuda.so.1",
        "ALIQUOT_REAL_NVML": "/opt/aliquot/ab12/softgpu/libnvidia-ml.so.1",
        "LD_LIBRARY_PATH": "/opt/aliquot/ab12/shim",
    }
    assert not found.devices


def test_only_the_held_gpus_device_files_are_given() -> None:
    found = allocation(NVIDIA, SLOT, GPUS, has_cdi=False, found=(Path("/usr/lib64/libcuda.so.1"),))

    assert [one.host_path for one in found.devices] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia1",
        "/dev/nvidia3",
    ]
    assert {one.permissions for one in found.devices} == {"rw"}
    assert "/usr/lib64/libcuda.so.1" in [one.host_path for one in found.mounts]


def test_cdi_names_nvidias_devices_first_and_the_hook_last() -> None:
    found = allocation(NVIDIA, SLOT, GPUS, has_cdi=True)

    want = ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b", "aliquot.dev/hook=shim"]
    assert [one.name for one in found.cdi_devices] == want
    assert [one.host_path for one in found.mounts] == ["/run/aliquot/slots/3"]
    assert not found.devices


def test_no_pod_is_told_to_see_all_gpus() -> None:
    for parts in (NVIDIA, SOFTGPU):
        for has_cdi in (True, False):
            assert "NVIDIA_VISIBLE_DEVICES" not in allocation(parts, SLOT, GPUS, has_cdi).envs


def test_minors_are_read_from_the_driver(tmp_path: Path) -> None:
    for bus, text in (
        (
            "0000:01:00.0",
            "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-a\nBus Location: \t 0000:01:00.0\nDevice Minor: \t 1\n",
        ),
        ("0000:02:00.0", "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-b\nDevice Minor: \t 0\n"),
        ("0000:03:00.0", "GPU Excluded:\t Yes\n"),
    ):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(text)

    assert device_minors(tmp_path) == {"GPU-a": 1, "GPU-b": 0}
    assert device_minors(tmp_path / "no driver") == {}


def _pod(name: str, resource: str, *devices: str) -> PodResources:
    return PodResources(name, "notebooks", (ContainerResources("main", (ContainerDevices(resource, devices),)),))


def test_gpus_of_other_pods_are_not_ours() -> None:
    pods = (
        _pod("aliquot-holder-ml-1", "nvidia.com/gpu", "GPU-a"),
        _pod("training", "nvidia.com/gpu", "GPU-b"),
        _pod("aliquot-kernel-k", "aliquot.dev/kernel", "slot-7"),
    )

    assert held_gpus(pods, "nvidia.com/gpu") == {"GPU-a": "notebooks/aliquot-holder-ml-1"}
    assert devices_by_pod(pods, "aliquot.dev/kernel") == {"slot-7": "notebooks/aliquot-kernel-k"}


def test_gpus_of_holders_claims_are_ours_by_the_drivers_names_for_them() -> None:
    def pod(name: str, driver: str, device: str) -> PodResources:
        claim = DynamicResource(name, "notebooks", (ClaimResource(driver, "node", device),))
        return PodResources(name, "notebooks", (ContainerResources("c", (), (claim,)),))

    pods = [
        pod("aliquot-holder-1", "gpu.nvidia.com", "gpu-3"),
        pod("aliquot-holder-2", "gpu.nvidia.com", "gpu-3-mig-1"),
        pod("aliquot-holder-3", "other.example", "gpu-4"),
        pod("a-training", "gpu.nvidia.com", "gpu-4"),
    ]
    assert claimed_gpus(pods, "gpu.nvidia.com", {"GPU-a": 3, "GPU-b": 4}) == {"GPU-a": "notebooks/aliquot-holder-1"}


@pytest.mark.parametrize(("has_cdi", "names"), [(True, ["aliquot.dev/hook=shim"]), (False, [])])
def test_a_pod_with_claims_gets_the_hook_alone_of_the_plugin(has_cdi: bool, names: list[str]) -> None:
    told = hook_allocation(NVIDIA, SLOT, has_cdi)
    assert ([one.name for one in told.cdi_devices], told.devices) == (names, ())
    mounts = [one.host_path for one in told.mounts]
    assert mounts == [*([] if has_cdi else [str(one) for one in NVIDIA.libraries()]), str(SLOT)]
    assert told.envs["LD_LIBRARY_PATH"] == str(NVIDIA.shim)


def test_holders_have_the_names_by_which_the_agent_knows_them() -> None:
    pod = holder_pod(Cluster("notebooks", "g", "relay:1"), Pool("ml", "pause:1"), "ml-1", PlainQueueing())

    assert pod["metadata"]["name"].startswith(HOLDER_PREFIX)
