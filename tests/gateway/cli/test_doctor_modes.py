"""`aliquot doctor` on the driver's settings: the compute mode and the persistence of each device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_aliquot.gateway.doctor.deployment import Deployment
from jupyter_aliquot.gateway.doctor.nvidia import driver_modes
from jupyter_aliquot.gateway.doctor.runner import FAIL, OK, WARN
from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_driver, softgpu_state_path

TO_DEFAULT = "sudo nvidia-smi -i 0 -c DEFAULT"
SET_EXCLUSIVE = """
import ctypes, sys
nvml = ctypes.CDLL(sys.argv[1])
device = ctypes.c_void_p()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceSetComputeMode(device, 3) == 0
"""
PATIENCE_SECONDS = 60.0
for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root sets a compute mode")


@pytest.mark.parametrize(
    ("mode", "is_persistent", "want"),
    [
        ("default", True, [("compute mode", OK, "")]),
        ("exclusive", True, [("compute mode", FAIL, TO_DEFAULT)]),
        ("prohibited", True, [("compute mode", FAIL, TO_DEFAULT)]),
        ("default", False, [("compute mode", OK, ""), ("persistence", WARN, "sudo nvidia-smi -i 0 -pm 1")]),
        ("", None, []),
    ],
)
def test_a_mode_that_keeps_kernels_out_is_told_with_its_command(
    mode: str, is_persistent: bool | None, want: list[tuple[str, str, str]]
) -> None:
    device: Any = SimpleNamespace(index=0, compute_mode=mode, persistent=is_persistent)
    found = driver_modes([device])
    assert [(one.about, one.state) for one in found] == [(about, state) for about, state, _ in want]
    assert all(remedy in one.remedy for one, (_, _, remedy) in zip(found, want, strict=True))


@pytest.fixture
def an_exclusive_gpu(an_agent: Any, a_runtime_folder: Path) -> Path:
    """Return the runtime folder of an agent whose device is exclusive, after the agent has seen it."""
    [before] = query("status", runtime_dir=a_runtime_folder)["devices"]
    assert (before["compute_mode"], before["persistent"]) == ("default", True)
    state = softgpu_state_path(RuntimeDir(a_runtime_folder))
    environment = {**os.environ, "ALIQUOT_SOFTGPU_STATE": str(state)}
    command = [sys.executable, "-c", SET_EXCLUSIVE, str(softgpu_driver().nvml)]
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while query("status", runtime_dir=a_runtime_folder)["devices"][0]["compute_mode"] != "exclusive":
        assert time.monotonic() < deadline, "the agent looks at its devices every second"
        time.sleep(0.05)
    return a_runtime_folder


@for_root
def test_the_doctor_tells_the_mode_that_nvml_answers(run_aliquot: Any, an_exclusive_gpu: Path) -> None:
    done = run_aliquot("doctor", "--json")
    [found] = [one for one in json.loads(done.stdout)["findings"] if one["about"] == "compute mode"]
    assert (done.returncode, found["state"], found["remedy"]) == (1, FAIL, TO_DEFAULT)
    assert found["found"].startswith("gpu0: its compute mode lets one process use it at a time")


@for_root
def test_the_doctor_of_a_deployment_asks_the_agent_of_its_folder(
    an_exclusive_gpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Deployment("root", "http://127.0.0.1:890", True, Path("/"))
    monkeypatch.setattr(here, "_runtime", lambda: RuntimeDir(an_exclusive_gpu))
    [found] = here.check_driver_modes()
    assert (found.state, found.remedy) == (FAIL, TO_DEFAULT)
    monkeypatch.setattr(here, "_runtime", lambda: RuntimeDir(an_exclusive_gpu / "none"))
    assert here.check_driver_modes() == [], "check_sockets tells of an agent that does not answer"
