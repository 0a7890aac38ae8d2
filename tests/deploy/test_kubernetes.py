"""`deploy/kubernetes/`: each overlay rendered by kubectl, valid for each release, and with the least of rights."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from traitlets.config import Config, PyFileConfigLoader

from jupyter_aliquot.gateway.containers.holders import HolderPods
from jupyter_aliquot.gateway.containers.images import ImageCatalogue
from jupyter_aliquot.gateway.containers.pods import KernelPods
from jupyter_aliquot.gateway.nodes.service_accounts import AUDIENCE
from jupyter_aliquot.gpu_hook.agent.settings import read_arguments
from jupyter_aliquot.provisioner.kubernetes.holding.holders import KaiQueueing, KueueQueueing, PlainQueueing
from jupyter_aliquot.provisioner.kubernetes.permissions import PERMISSIONS
from jupyter_aliquot.provisioner.kubernetes.tunnel import sidecar

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
PAGE = FOLDER / "README.md"
OVERLAYS = sorted(file.parent.name for file in FOLDER.glob("*/kustomization.yaml"))
OLDEST = (1, 34)
RELEASES = [one for one in kubernetes_validate.utils.all_versions() if tuple(map(int, one.split(".")[:2])) >= OLDEST]
# Of Kueue and KAI: no schema of theirs is here.
WITHOUT_SCHEMA = {"LocalQueue", "Queue"}

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl (kubernetes-client) is missing")


@functools.cache
def rendered(overlay: str) -> dict[tuple[str, str], Any]:
    """Return the objects of an overlay by kind, and namespace and name."""
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER / overlay)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    named = {
        (one["kind"], "/".join(filter(None, (one["metadata"].get("namespace"), one["metadata"]["name"])))): one
        for one in objects
    }
    assert len(named) == len(objects)
    return named


def agent(overlay: str) -> Any:
    return rendered(overlay)["DaemonSet", "aliquot-nodes/aliquot-agent"]["spec"]["template"]["spec"]


def env_of(container: Any) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_each_folder_of_the_design_is_there() -> None:
    assert OVERLAYS == ["base", "dra", "k3s", "kai", "kueue", "softgpu"]


@needs_kubectl
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_is_valid_for_the_release(overlay: str, release: str) -> None:
    found = [one for one in rendered(overlay).values() if one["kind"] not in WITHOUT_SCHEMA]
    assert len(found) >= 13
    for one in found:
        kubernetes_validate.validate(one, release, strict=True)


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_gateways_pod_is_restricted(overlay: str) -> None:
    namespace = rendered(overlay)["Namespace", "aliquot"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = rendered(overlay)["Deployment", "aliquot/aliquot-gateway"]["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all("hostPath" not in volume for volume in spec["volumes"])
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_agent_is_not_privileged_and_has_named_host_paths_alone(overlay: str) -> None:
    spec = agent(overlay)
    [container] = spec["containers"]
    security = container["securityContext"]
    assert not security.get("privileged")
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE", "IPC_LOCK"]}
    assert "hostNetwork" not in spec

    want = {
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/pod-resources",
        "/run/aliquot",
        "/var/lib/aliquot",
        *(["/dev/shm"] if overlay == "softgpu" else []),
    }
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert set(paths.values()) == want
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {name: mounts[name] for name in paths} == paths  # at the paths that kernel pods get


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_agents_command_is_one_that_the_agent_takes(overlay: str) -> None:
    [container] = agent(overlay)["containers"]
    env = {**env_of(container), "NODE_NAME": "gpu-3"}
    words = [re.sub(r"\$\((\w+)\)", lambda found: env[found[1]], word) for word in container["command"]]
    assert words[:2] == ["aliquot", "agent"]
    settings = read_arguments(words[2:])

    assert settings.driver == ("softgpu" if overlay == "softgpu" else "nvidia")
    assert settings.kubelet is not None
    assert (settings.node, settings.kubelet.slots) == ("gpu-3", 64)
    assert settings.gateway is not None
    service = rendered(overlay)["Service", "aliquot/aliquot-gateway"]
    port = service["spec"]["ports"][0]["port"]
    assert settings.gateway.url == f"ws://aliquot-gateway.aliquot.svc:{port}/aliquot/api/v1/agents"
    [token] = [one for one in agent(overlay)["volumes"] if one["name"] == "token"]
    assert token["projected"]["sources"][0]["serviceAccountToken"]["audience"] == AUDIENCE


@needs_kubectl
def test_an_update_may_end_the_one_replica_that_is_ready() -> None:
    spec = rendered("base")["Deployment", "aliquot/aliquot-gateway"]["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] >= spec["replicas"], (
        "the new ones wait for the old leader's Lease, and are not ready before it ends"
    )


@needs_kubectl
def test_gateways_configuration_names_the_agents_account() -> None:
    text = rendered("base")["ConfigMap", "aliquot/aliquot-gateway"]["data"]["gateway.py"]
    account = agent("base")["serviceAccountName"]
    assert f'c.Aliquot.agent_service_account = "aliquot-nodes/{account}"' in text
    compile(text, "gateway.py", "exec")


def gateways_config(overlay: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return the gateway's configuration as its pod reads it."""
    spec = rendered(overlay)["Deployment", "aliquot/aliquot-gateway"]["spec"]["template"]["spec"]
    for name, value in env_of(spec["containers"][0]).items():
        monkeypatch.setenv(name, value)
    (folder / "gateway.py").write_text(rendered(overlay)["ConfigMap", "aliquot/aliquot-gateway"]["data"]["gateway.py"])
    return PyFileConfigLoader("gateway.py", str(folder)).load_config()


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_gateways_configuration_starts_kernels_as_pods(
    overlay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = gateways_config(overlay, tmp_path, monkeypatch)
    assert config.Aliquot.runtime == "kubernetes"
    cluster = KernelPods(config=config).settings("g").cluster
    assert ("Deployment", f"{cluster.namespace}/{cluster.deployment}") in rendered(overlay)
    targets = re.findall(r"^FROM .* AS (\w+)$", (FOLDER.parent / "Dockerfile").read_text(), re.MULTILINE)
    held = HolderPods(config=config).settings(cluster.relay_image)
    queue = {"kueue": KueueQueueing("aliquot"), "kai": KaiQueueing("aliquot")}.get(overlay, PlainQueueing())
    assert (None if held is None else held.queueing) == (None if overlay == "softgpu" else queue)
    images = [cluster.relay_image, *(one.container.image for one in ImageCatalogue(config=config).entries)]
    assert images == ["aliquot/relay:latest", "aliquot/kernel:latest"]
    assert {one.partition("/")[2].partition(":")[0] for one in images} <= set(targets)


@needs_kubectl
def test_the_dra_overlays_holders_and_agents_speak_of_one_driver_by_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HolderPods(config=gateways_config("dra", tmp_path, monkeypatch)).settings("relay:1")
    assert held is not None
    env = {**env_of(agent("dra")["containers"][0]), "NODE_NAME": "gpu-3"}
    words = [
        re.sub(r"\$\((\w+)\)", lambda found: env[found[1]], word) for word in agent("dra")["containers"][0]["command"]
    ]
    kubelet = read_arguments(words[2:]).kubelet
    assert kubelet is not None
    assert held.pool.device_class == kubelet.claims_driver == "gpu.nvidia.com"
    rules = rendered("dra")["Role", "aliquot/aliquot-claims"]["rules"]
    assert rules == [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["create"]}]


@needs_kubectl
def test_the_gateway_alone_reaches_kernels_at_the_port_of_their_relays() -> None:
    policy = rendered("base")["NetworkPolicy", "aliquot/aliquot-kernels"]["spec"]
    pod = yaml.safe_load((ROOT / "tests/provisioner/kubernetes/golden/kernel-pod.yaml").read_text())
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    [rule] = policy["ingress"]
    template = rendered("base")["Deployment", "aliquot/aliquot-gateway"]["spec"]["template"]
    assert rule["from"] == [{"podSelector": {"matchLabels": template["metadata"]["labels"]}}]
    [port], [relay] = rule["ports"], pod["spec"]["initContainers"]
    assert port["port"] == relay["ports"][0]["containerPort"] == KernelPods(relay_image="relay:1").relay_port


def test_the_relays_image_starts_the_program_that_the_pod_gives_arguments_to() -> None:
    text = (FOLDER.parent / "Dockerfile").read_text()
    [words] = re.findall(r"^FROM aliquot AS relay\nENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    assert json.loads(words)[-1] == sidecar.__name__
    assert sidecar.main.__module__ == sidecar.__name__


def _granted(kind: str) -> set[tuple[str, str, str, str]]:
    """Return group, resource, verb and name of each permission in the roles of a kind."""
    objects = yaml.safe_load_all((FOLDER / "base" / "rbac.yaml").read_text())
    return {
        (group, resource, verb, name)
        for role in objects
        if role["kind"] == kind
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.parametrize(("kind", "is_of_the_namespace"), [("Role", True), ("ClusterRole", False)])
def test_roles_grant_what_the_gateway_needs_and_no_more(kind: str, is_of_the_namespace: bool) -> None:
    want = {
        (one.group, one.resource, verb, one.name)
        for one in PERMISSIONS
        if one.is_of_the_namespace is is_of_the_namespace
        for verb in one.verbs
    }
    assert _granted(kind) == want
    assert not {resource for _, resource, verb, _ in want if verb == "*" or resource == "*"}


def test_no_secret_is_listed_and_no_pod_is_entered() -> None:
    granted = _granted("Role") | _granted("ClusterRole")
    assert not {verb for _, resource, verb, _ in granted if resource == "secrets"} & {"list", "watch"}
    assert not {resource for _, resource, _, _ in granted} & {
        "pods/exec",
        "pods/attach",
        "pods/portforward",
        "pods/log",
    }


@needs_kubectl
def test_images_of_the_page_have_what_the_manifests_commands_import() -> None:
    [container] = agent("base")["containers"]
    config = rendered("base")["ConfigMap", "aliquot/aliquot-gateway"]["data"]["gateway.py"]
    assert any(word.startswith("--kubelet") for word in container["command"])
    assert "agent_service_account" in config

    [install] = [line for line in (FOLDER.parent / "Dockerfile").read_text().splitlines() if "jupyter_aliquot-" in line]
    assert install.endswith('"$(echo /wheels/jupyter_aliquot-*.whl)${EXTRAS}"')
    assert "--build-arg EXTRAS=[kubernetes]" in (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    assert re.search(
        r'^kubernetes = \["grpcio>=[^]]*"kubernetes>=', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )


def test_page_lists_each_permission_with_its_reason() -> None:
    rows = [f"| {one.resource} | {', '.join(one.verbs)} | {one.reason} |" for one in PERMISSIONS]
    text = PAGE.read_text()
    assert [row for row in rows if row not in text] == []


def test_values_for_zero_to_jupyterhub_reach_the_gateway() -> None:
    values = yaml.safe_load((FOLDER / "zero-to-jupyterhub" / "values.yaml").read_text())
    environment = values["hub"]["config"]["KubeSpawner"]["environment"]
    assert environment["JUPYTER_GATEWAY_URL"] == "http://aliquot-gateway.aliquot.svc:8888"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
