"""An engine's "create" request, tested as a value."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.provisioner.containers.cdi import Edits, device_names, edits_for, load_specs, read_spec
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan, Mount
from jupyter_aliquot.provisioner.containers.spec import (
    ContainerLaunch,
    ContainerSpec,
    Devices,
    ImageFacts,
    container_spec,
    container_user,
)
from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

LIB = "/var/lib/aliquot/lib"
A_GRANT = Grant(
    kernel_id="k",
    owner="alice",
    request=Request(GpuShare(25)),
    node="n",
    quotas=(Quota("GPU-7", 1, GpuShare(25), Bytes(1 << 30)),),
    kernel_dir="/run/aliquot/kernels/k",
    env=(
        ("ALIQUOT_KERNEL_DIR", "/run/aliquot/kernels/k"),
        ("ALIQUOT_SOFTGPU_STATE", "/dev/shm/aliquot/state"),
        ("CUDA_VISIBLE_DEVICES", "GPU-7"),
        ("LD_LIBRARY_PATH_PREPEND", f"{LIB}/shim"),
    ),
)
A_FOLDER = "/run/aliquot/relays/k/k"
ARGV = ("python3", "-m", "ipykernel_launcher", "-f", f"{A_FOLDER}/connection.json")


def a_launch(**changes: Any) -> ContainerLaunch:
    fields: dict[str, Any] = {"kernel_id": "k", "argv": ARGV, "env": (), "program": "python3", "folder": A_FOLDER}
    return ContainerLaunch(**{**fields, **changes})


def spec(
    launch: ContainerLaunch | None = None,
    plan: ContainerPlan | None = None,
    image: ImageFacts | None = None,
    grant: Grant | None = None,
    devices: Devices | None = None,
) -> ContainerSpec:
    plan = plan or ContainerPlan("pytorch:2.11")
    return container_spec(launch or a_launch(), plan, image or ImageFacts(), grant, devices or Devices())


def env_of(made: ContainerSpec) -> dict[str, str]:
    return dict(word.split("=", 1) for word in made.body["Env"])


def test_the_groups_of_a_plan_are_those_of_the_container() -> None:
    assert spec(plan=ContainerPlan("i", groups=(3901, 3902))).body["HostConfig"]["GroupAdd"] == ["3901", "3902"]
    assert spec().body["HostConfig"]["GroupAdd"] == []


@pytest.mark.parametrize(
    ("glibc", "want"),
    [("", False), ("2.28", False), ("2.34", False), ("2.35", True), ("2.41.9000", True), ("musl", False)],
)
def test_an_audit_library_comes_in_where_the_image_says_that_its_glibc_bears_it(glibc: str, want: bool) -> None:
    """The agent decided by its own glibc, which says nothing of the image's."""
    grant = replace(A_GRANT, env=(*A_GRANT.env, ("LD_AUDIT_PREPEND", f"{LIB}/shim/audit.so")))
    env = env_of(spec(grant=grant, image=ImageFacts(glibc=glibc)))
    assert env.get("LD_AUDIT") == (f"{LIB}/shim/audit.so" if want else None)
    assert env["LD_LIBRARY_PATH"].startswith(f"{LIB}/shim")


NODE_DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
COMPAT = "/usr/local/cuda/compat"


def nvidia_grant() -> Grant:
    kept = tuple((name, value) for name, value in A_GRANT.env if not name.startswith("ALIQUOT_SOFTGPU_"))
    return replace(A_GRANT, env=(*kept, ("ALIQUOT_REAL_CUDA", NODE_DRIVER)))


@pytest.mark.parametrize(
    ("compat", "want"),
    [("", NODE_DRIVER), (COMPAT, f"{COMPAT}/libcuda.so.1"), ("compat", NODE_DRIVER), ("/a:/b", NODE_DRIVER)],
)
def test_the_hook_stands_over_the_libcuda_that_the_image_names(compat: str, want: str) -> None:
    image = ImageFacts(env=(("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"),), cuda_compat=compat)
    env = env_of(spec(grant=nvidia_grant(), image=image))
    assert env["ALIQUOT_REAL_CUDA"] == want
    folders = [f"{LIB}/shim", *([COMPAT] if compat == COMPAT else []), "/usr/local/nvidia/lib64"]
    assert env["LD_LIBRARY_PATH"].split(":") == folders


def test_the_catalogue_names_the_libcuda_before_the_image_does() -> None:
    plan = ContainerPlan("pytorch:2.11", cuda_compat="/opt/compat")
    env = env_of(spec(plan=plan, grant=nvidia_grant(), image=ImageFacts(cuda_compat=COMPAT)))
    assert env["ALIQUOT_REAL_CUDA"] == "/opt/compat/libcuda.so.1"
    assert env["LD_LIBRARY_PATH"] == f"{LIB}/shim:/opt/compat"


def test_an_images_libcuda_does_not_take_the_place_of_the_software_gpu() -> None:
    grant = replace(A_GRANT, env=(*A_GRANT.env, ("ALIQUOT_REAL_CUDA", f"{LIB}/softgpu/libcuda.so.1")))
    env = env_of(spec(grant=grant, image=ImageFacts(cuda_compat=COMPAT)))
    assert env["ALIQUOT_REAL_CUDA"] == f"{LIB}/softgpu/libcuda.so.1"
    assert COMPAT not in env["LD_LIBRARY_PATH"]


def test_an_images_own_audit_library_is_left_to_it() -> None:
    grant = replace(A_GRANT, env=(*A_GRANT.env, ("LD_AUDIT_PREPEND", f"{LIB}/shim/audit.so")))
    image = ImageFacts(env=(("LD_AUDIT", "/own.so"),))
    assert env_of(spec(grant=grant, image=image))["LD_AUDIT"] == "/own.so"


def test_a_container_is_hardened_without_being_asked() -> None:
    host = spec().body["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["ReadonlyRootfs"], host["NetworkMode"], host["IpcMode"]) == (True, "none", "private")
    assert (host["Privileged"], host["Init"], host["PidsLimit"]) == (False, True, 1024)
    assert set(host["Tmpfs"]) == {"/run", "/tmp", "/home/kernel"}


@pytest.mark.parametrize("target", [LIB, f"{LIB}/shim", "/var/lib", A_FOLDER, "/run/aliquot/kernels"])
def test_a_folder_over_the_hook_or_the_kernels_own_is_refused(target: str) -> None:
    devices = Devices(edits=Edits(mounts=(Mount(f"{LIB}/1", f"{LIB}/shim"),)))
    plan = ContainerPlan("i", mounts=(Mount("/srv/data", target),))
    with pytest.raises(LaunchError, match="Choose another target"):
        spec(plan=plan, grant=A_GRANT, devices=devices)


def test_the_same_folder_of_the_host_around_the_hook_is_fine() -> None:
    devices = Devices(edits=Edits(mounts=(Mount(f"{LIB}/shim", f"{LIB}/shim"),)))
    made = spec(plan=ContainerPlan("i", mounts=(Mount("/var/lib", "/var/lib"),)), grant=A_GRANT, devices=devices)
    targets = [mount["Target"] for mount in made.body["HostConfig"]["Mounts"]]
    assert targets.index("/var/lib") < targets.index(f"{LIB}/shim")


def test_limits_leave_no_room_for_swap() -> None:
    limits = ContainerLimits(memory=Bytes(1 << 30), cpus=0.5, pids=64, shm=Bytes(1 << 26))
    host = spec(plan=ContainerPlan("i", limits=limits)).body["HostConfig"]
    want = {"Memory": 1 << 30, "MemorySwap": 1 << 30, "NanoCpus": 500_000_000, "PidsLimit": 64, "ShmSize": 1 << 26}
    assert {name: host[name] for name in want} == want


def test_of_relay_and_agent_the_kernel_sees_its_own_folders_alone() -> None:
    home = Mount("/srv/homes/alice", "/home/alice", read_only=False)
    plan = ContainerPlan("i", mounts=(home,), home="/home/alice")
    host = spec(plan=plan, grant=A_GRANT).body["HostConfig"]
    seen = {(mount["Source"], mount["Target"], mount["ReadOnly"]) for mount in host["Mounts"]}
    assert seen == {
        ("/srv/homes/alice", "/home/alice", False),
        (A_FOLDER, A_FOLDER, False),
        ("/run/aliquot/kernels/k", "/run/aliquot/kernels/k", True),
    }
    assert set(host["Tmpfs"]) == {"/run", "/tmp"}


def test_a_mount_within_another_comes_after_it() -> None:
    plan = ContainerPlan("i", mounts=(Mount("/b", "/data/team/set"), Mount("/a", "/data"), Mount("/c", "/data/team")))
    targets = [mount["Target"] for mount in spec(a_launch(folder=""), plan).body["HostConfig"]["Mounts"]]
    assert targets == ["/data", "/data/team", "/data/team/set"]


def test_nothing_of_the_gateways_environment_gets_in() -> None:
    gateway = {"SECRET": "s", "PATH": "/gateway/bin", "HOME": "/home/gateway", "LD_LIBRARY_PATH": "/gateway/lib"}
    env = {**gateway, "JPY_SESSION_NAME": "a.ipynb", "LD_LIBRARY_PATH": f"{LIB}/shim:/gateway/lib"}
    launch = a_launch(env=tuple(env.items()), inherited=gateway)
    made = env_of(spec(launch, image=ImageFacts(env=(("PATH", "/opt/bin:/usr/bin"),)), grant=A_GRANT))
    assert "SECRET" not in made
    assert (made["PATH"], made["HOME"], made["JPY_SESSION_NAME"]) == ("/opt/bin:/usr/bin", "/home/kernel", "a.ipynb")
    assert "/gateway" not in " ".join(made.values())


def test_the_grants_environment_wins_and_its_shim_stands_before_the_images_libraries() -> None:
    image = ImageFacts(env=(("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"), ("CUDA_VISIBLE_DEVICES", "all")))
    plan = ContainerPlan("i", env=(("CUDA_VISIBLE_DEVICES", "0"), ("ALIQUOT_KERNEL_ID", "other")))
    made = env_of(spec(plan=plan, image=image, grant=A_GRANT))
    assert made["LD_LIBRARY_PATH"] == f"{LIB}/shim:/usr/local/nvidia/lib64"
    assert (made["CUDA_VISIBLE_DEVICES"], made["ALIQUOT_KERNEL_ID"]) == ("GPU-7", "k")


def test_the_kernel_starts_through_the_self_check_that_lies_beside_the_hook() -> None:
    launch = a_launch(argv=("/gateway/venv/bin/aliquot-kernel-start", *ARGV))
    assert spec(launch, grant=A_GRANT).body["Cmd"] == [f"{LIB}/bin/aliquot-kernel-start", *ARGV]
    assert spec(launch).body["Cmd"] == list(ARGV)


def test_a_notebooks_folder_is_the_kernels_where_a_mount_brings_it_in() -> None:
    plan = ContainerPlan(
        "i", mounts=(Mount("/srv/homes/alice", "/home/alice"), Mount("/srv", "/srv-all")), home="/home/alice"
    )
    want = {"/srv/homes/alice/a/b": "/home/alice/a/b", "/srv/homes/alice": "/home/alice", "/srv/x": "/srv-all/x"}
    assert {cwd: spec(a_launch(cwd=cwd), plan).body["WorkingDir"] for cwd in want} == want
    for elsewhere in ("/elsewhere", "/srvx", None):
        assert spec(a_launch(cwd=elsewhere), plan).body["WorkingDir"] == "/home/alice"


@pytest.mark.parametrize(
    ("asked", "own", "is_rootless", "want"),
    [
        ("", (0, 0), False, ""),
        ("4321:4321", (0, 0), False, "4321:4321"),
        ("", (1000, 100), False, "1000:100"),
        ("1000:0", (1000, 100), False, "1000:0"),
        ("", (1000, 100), True, "0:0"),
        ("0:0", (1000, 100), True, "0:0"),
    ],
)
def test_a_kernel_runs_as_a_user_whose_sockets_its_relay_can_open(
    asked: str, own: tuple[int, int], is_rootless: bool, want: str
) -> None:
    assert container_user(asked, own, is_rootless) == want


@pytest.mark.parametrize(("asked", "is_rootless"), [("0:0", False), ("4321:100", False), ("1000:100", True)])
def test_a_user_out_of_the_relays_reach_is_refused(asked: str, is_rootless: bool) -> None:
    with pytest.raises(LaunchError, match="run the gateway as root"):
        container_user(asked, (1000, 100), is_rootless)


def test_labels_of_a_plan_stand_beside_ours() -> None:
    launch = a_launch(labels={"aliquot.dev/owner": "alice"})
    made = spec(launch, ContainerPlan("i", labels=(("team", "vision"),)))
    want = {"team": "vision", "aliquot.dev/owner": "alice", "aliquot.dev/kernel-id": "k"}
    assert (made.body["Labels"], made.name) == (want, "aliquot-k")


def test_devices_come_by_the_engines_cdi_or_as_the_same_edits() -> None:
    names = device_names(A_GRANT)
    assert names == ("aliquot.dev/softgpu=1", "aliquot.dev/hook=shim")
    assert device_names(A_GRANT, "preload")[-1] == "aliquot.dev/hook=preload"
    by_engine = spec(grant=A_GRANT, devices=Devices(cdi_names=names)).body["HostConfig"]
    assert by_engine["DeviceRequests"] == [{"Driver": "cdi", "DeviceIDs": list(names)}]
    node = {"PathOnHost": "/dev/null", "PathInContainer": "/dev/softgpu0", "CgroupPermissions": "rwm"}
    edits = Edits((("A", "1"),), (Mount(LIB, LIB),), (node,))
    by_hand = spec(grant=A_GRANT, devices=Devices(edits=edits))
    assert by_hand.body["HostConfig"]["Devices"] == [node]
    targets = {mount["Target"] for mount in by_hand.body["HostConfig"]["Mounts"]}
    assert LIB in targets
    assert env_of(by_hand)["A"] == "1"


def test_a_real_gpu_is_asked_by_its_uuid() -> None:
    env = tuple(each for each in A_GRANT.env if each[0] != "ALIQUOT_SOFTGPU_STATE")
    assert device_names(Grant(**{**vars(A_GRANT), "env": env})) == ("nvidia.com/gpu=GPU-7", "aliquot.dev/hook=shim")


# ---- our own CDI specs

SOFTGPU = {
    "cdiVersion": "0.5.0",
    "kind": "aliquot.dev/softgpu",
    "containerEdits": {"mounts": [{"hostPath": "/s", "containerPath": "/s", "options": ["rw", "bind"]}]},
    "devices": [{"name": str(n), "containerEdits": {"env": [f"N={n}"]}} for n in range(2)],
}
HOOK = {
    "cdiVersion": "0.5.0",
    "kind": "aliquot.dev/hook",
    "devices": [
        {
            "name": "shim",
            "containerEdits": {
                "mounts": [{"hostPath": LIB, "containerPath": LIB, "options": ["ro", "bind"]}],
                "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/null"}],
            },
        }
    ],
}


def test_edits_are_read_in_the_order_of_the_devices_and_common_ones_once(tmp_path: Path) -> None:
    for name, document in (("b.json", SOFTGPU), ("a.json", HOOK), ("c.json", {"kind": "vendor.example/nic", "x": 1})):
        (tmp_path / name).write_text(json.dumps(document))
    names = ("aliquot.dev/softgpu=0", "aliquot.dev/softgpu=1", "aliquot.dev/hook=shim")
    edits = edits_for(names, load_specs([tmp_path]), [tmp_path])
    assert edits.env == (("N", "0"), ("N", "1"))
    assert edits.mounts == (Mount("/s", "/s", read_only=False), Mount(LIB, LIB))
    assert [device["PathOnHost"] for device in edits.devices] == ["/dev/null"]


@pytest.mark.parametrize("name", ["aliquot.dev/softgpu=7", "aliquot.dev/hook=other", "nvidia.com/gpu=GPU-7"])
def test_a_device_that_no_spec_of_ours_has_is_said(name: str) -> None:
    with pytest.raises(LaunchError, match=r"has aliquot\.dev/softgpu=0") as caught:
        edits_for([name], [read_spec(SOFTGPU), read_spec(HOOK)], ["/etc/cdi"])
    assert name in str(caught.value)
    assert "/etc/cdi" in str(caught.value)


@pytest.mark.parametrize(
    "document",
    ["{", json.dumps({"kind": "aliquot.dev/hook"}), json.dumps({**HOOK, "containerEdits": {"hooks": []}})],
    ids=["no JSON", "no devices", "edits of another kind"],
)
def test_a_spec_that_cannot_be_read_in_full_is_refused(tmp_path: Path, document: str) -> None:
    (tmp_path / "a.json").write_text(document)
    with pytest.raises(LaunchError, match=r"a\.json"):
        load_specs([tmp_path])
