"""The probe of a driver's habits, on the software GPU.

Each sub-command answers, and reports a driver that differs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gpu_probes  # noqa: E402

Findings = list[dict[str, Any]]


@pytest.fixture(scope="module")
def the_probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpu_probes.compile_probe(tmp_path_factory.mktemp("probe") / "gpu_probe", "-Wall", "-Wextra", "-Werror")


@pytest.fixture
def ask(the_probe: Path, tmp_path: Path) -> Iterator[Callable[..., Findings]]:
    """Run a sub-command on a software GPU of its own: ``ask("vmm", MEMORY="1GiB")``."""
    driver = paths.softgpu_driver()
    state = Path("/dev/shm") / f"aq-probe-{os.getpid()}"

    def run(command: str, *arguments: str, **machine: str) -> Findings:
        settings = {"STATE": str(state), "MEMORY": "192MiB", **machine}
        env = {**os.environ, **{f"ALIQUOT_SOFTGPU_{name}": value for name, value in settings.items()}}
        done = subprocess.run(
            [str(the_probe), str(driver.cuda), command, *arguments],
            env={**env, "ALIQUOT_BUILTINS": str(gpu_probes.BUILTINS)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    yield run
    shutil.rmtree(state, ignore_errors=True)
    for left in state.parent.glob(f"{state.name}*"):
        left.unlink(missing_ok=True)


def test_every_address_that_the_driver_hands_out_is_an_export(ask: Callable[..., Findings], tmp_path: Path) -> None:
    names = gpu_probes.write_names(tmp_path / "names")
    before, exports, after = ask("resolver", str(names))
    assert (before["when"], after["when"]) == ("before cuInit", "with a context")
    assert before["answers"] == after["answers"] > 1000
    assert before["not_exported_names"] == after["not_exported_names"] == exports["not_in_the_table_names"] == []


def test_an_export_that_the_table_lacks_is_named(ask: Callable[..., Findings], tmp_path: Path) -> None:
    names = gpu_probes.write_names(tmp_path / "names")
    names.write_text(names.read_text().replace("cuMemAlloc_v2\n", ""))
    before, exports, _ = ask("resolver", str(names))
    assert exports["not_in_the_table_names"] == ["cuMemAlloc_v2"]
    assert before["not_exported_names"] == ["cuMemAlloc"], "its address is that of cuMemAlloc_v2, which is not known"


def test_chunks_are_timed_by_size(ask: Callable[..., Findings]) -> None:
    found = ask("vmm")
    costs = {one["chunk_mib"]: one for one in found if one["probe"] == "vmm"}
    assert list(costs) == [2, 64, 256, 1024]
    assert all(costs[2][f"{step}_us"] >= 0 for step in ("create", "map", "access", "unmap", "release"))
    assert costs[256]["error"] == "the device has no room for two"


def test_a_free_of_nothing_does_not_wait_for_a_kernel(ask: Callable[..., Findings]) -> None:
    free_zero, flags, _ = ask("free-zero")
    assert free_zero["kernel_still_runs"]
    assert flags["kernel_still_runs"]
    assert free_zero["code"] == flags["code"] == 0


def test_an_ended_context_is_refused_and_not_a_crash(ask: Callable[..., Findings]) -> None:
    (found,) = ask("contexts")
    assert (found["answered_as_alive"], found["refused"], found["last_code"]) == (0, 50, 201)


def test_a_full_device_still_makes_what_a_move_needs(ask: Callable[..., Findings]) -> None:
    found = {(one["made"], one.get("mib", 0)): one for one in ask("full")}
    assert found["memory", 192]["left_bytes"] == 0
    assert found["streams", 0]["got"] == 16
    assert found["events", 0]["got"] == 1024
    assert found["a registration of host memory", 512]["code"] == 0


def test_what_a_full_device_refuses_is_counted(ask: Callable[..., Findings]) -> None:
    found = {one["made"]: one for one in ask("full", FAULTS="cuStreamCreate:3=2")}
    assert (found["streams"]["got"], found["streams"]["code"]) == (2, 2)


def test_a_graph_works_on_after_other_memory_came_to_its_address(ask: Callable[..., Findings]) -> None:
    assert [(one["launch"], one["end"], one["wrong_words"]) for one in ask("graph")] == [(0, 0, 0)] * 3


def test_nvml_tells_both_versions_with_and_without_memory(ask: Callable[..., Findings]) -> None:
    found = {one["when"]: one for one in ask("nvml", str(paths.softgpu_driver().nvml))}
    taken = found["allocated"]["bytes"]
    assert taken > 0
    for version in ("v1_used", "v2_used"):
        assert found["with memory"][version] - found["with a context"][version] == taken


def test_host_memory_has_a_type_while_it_is_registered(ask: Callable[..., Findings]) -> None:
    codes = {one["memory"]: one["code"] for one in ask("pointers") if "memory" in one}
    assert codes == {"host, never registered": 1, "host, registered": 0, "host, no longer registered": 1}


def test_events_between_launches_are_timed(ask: Callable[..., Findings]) -> None:
    found = ask("events")
    assert [one["overlapping"] for one in found] == [0, 1]
    assert all(one["launch_us"] > 0 and one["event_each_us"] > 0 for one in found)


def test_a_step_of_short_launches_is_timed(ask: Callable[..., Findings]) -> None:
    (found,) = ask("steps", "50", LAUNCH_NS="1000")
    assert 200 <= found["step_us"] <= found["p95_us"], "200 launches of a microsecond each"


def test_a_call_that_fails_is_told_with_its_code(ask: Callable[..., Findings]) -> None:
    (found,) = ask("graph", FAULTS="cuMemAddressReserve:1=2")
    assert found["error"] == "CU(cuMemAddressReserve) answered 2"
    assert found["at"].startswith("graph.c:")
