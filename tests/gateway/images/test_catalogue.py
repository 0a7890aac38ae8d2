"""The image catalogue: valid and refused entries, and the kernelspecs that entries act as."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.containers.images import ImageCatalogue, read_image
from jupyter_aliquot.gateway.kernelspecs.installed import install_sizes
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, Pull
from jupyter_aliquot.provisioner.resources import Bytes

PYTORCH: dict[str, Any] = {
    "name": "pytorch",
    "image": "registry.example/ml/pytorch:2.11",
    "display_name": "PyTorch",
    "version": "2.11",
    "description": "PyTorch and pandas",
    "default_size": "0.5",
    "pull": "never",
    "user": "1000:1000",
    "limits": {"memory": "8GiB", "cpus": 2, "pids": 200},
}

Make = Callable[..., SizedKernelSpecManager]


@pytest.fixture
def make_manager(tmp_path: Path) -> Make:
    """Return a function that makes a manager with the kernelspec `julia` and these images."""
    spec = {"argv": ["julia", "{connection_file}"], "display_name": "Julia", "language": "julia"}
    (tmp_path / "kernels" / "julia").mkdir(parents=True)
    (tmp_path / "kernels" / "julia" / "kernel.json").write_text(json.dumps(spec))

    def make(*images: dict[str, Any], **more: Any) -> SizedKernelSpecManager:
        config = Config({"ImageCatalogue": {"images": list(images)}, "Aliquot": {"presets": ["0.25", "0.5"]}})
        dirs = [str(tmp_path / "kernels")]
        return SizedKernelSpecManager(config=config, kernel_dirs=dirs, ensure_native_kernel=False, **more)

    return make


def test_an_image_is_listed_by_its_default_size_first_then_plain_then_the_presets(make_manager: Make) -> None:
    want = ["pytorch.gpu-0.5", "pytorch", "pytorch.gpu-0.25"]
    assert [name for name in make_manager(PYTORCH).get_all_specs() if "julia" not in name] == want


def test_the_picker_shows_name_version_and_size(make_manager: Make) -> None:
    manager = make_manager(PYTORCH)
    assert manager.get_kernel_spec("pytorch").display_name == "PyTorch 2.11"
    assert manager.get_kernel_spec("pytorch.gpu-0.25").display_name == "PyTorch 2.11 · 0.25 GPU"


def test_a_size_that_is_not_listed_is_resolved_and_says_what_it_is(make_manager: Make) -> None:
    spec = make_manager(PYTORCH).get_kernel_spec("PyTorch.gpu-2.5-low")
    assert spec.metadata["kernel_provisioner"]["config"] == {"gpus": "2.5", "priority": "low"}
    about = {"image": PYTORCH["image"], "description": "PyTorch and pandas", "kernelspec": "pytorch"}
    assert spec.metadata["aliquot"] == {**about, "gpus": "2.5", "priority": "low"}


def test_the_kernelspec_in_the_image_is_the_entrys_and_ipykernels_without_one(make_manager: Make) -> None:
    own = {"argv": ["ir", "{connection_file}"], "language": "R", "interrupt_mode": "message", "env": {"A": "b"}}
    manager = make_manager(PYTORCH, {"name": "r", "image": "r:4", "kernelspec": own})
    python, r = manager.get_kernel_spec("pytorch"), manager.get_kernel_spec("r.gpu-0.25")
    assert python.argv[-4:] == ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert (Path(python.resource_dir) / "logo-64x64.png").is_file()
    assert {"argv": r.argv, "language": r.language, "interrupt_mode": r.interrupt_mode, "env": r.env} == own
    assert not list(Path(r.resource_dir).glob("*"))


def test_no_interpreter_of_the_server_gets_into_an_images_command(make_manager: Make) -> None:
    # Jupyter replaces these names by its own interpreter.
    assert make_manager(PYTORCH).get_kernel_spec("pytorch").argv[0] not in ("python", "python3")


def test_an_entry_is_read_into_the_plan_of_its_container() -> None:
    image = read_image(PYTORCH)
    assert (image.container.image, image.container.pull) == (PYTORCH["image"], Pull.NEVER)
    assert (image.container.user, image.container.network, image.container.read_only_root) == (
        "1000:1000",
        "none",
        True,
    )
    assert image.limits == ContainerLimits(memory=Bytes(8 << 30), cpus=2, pids=200)
    compat = "/usr/local/cuda/compat"
    assert read_image({**PYTORCH, "cuda_compat": compat}).container.cuda_compat == compat


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"name": ""}, "a text that is not empty"),
        ({"name": "PyTorch"}, "a-z, 0-9"),
        ({"name": "a/b"}, "a-z, 0-9"),
        ({"name": "pytorch.gpu-1"}, "without '.gpu-'"),
        ({"name": "pytorch.gpu-x"}, "without '.gpu-'"),
        ({"image": None}, "'image' of the image 'pytorch' is missing"),
        ({"image": "a b"}, "is not the name of an image"),
        ({"pull": "sometimes"}, "missing, always, never"),
        ({"user": "alice"}, "uid:gid"),
        ({"user": "Owner"}, "uid:gid"),
        ({"user": "owner", "userns": "auto"}, "'host', or leave it out"),
        ({"userns": "mine"}, "The user namespace"),
        ({"network": "host"}, "it is shared"),
        ({"default_size": "0.333"}, "more than two decimals"),
        ({"default_size": "20"}, "more than the 8 GPUs"),
        ({"limits": {"memory": "lots"}}, "such as '8GiB'"),
        ({"limits": {"memory": "1MiB"}}, "a kernel needs"),
        ({"limits": {"cpus": 0}}, "a number above 0"),
        ({"limits": {"pids": 20.5}}, "a whole number"),
        ({"limits": {"disk": 1}}, "unknown fields"),
        ({"users": "alice"}, "a list of texts"),
        ({"kernelspec": {"argv": ["python3"]}}, "{connection_file}"),
        ({"kernelspec": {"interrupt_mode": "loud"}}, "signal, message"),
        ({"kernelspec": {"env": {"A": 1}}}, "a table of texts"),
        ({"kernelspec": {"env": {"1A": "x"}}}, "no valid name"),
        ({"logos": "/nonexistent"}, "logo-64x64.png"),
        ({"read_only_root": "yes"}, "True or False"),
        ({"colour": "blue"}, "unknown fields"),
    ],
)
def test_a_wrong_entry_is_refused_by_knob_and_entry(make_manager: Make, change: dict[str, Any], want: str) -> None:
    with pytest.raises(TraitError) as caught:
        make_manager({**PYTORCH, **change})
    assert "c.ImageCatalogue.images: " in str(caught.value)
    assert want in str(caught.value)


@pytest.mark.parametrize("images", [["pytorch"], [PYTORCH, PYTORCH]])
def test_what_is_no_table_and_two_of_one_name_are_refused(images: Any, make_manager: Make) -> None:
    with pytest.raises(TraitError):
        make_manager(*images)


def test_the_name_of_an_installed_kernelspec_is_refused_with_its_folder(make_manager: Make, tmp_path: Path) -> None:
    with pytest.raises(TraitError, match=f"an installed kernelspec in {tmp_path}/kernels/julia has the name"):
        make_manager({**PYTORCH, "name": "julia"})


@pytest.mark.parametrize("name", ["KERNEL-X", "*", "A B", ""])
def test_an_allow_list_holds_names_of_variables(name: str) -> None:
    with pytest.raises(TraitError, match="not the name of a variable"):
        ImageCatalogue(config=Config({"ImageCatalogue": {"allowed_env": [name]}}))


@pytest.mark.parametrize("name", ["KERNEL_USERNAME", "LD_PRELOAD", "LD_*", "ALIQUOT_KERNEL_ID", "JUPYTERHUB_*", "PATH"])
def test_who_somebody_is_and_what_is_loaded_cannot_be_allowed(name: str) -> None:
    with pytest.raises(TraitError, match="no request may set it"):
        ImageCatalogue(config=Config({"ImageCatalogue": {"allowed_env": ["KERNEL_*", name]}}))


@pytest.mark.parametrize(
    ("change", "user", "want"),
    [
        ({}, User("alice", "user"), True),
        ({"users": ["alice"]}, User("alice", "user"), True),
        ({"users": ["alice"]}, User("bob", "user"), False),
        ({"teams": ["vision"]}, User("bob", "user", frozenset({"vision", "x"})), True),
        ({"teams": ["vision"]}, User("vision", "user", frozenset({"x"})), False),
        ({"teams": ["vision"], "users": ["bob"]}, User("bob", "user"), True),
        ({"users": ["alice"]}, User("ada", "admin"), True),
        ({"users": ["*"]}, User("bob", "user"), True),
        ({"users": ["*"]}, User("", "user"), False),
    ],
)
def test_an_image_is_for_named_users_and_teams(change: dict[str, Any], user: User, want: bool) -> None:
    assert read_image({**PYTORCH, **change}).is_for(user) is want


def test_an_allow_list_of_kernelspecs_holds_for_images_too(make_manager: Make) -> None:
    manager = make_manager(PYTORCH, {"name": "other", "image": "x"}, allowed_kernelspecs={"pytorch.gpu-0.25", "other"})
    assert set(manager.find_kernel_specs()) == {"pytorch.gpu-0.25", "other", "other.gpu-0.25", "other.gpu-0.5"}


def test_images_are_not_written_for_clients_that_read_only_the_disk(make_manager: Make, tmp_path: Path) -> None:
    install_sizes(make_manager(PYTORCH), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"julia.gpu-0.25", "julia.gpu-0.5"}


def test_offered_sizes_tell_which_one_is_proposed(make_manager: Make) -> None:
    offered = {size.name: size for size in make_manager(PYTORCH).offered_sizes()}
    assert {name for name, size in offered.items() if size.is_default} == {"pytorch.gpu-0.5"}
    assert {name for name, size in offered.items() if size.image} == {"pytorch.gpu-0.5", "pytorch.gpu-0.25"}
