"""`aliquot sizes` lists what the server offers, and writes it where clients without a server look."""

from __future__ import annotations

import json
from pathlib import Path


def test_the_presets_are_listed(run_aliquot) -> None:
    done = run_aliquot("sizes")
    assert done.returncode == 0
    assert "python3.gpu-0.25 " in done.stdout
    assert "<base>.gpu-<gpus>" in done.stdout


def test_json_has_one_object_a_size(run_aliquot) -> None:
    sizes = {size["name"]: size for size in json.loads(run_aliquot("sizes", "--json").stdout)}
    assert sizes["python3.gpu-0.25-low"]["workload_class"] == "opportunistic"
    assert sizes["python3.gpu-0.5"]["gpus"] == 0.5


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
