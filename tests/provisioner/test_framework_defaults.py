"""Frameworks are told not to reserve a GPU at their start, where nothing else was said."""

from __future__ import annotations

import pytest

from jupyter_aliquot.provisioner.containers.plan import ContainerPlan
from jupyter_aliquot.provisioner.containers.spec import ContainerLaunch, Devices, ImageFacts, container_spec
from jupyter_aliquot.provisioner.launch_spec import LaunchSettings, launch_spec
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

JAX, TENSORFLOW = "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH"
GRANT = Grant(
    kernel_id="k",
    owner="ada",
    request=Request(GpuShare(25)),
    node="n",
    quotas=(Quota("GPU-0", 0, GpuShare(25), Bytes(1 << 30)),),
    kernel_dir="/run/aliquot/kernels/k",
    env=(("CUDA_VISIBLE_DEVICES", "GPU-0"),),
)
COMMAND = ("python3", "-m", "ipykernel_launcher")

CASES = pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({}, {JAX: "false", TENSORFLOW: "true"}, id="nothing is set"),
        pytest.param({JAX: "true"}, {JAX: "true", TENSORFLOW: "true"}, id="JAX's own is set"),
        pytest.param({TENSORFLOW: "false"}, {JAX: "false", TENSORFLOW: "false"}, id="TensorFlow's own is set"),
        pytest.param({JAX: ""}, {JAX: "", TENSORFLOW: "true"}, id="set to nothing"),
        pytest.param(
            {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}, {JAX: None, TENSORFLOW: "true"}, id="a part to reserve is set"
        ),
        pytest.param({"XLA_CLIENT_MEM_FRACTION": ".5"}, {JAX: None, TENSORFLOW: "true"}, id="by its newer name"),
    ],
)


def told(env: dict[str, str]) -> dict[str, str | None]:
    return {name: env.get(name) for name in (JAX, TENSORFLOW)}


@CASES
def test_a_process_gets_what_user_and_kernelspec_left_open(given: dict[str, str], want: dict[str, str]) -> None:
    spec = launch_spec("k", COMMAND, given, GRANT, LaunchSettings())
    assert told(dict(spec.env)) == want


def test_a_kernel_without_a_gpu_is_told_nothing() -> None:
    assert told(dict(launch_spec("k", COMMAND, {}, None, LaunchSettings()).env)) == {JAX: None, TENSORFLOW: None}


def container_env(kernel: dict[str, str], image: dict[str, str], plan: dict[str, str]) -> dict[str, str]:
    """The environment of a container, from that of its kernel as the provisioner makes it."""
    inherited = {"PATH": "/bin"}
    spec = launch_spec("k", COMMAND, {**inherited, **kernel}, GRANT, LaunchSettings(has_image=True))
    launch = ContainerLaunch("k", spec.argv, spec.env, spec.program, "/run/k", inherited=inherited)
    planned = ContainerPlan("image", env=tuple(plan.items()))
    made = container_spec(launch, planned, ImageFacts(env=tuple(image.items())), GRANT, Devices())
    return dict(word.split("=", 1) for word in made.body["Env"])


@CASES
@pytest.mark.parametrize("source", ["kernel", "image", "plan"])
def test_a_container_gets_what_user_image_and_administrator_left_open(
    source: str, given: dict[str, str], want: dict[str, str]
) -> None:
    sources: dict[str, dict[str, str]] = {"kernel": {}, "image": {}, "plan": {}, source: given}
    assert told(container_env(**sources)) == want


def test_a_users_own_word_comes_before_the_images() -> None:
    assert container_env({JAX: "false"}, {JAX: "true"}, {})[JAX] == "false"
