"""`aliquot sizes`: the list of a server's sizes, and files of them for clients without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from jupyter_aliquot.gateway.reports.status import Size


def test_the_presets_are_listed(run_aliquot) -> None:
    done = run_aliquot("sizes")
    assert done.returncode == 0
    assert "python3.gpu-0.25 " in done.stdout
    assert "<base>.gpu-<gpus>" in done.stdout


def test_json_has_one_object_a_size(run_aliquot) -> None:
    sizes = {size["name"]: size for size in json.loads(run_aliquot("sizes", "--json").stdout)}
    assert sizes["python3.gpu-0.25-low"]["priority"] == "low"
    assert sizes["python3.gpu-0.5"]["gpus"] == 0.5
    assert all(set(size) == set(Size.__annotations__) for size in sizes.values()), "the fields are those of REST"


def test_the_administrators_configuration_is_read(run_aliquot, an_environment) -> None:
    settings = Path(an_environment["HOME"]) / ".jupyter"
    settings.mkdir()
    (settings / "jupyter_server_config.py").write_text("c.Aliquot.presets = ['0.75']\n")
    names = [size["name"] for size in json.loads(run_aliquot("sizes", "--json").stdout)]
    assert names == ["python3.gpu-0.75"]


def test_installed_sizes_name_our_provisioner(run_aliquot, a_runtime_folder: Path) -> None:
    done = run_aliquot("sizes", "--install", "--prefix", str(a_runtime_folder))
    assert done.returncode == 0, done.stderr
    written = a_runtime_folder / "share/jupyter/kernels/python3.gpu-0.25/kernel.json"
    assert f"wrote {written.parent}" in done.stdout
    stanza = json.loads(written.read_text())["metadata"]["kernel_provisioner"]
    assert stanza["provisioner_name"] == "aliquot"
    assert stanza["config"]["gpus"] == "0.25"


def test_a_folder_that_cannot_be_written_is_said(run_aliquot, a_runtime_folder: Path) -> None:
    (a_runtime_folder / "share").write_text("not a folder")
    done = run_aliquot("sizes", "--install", "--prefix", str(a_runtime_folder))
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr


def kernels_in(folder: Path) -> set[str]:
    return {path.name for path in (folder / "share/jupyter/kernels").iterdir()}


def test_a_size_that_is_no_preset_is_installed_by_its_name_and_stays(run_aliquot, a_runtime_folder: Path) -> None:
    prefix = ("--prefix", str(a_runtime_folder))
    done = run_aliquot("sizes", "--install", "0.37-8g", *prefix)
    assert done.returncode == 0, done.stderr
    assert kernels_in(a_runtime_folder) == {"python3.gpu-0.37-8g"}, "without the presets, which were not named"
    assert run_aliquot("sizes", "--install", "python3.gpu-2.5-low", *prefix).returncode == 0
    assert run_aliquot("sizes", "--install", *prefix).returncode == 0
    assert kernels_in(a_runtime_folder) >= {"python3.gpu-0.37-8g", "python3.gpu-2.5-low", "python3.gpu-0.25"}
    written = json.loads((a_runtime_folder / "share/jupyter/kernels/python3.gpu-0.37-8g/kernel.json").read_text())
    want = {"gpus": "0.37", "priority": "normal", "memory_limit": "8GiB"}
    assert written["metadata"]["kernel_provisioner"]["config"] == want


def test_clients_that_read_the_disk_find_an_installed_size(run_aliquot, a_runtime_folder: Path, monkeypatch) -> None:
    assert run_aliquot("sizes", "--install", "0.37-8g", "--prefix", str(a_runtime_folder)).returncode == 0
    monkeypatch.setenv("JUPYTER_PATH", str(a_runtime_folder / "share/jupyter"))
    spec = KernelSpecManager().get_kernel_spec("python3.gpu-0.37-8g")
    assert spec.display_name.endswith("0.37 GPU · 8 GiB")


@pytest.mark.parametrize(
    ("words", "want_code", "want"),
    [
        (("--install", "0.333"), 2, "steps of 0.01"),
        (("--install", "python3"), 2, "'python3.gpu-python3'"),
        (("--install", "nothere.gpu-0.5"), 1, "no kernelspec named 'nothere'"),
        (("--install", "0.5", "python3.gpu-0"), 2, "python3.gpu-0"),
        (("0.5",), 2, "names are for --install"),
        (("--user",), 2, "Add --install"),
    ],
)
def test_a_wrong_name_is_said_and_nothing_is_written(
    run_aliquot, a_runtime_folder: Path, words: tuple[str, ...], want_code: int, want: str
) -> None:
    more = ("--prefix", str(a_runtime_folder)) if words[0] == "--install" else ()
    done = run_aliquot("sizes", *words, *more)
    assert (done.returncode, want in done.stderr) == (want_code, True), done.stderr
    assert not (a_runtime_folder / "share").exists()


def test_the_memory_of_a_size_is_told_in_bytes_where_an_agent_knows_the_device(run_aliquot, an_agent) -> None:
    assert "256.0 MiB" in next(line for line in run_aliquot("sizes").stdout.splitlines() if "gpu-0.25 " in line)
