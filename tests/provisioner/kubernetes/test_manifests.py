"""The objects that Aliquot asks a cluster for: golden, valid for each release, and restricted."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
import yaml

from jupyter_aliquot.provisioner.containers.plan import ContainerPlan
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.kubernetes.holding.holders import PlainQueueing, Pool, holder_pod
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import granted_environment, kernel_pod
from jupyter_aliquot.provisioner.kubernetes.objects import object_name
from jupyter_aliquot.provisioner.kubernetes.pods.plans import pod_plan
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster, PodPlan, PodSettings, Volume
from jupyter_aliquot.provisioner.launch_spec import LIBRARIES, PREPEND, LaunchSpec
from jupyter_aliquot.provisioner.runtime.base import Launch

from .manifests import CLUSTER, GOLDEN, GRANT, KEYS, PLAN, POOL, RECORD, manifests, written

MANIFESTS = manifests()
OLDEST = (1, 34)
RELEASES = [one for one in kubernetes_validate.utils.all_versions() if tuple(map(int, one.split(".")[:2])) >= OLDEST]
# The kinds of volumes that Pod Security's level restricted allows.
ALLOWED = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
PODS = [name for name, manifest in MANIFESTS.items() if manifest["kind"] == "Pod"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_object_is_the_golden_one(name: str) -> None:
    """`python tests/provisioner/kubernetes/manifests.py` writes them anew; read what changed."""
    assert written(MANIFESTS[name]) == (GOLDEN / f"{name}.yaml").read_text()


def test_each_golden_file_is_an_object_of_ours() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(MANIFESTS)


def test_schemas_of_four_releases_are_known() -> None:
    assert {".".join(one.split(".")[:2]) for one in RELEASES} >= {"1.34", "1.35", "1.36", "1.37"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", [name for name, one in MANIFESTS.items() if one["kind"] != "PodGroup"])
def test_an_object_is_valid_for_the_release(name: str, release: str) -> None:
    kubernetes_validate.validate(yaml.safe_load(written(MANIFESTS[name])), release, strict=True)


def test_the_validation_refuses_what_is_wrong() -> None:
    pod = yaml.safe_load(written(MANIFESTS["kernel-pod"]))
    pod["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, RELEASES[-1], strict=True)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_restricted(name: str) -> None:
    spec = MANIFESTS[name]["spec"]
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    for volume in spec.get("volumes", ()):
        assert set(volume) - {"name"} <= ALLOWED, volume
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        own = container["securityContext"]
        assert (own["allowPrivilegeEscalation"], own["privileged"]) == (False, False)
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["readOnlyRootFilesystem"] is True
        assert not any("hostPort" in port for port in container.get("ports", ()))


def container(pod: Any, name: str) -> Any:
    return next(one for one in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]] if one["name"] == name)


def test_a_kernel_pod_asks_for_no_gpu_and_shows_none_to_nvidias_runtime() -> None:
    kernel = container(MANIFESTS["kernel-pod"], "kernel")
    assert kernel["resources"]["limits"]["aliquot.dev/kernel"] == "1"
    assert not any("nvidia.com" in name for name in kernel["resources"]["limits"])
    env = {one["name"]: one["value"] for one in kernel["env"]}
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void", "whatever the plan and the image say"


_NODE_PATHS = (
    ("LD_LIBRARY_PATH_PREPEND", "/var/lib/aliquot/libraries/0a1b/shim"),
    ("ALIQUOT_REAL_CUDA", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    ("ALIQUOT_KERNEL_DIR", "/run/aliquot/kernels/k"),
)


@pytest.mark.parametrize(
    ("env", "folder", "want"),
    [
        (_NODE_PATHS, "", {}),
        (
            _NODE_PATHS,
            "/usr/local/cuda/compat",
            {
                "ALIQUOT_REAL_CUDA": "/usr/local/cuda/compat/libcuda.so.1",
                "LD_LIBRARY_PATH": "/var/lib/aliquot/libraries/0a1b/shim:/usr/local/cuda/compat",
            },
        ),
        ((*_NODE_PATHS, ("ALIQUOT_SOFTGPU_STATE", "s")), "/compat", {"ALIQUOT_SOFTGPU_STATE": "s"}),
    ],
    ids=["the node's", "the image's own", "a software GPU"],
)
def test_a_pod_sets_the_libcuda_that_the_catalogue_names_and_leaves_the_rest_to_the_plugin(
    env: tuple[tuple[str, str], ...], folder: str, want: dict[str, str]
) -> None:
    assert dict(granted_environment(replace(GRANT, env=env), folder)) == want


@pytest.mark.parametrize(
    ("compat", "own", "want"),
    [
        ("", None, None),
        ("", "/opt/mylibs", "/shim:/opt/mylibs"),
        ("/compat", None, "/shim:/compat"),
        ("/compat", "/opt/mylibs", "/shim:/compat:/opt/mylibs"),
    ],
)
def test_a_catalogue_entrys_library_path_is_kept_after_the_hooks_folder(
    compat: str, own: str | None, want: str | None
) -> None:
    plan = ContainerPlan("torch:1", env=() if own is None else ((LIBRARIES, own),), cuda_compat=compat)
    grant = replace(GRANT, env=((LIBRARIES + PREPEND, "/shim"), ("ALIQUOT_REAL_CUDA", "/usr/lib64/libcuda.so.1")))
    launch = Launch(LaunchSpec("k1", ("python",), ()), grant=grant, container=plan)
    env = dict(pod_plan(launch, plan, grant, PodSettings(CLUSTER)).env)
    assert env.get(LIBRARIES) == want, "the device plugin sets it where the pod does not"
    assert LIBRARIES + PREPEND not in env


def test_a_pods_kernel_starts_by_the_nodes_own_self_check() -> None:
    plan = ContainerPlan("torch:1")
    grant = replace(GRANT, env=((LIBRARIES + PREPEND, "/var/lib/aliquot/libraries/0a1b/shim"),))
    argv = ("/the/gateways/bin/aliquot-kernel-start", "python", "-m", "ipykernel_launcher")
    launch = Launch(LaunchSpec("k1", argv, (), program="python"), grant=grant, container=plan)
    want = ("/var/lib/aliquot/libraries/0a1b/bin/aliquot-kernel-start", "python", "-m", "ipykernel_launcher")
    assert pod_plan(launch, plan, grant, PodSettings(CLUSTER)).argv == want, "it has no path of the gateway"


def test_a_holder_asks_for_one_whole_gpu_and_hardly_any_cpu() -> None:
    [holder] = MANIFESTS["holder-plain"]["spec"]["containers"]
    assert holder["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert holder["resources"]["requests"] == holder["resources"]["limits"]
    other = holder_pod(replace(CLUSTER, gpu_resource="amd.com/gpu"), POOL, "1", PlainQueueing())
    assert other["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "1"


def test_the_relay_starts_before_the_kernel_and_alone_has_the_keys() -> None:
    pod = MANIFESTS["kernel-pod"]
    relay, kernel = container(pod, "relay"), container(pod, "kernel")
    assert relay["restartPolicy"] == "Always", "a native sidecar"
    assert relay in pod["spec"]["initContainers"]
    keys = "aliquot-keys"
    assert keys in {one["name"] for one in relay["volumeMounts"]}
    assert keys not in {one["name"] for one in kernel["volumeMounts"]}


def test_every_object_goes_with_the_gateway() -> None:
    for name, manifest in MANIFESTS.items():
        owners = manifest["metadata"].get("ownerReferences", [])
        if name == "holder-dra-claim":  # with its holder
            assert [(one["kind"], one["name"]) for one in owners] == [("Pod", manifest["metadata"]["name"])]
            continue
        assert [one["uid"] for one in owners] == ([] if name == "kernel-pod-plain" else [CLUSTER.owner.uid])  # type: ignore[union-attr]


def test_a_volume_may_be_mounted_twice_and_hides_none_of_ours() -> None:
    volumes = [one["name"] for one in MANIFESTS["kernel-pod"]["spec"]["volumes"]]
    assert len(volumes) == len(set(volumes))
    bad = replace(PLAN, volumes=(Volume("aliquot-keys", {"emptyDir": {}}, "/x"),))
    with pytest.raises(RequestError, match="Aliquot's own"):
        kernel_pod(CLUSTER, RECORD, bad)


@pytest.mark.parametrize(
    ("change", "want"),
    [({"uid": 0}, "as root"), ({"argv": ()}, "command is empty"), ({"node": ""}, "no node")],
)
def test_a_plan_that_no_pod_can_have_is_refused(change: dict[str, Any], want: str) -> None:
    with pytest.raises(RequestError, match=want):
        replace(PLAN, **change)


def test_a_pool_guarantees_no_more_than_it_may_have() -> None:
    with pytest.raises(RequestError, match="guarantees 3"):
        Pool("p", "i", guaranteed=3, most=2)


def test_a_namespace_is_checked() -> None:
    with pytest.raises(RequestError, match="not valid"):
        Cluster("No Namespace", "g", "i")


@pytest.mark.parametrize("key", ["A", "a_b", "x" * 80, "a.b", "-", "a-", "é"])
def test_a_name_is_one_that_pods_may_have(key: str) -> None:
    name = object_name("aliquot-kernel", key)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 63
    assert name != object_name("aliquot-kernel", key.lower() + "0")


def test_secrets_are_not_shown() -> None:
    assert "a-token" not in repr(KEYS)


def test_a_plan_without_limits_asks_for_a_slot_alone() -> None:
    pod = kernel_pod(CLUSTER, RECORD, PodPlan("i", ("python",), "n"))
    assert container(pod, "kernel")["resources"]["limits"] == {"aliquot.dev/kernel": "1"}
