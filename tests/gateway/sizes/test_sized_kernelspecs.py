"""Sizes as Jupyter's clients see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyter_client.kernelspec import NoSuchKernel

from jupyter_aliquot.gateway.kernelspecs.manager import NoSuchBase, NoSuchSize, SizedKernelSpecManager
from jupyter_aliquot.provisioner.errors import SizeNameError
from jupyter_aliquot.provisioner.grants.codec import stanza_request

from .conftest import Make, WriteKernelSpec

OURS = {
    "kernel_provisioner": {"provisioner_name": "aliquot", "config": {"gpus": "0.25"}},
    "aliquot": {"kernelspec": "julia"},
}


def test_each_base_is_listed_plain_and_in_the_presets(a_manager: SizedKernelSpecManager) -> None:
    want = ["julia", "julia.gpu-0.25", "julia.gpu-0.5", "julia.gpu-1", "julia.gpu-0.25-low"]
    assert list(a_manager.get_all_specs()) == want


def test_a_size_runs_what_its_base_runs(a_manager: SizedKernelSpecManager) -> None:
    base, sized = a_manager.get_kernel_spec("julia"), a_manager.get_kernel_spec("julia.gpu-0.5-8g-low")
    for field in ("argv", "env", "language", "interrupt_mode", "resource_dir"):
        assert getattr(sized, field) == getattr(base, field)
    assert sized.display_name == "Julia 1.11 · 0.5 GPU · 8 GiB · low"


def test_a_name_that_asks_for_no_gpu_runs_what_its_base_runs_and_asks_for_nothing(
    a_manager: SizedKernelSpecManager,
) -> None:
    base, plain = a_manager.get_kernel_spec("julia"), a_manager.get_kernel_spec("Julia.GPU-None")
    for field in ("argv", "env", "language", "interrupt_mode", "resource_dir"):
        assert getattr(plain, field) == getattr(base, field)
    assert (plain.name, plain.display_name) == ("Julia.gpu-none", "Julia 1.11 · no GPU")
    assert stanza_request(plain.metadata) is None
    assert base.metadata == {}
    assert "julia.gpu-none" not in a_manager.get_all_specs(), "it is found, and not listed"
    for name in ("r.gpu-none", "julia.gpu-none-low", "julia.gpu-1.gpu-none"):
        with pytest.raises(NoSuchKernel):
            a_manager.get_kernel_spec(name)


def test_a_size_carries_its_request_to_the_provisioner(a_manager: SizedKernelSpecManager) -> None:
    sized = a_manager.get_kernel_spec("julia.gpu-0.5-8g-low")
    want = {"gpus": "0.5", "memory_limit": "8GiB", "priority": "low"}
    assert sized.metadata["kernel_provisioner"] == {"provisioner_name": "aliquot", "config": want}
    assert sized.metadata["aliquot"] == {"kernelspec": "julia", **want}
    request = stanza_request(sized.metadata)
    assert request is not None
    assert request.memory_limit == 8 << 30


@pytest.mark.parametrize("text", ["{", "[]", '{"metadata": 5}'])
def test_one_kernelspec_that_cannot_be_read_hides_no_other(
    a_manager: SizedKernelSpecManager, kernels_folder: Path, text: str
) -> None:
    (kernels_folder / "broken").mkdir()
    (kernels_folder / "broken" / "kernel.json").write_text(text)
    assert {size.base for size in a_manager.offered_sizes()} == {"julia"}
    for name in ("broken", "broken.gpu-0.5"):
        with pytest.raises(NoSuchKernel) as refusal:
            a_manager.get_kernel_spec(name)
        assert "broken/kernel.json cannot be read" in str(refusal.value)


def test_without_a_limit_the_stanza_names_none(a_manager: SizedKernelSpecManager) -> None:
    config = a_manager.get_kernel_spec("julia.gpu-0.25").metadata["kernel_provisioner"]["config"]
    assert config == {"gpus": "0.25", "priority": "normal"}


def test_deriving_a_size_leaves_its_base_alone(a_manager: SizedKernelSpecManager) -> None:
    a_manager.get_kernel_spec("julia.gpu-0.25").metadata["kernel_provisioner"]["config"]["gpus"] = "7"
    assert a_manager.get_kernel_spec("julia").metadata == {}


def test_a_size_that_is_not_listed_is_resolved(a_manager: SizedKernelSpecManager) -> None:
    assert a_manager.get_kernel_spec("julia.gpu-2.37").display_name == "Julia 1.11 · 2.37 GPUs"


def test_an_invalid_size_is_both_our_error_and_jupyters(a_manager: SizedKernelSpecManager) -> None:
    with pytest.raises(NoSuchSize, match="more than two decimals") as caught:
        a_manager.get_kernel_spec("julia.gpu-0.333")
    assert isinstance(caught.value, SizeNameError)
    assert isinstance(caught.value, NoSuchKernel)


def test_a_size_over_the_configured_largest_is_refused(write_kernelspec: WriteKernelSpec, make_manager: Make) -> None:
    write_kernelspec("julia")
    manager = make_manager(largest_gpus=2.0)
    assert manager.get_kernel_spec("julia.gpu-2")
    with pytest.raises(NoSuchSize, match=r"from 0\.01 to 2 "):
        manager.get_kernel_spec("julia.gpu-2.01")


def test_an_unknown_base_is_named(a_manager: SizedKernelSpecManager) -> None:
    with pytest.raises(NoSuchBase, match="no kernelspec named 'fortran' is installed"):
        a_manager.get_kernel_spec("fortran.gpu-0.25")
    with pytest.raises(NoSuchBase, match="no kernelspec named 'fortran' is installed"):
        a_manager.get_kernel_spec("fortran.gpu-0.333")


def test_a_plain_unknown_name_is_jupyters_own_error(a_manager: SizedKernelSpecManager) -> None:
    with pytest.raises(NoSuchKernel, match="No such kernel named fortran"):
        a_manager.get_kernel_spec("fortran")


def test_another_provisioners_kernelspec_has_no_sizes(write_kernelspec: WriteKernelSpec, make_manager: Make) -> None:
    write_kernelspec("far", metadata={"kernel_provisioner": {"provisioner_name": "local-provisioner"}})
    write_kernelspec("away", metadata={"kernel_provisioner": {"provisioner_name": "somebody-elses"}})
    manager = make_manager(presets=["1"])
    assert set(manager.find_kernel_specs()) == {"far", "far.gpu-1", "away"}


def test_a_presets_file_is_listed_once_and_is_no_base(write_kernelspec: WriteKernelSpec, make_manager: Make) -> None:
    write_kernelspec("julia", "Julia 1.11")
    write_kernelspec("julia.gpu-0.25", "an old name", OURS)
    write_kernelspec("julia.gpu-4", "not offered any more", OURS)
    manager = make_manager(presets=["0.25"])
    assert list(manager.find_kernel_specs()) == ["julia", "julia.gpu-0.25"]
    assert manager.get_kernel_spec("julia.gpu-0.25").display_name == "Julia 1.11 · 0.25 GPU"


def test_a_users_own_kernelspec_with_a_name_like_a_size_stays_theirs(
    write_kernelspec: WriteKernelSpec, make_manager: Make
) -> None:
    write_kernelspec("torch.gpu-2024", "my own")
    manager = make_manager()
    assert list(manager.get_all_specs()) == ["torch.gpu-2024"]
    assert manager.get_kernel_spec("torch.gpu-2024").display_name == "my own"
    assert manager.offered_sizes() == []


def test_allowed_kernelspecs_may_name_a_base_or_one_size(write_kernelspec: WriteKernelSpec, make_manager: Make) -> None:
    write_kernelspec("julia")
    write_kernelspec("python3")
    by_base = make_manager(presets=["1"], allowed_kernelspecs={"julia"})
    assert set(by_base.find_kernel_specs()) == {"julia", "julia.gpu-1"}
    by_size = make_manager(presets=["1"], allowed_kernelspecs={"julia.gpu-0.1"})
    assert set(by_size.find_kernel_specs()) == {"julia.gpu-0.1"}


def test_removing_a_size_never_removes_its_base(a_manager: SizedKernelSpecManager, kernels_folder: Path) -> None:
    with pytest.raises(NoSuchSize, match="a size has no folder"):
        a_manager.remove_kernel_spec("julia.gpu-0.25")
    assert (kernels_folder / "julia" / "kernel.json").exists()


def test_an_unreadable_kernelspec_spoils_no_other(
    a_manager: SizedKernelSpecManager, write_kernelspec: WriteKernelSpec
) -> None:
    (write_kernelspec("broken") / "kernel.json").write_text("{")
    assert "julia.gpu-0.25" in a_manager.get_all_specs()


def test_offered_sizes_are_the_listed_ones(a_manager: SizedKernelSpecManager) -> None:
    offered = a_manager.offered_sizes()
    assert [size.name for size in offered] == list(a_manager.get_all_specs())[1:]
    assert {size.base for size in offered} == {"julia"}


def test_how_memory_may_leave_is_the_kernelspecs_then_the_sizes_then_the_servers(
    write_kernelspec: WriteKernelSpec, make_manager: Make
) -> None:
    write_kernelspec("plain")
    write_kernelspec("own", metadata={"aliquot": {"residency": "off"}})
    manager = make_manager(residency="vmm", size_residency={"0.25-LOW": "managed"})

    def mode(name: str) -> str:
        request = stanza_request(manager.get_kernel_spec(name).metadata)
        assert request is not None
        return request.residency

    assert mode("plain.gpu-0.25") == "vmm"
    assert mode("plain.gpu-0.25-low") == "managed"
    assert mode("own.gpu-0.25-low") == "off"
    assert stanza_request(make_manager().get_kernel_spec("plain.gpu-1").metadata).residency == ""
