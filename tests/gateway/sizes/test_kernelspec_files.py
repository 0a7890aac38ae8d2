"""Sizes as kernelspec files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from jupyter_aliquot.gateway.kernelspecs.installed import KernelSpecFileError, install_sizes
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager

ROOT = Path(__file__).resolve().parents[3]
PACKAGED = sorted((ROOT / "jupyter-config" / "kernels").iterdir())


def test_a_client_that_reads_only_the_disk_sees_the_sizes(a_manager: SizedKernelSpecManager, tmp_path: Path) -> None:
    install_sizes(a_manager, tmp_path / "out")
    stock = KernelSpecManager(kernel_dirs=[str(tmp_path / "out")], ensure_native_kernel=False)
    want = a_manager.get_kernel_spec("julia.gpu-0.25").to_dict()
    assert (tmp_path / "out" / "julia.gpu-0.25" / "logo-64x64.png").exists()
    assert len(stock.find_kernel_specs()) == 4
    assert json.loads((tmp_path / "out" / "julia.gpu-0.25" / "kernel.json").read_text()) == want


def test_installing_again_removes_what_is_no_longer_offered(
    a_manager: SizedKernelSpecManager, make_manager: Callable[..., SizedKernelSpecManager], tmp_path: Path
) -> None:
    install_sizes(a_manager, tmp_path / "out")
    (tmp_path / "out" / "stranger.gpu-9").mkdir()
    done = install_sizes(make_manager(presets=["0.5"]), tmp_path / "out")
    assert {path.name for path in done.removed} == {"julia.gpu-0.25", "julia.gpu-1", "julia.gpu-0.25-low"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"julia.gpu-0.5", "stranger.gpu-9"}


def test_somebody_elses_kernelspec_is_not_overwritten(a_manager: SizedKernelSpecManager, tmp_path: Path) -> None:
    theirs = tmp_path / "out" / "julia.gpu-1"
    theirs.mkdir(parents=True)
    (theirs / "kernel.json").write_text("{}")
    with pytest.raises(KernelSpecFileError, match="another program's kernelspec"):
        install_sizes(a_manager, tmp_path / "out")
    assert (theirs / "kernel.json").read_text() == "{}"


def test_a_folder_that_cannot_be_written_is_named(a_manager: SizedKernelSpecManager, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(KernelSpecFileError, match=str(tmp_path / "out")):
        install_sizes(a_manager, tmp_path / "out")


def test_files_written_here_are_not_a_base_of_more_sizes(
    a_manager: SizedKernelSpecManager, kernels_folder: Path
) -> None:
    before = list(a_manager.find_kernel_specs())
    install_sizes(a_manager, kernels_folder)
    assert sorted(a_manager.find_kernel_specs()) == sorted(before)


def test_the_packaged_files_are_the_default_presets_of_python3() -> None:
    want = sorted(size.name for size in SizedKernelSpecManager().offered_sizes() if size.base == "python3")
    assert [path.name for path in PACKAGED] == want


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.name)
def test_a_packaged_file_asks_for_what_its_name_says(path: Path) -> None:
    packaged = json.loads((path / "kernel.json").read_text())
    want = SizedKernelSpecManager().get_kernel_spec(path.name)
    assert packaged["argv"] == ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    for stanza in ("kernel_provisioner", "aliquot"):
        assert packaged["metadata"][stanza] == want.metadata[stanza]
    assert packaged["display_name"].rsplit(" · ")[1:] == want.display_name.rsplit(" · ")[1:]
