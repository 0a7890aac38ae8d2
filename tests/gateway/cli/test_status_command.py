"""`aliquot status`: it asks only the agent, and gives advice when no agent answers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.terminal.tables import warnings
from jupyter_aliquot.gpu_hook.client.client import read_status


def test_without_an_agent_it_says_how_to_start_one(run_aliquot) -> None:
    done = run_aliquot("status")
    assert done.returncode == 1
    assert "start one with: aliquot agent" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_json_stays_json_without_an_agent(run_aliquot) -> None:
    done = run_aliquot("status", "--json")
    assert done.returncode == 1
    assert "start one with: aliquot agent" in json.loads(done.stdout)["message"]


def test_a_stale_socket_is_named(run_aliquot, a_runtime_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(a_runtime_folder / "agent.sock"))
    done = run_aliquot("status")
    assert done.returncode == 1
    assert "stale" in done.stderr


@pytest.fixture
def a_reserved_kernel(an_agent, a_runtime_folder: Path) -> Iterator[None]:
    """Hold a reservation at the agent.

    Without its holder a reservation ends after some seconds, and a command takes longer than that
    on a busy machine.
    """
    size = {"hundredths": 25, "memory_limit": None, "workload_class": "production"}
    asked = {"id": 1, "op": "reserve", "kernel_id": "k1", "owner": "alice", **size}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(a_runtime_folder / "agent.sock"))
        connection.sendall(json.dumps({**asked, "label": "training [/old] [red]\x1b[2J.ipynb"}).encode() + b"\n")
        assert json.loads(connection.makefile("rb").readline())["ok"]
        yield


def test_devices_and_kernels_are_shown(run_aliquot, a_reserved_kernel) -> None:
    shown = run_aliquot("status")
    assert shown.returncode == 0, shown.stderr
    assert "Aliquot Software GPU" in shown.stdout
    assert "training [/old] [red]\ufffd[2J.ipynb" in shown.stdout, "a name is neither markup nor a terminal's command"
    assert "compiled GPU code is timed, not executed" in shown.stdout
    told = json.loads(run_aliquot("status", "--json").stdout)
    assert set(told) >= {"node", "driver", "enforcer", "devices", "kernels"}
    assert told["devices"][0]["memory_bytes"] == 1 << 30


@pytest.mark.parametrize("an_agent", [["--library-dir", "{folder}/libraries"]], indirect=True)
def test_a_missing_library_of_the_hook_is_told(run_aliquot, an_agent, a_runtime_folder: Path) -> None:
    assert "memory limits by hook" in run_aliquot("status").stdout
    [library] = a_runtime_folder.glob("libraries/*/shim/libcuda.so.1")
    library.unlink()
    shown = run_aliquot("status").stdout
    assert "memory limits are NOT held" in shown
    assert f"The hook cannot hold memory limits: {library} is missing or cannot be read. Install" in shown
    assert str(library) in json.loads(run_aliquot("status", "--json").stdout)["hook_problem"]


def test_a_kernel_that_failed_its_self_check_is_a_line_of_its_own() -> None:
    kernel = {
        **{"kernel_id": "k1", "owner": "ada", "label": "a.ipynb", "hundredths": 25, "memory_limit": None},
        **{"workload_class": "production", "generation": 1, "attributes": {}, "created": 0.0, "pids": [1]},
        **{"interception": "failed: libcuda.so.1: no such file", "ending": False, "devices": []},
    }
    node = {"node": "n", "driver": "nvidia", "enforcer": "hook", "devices": [], "connections": 1}
    assert warnings(read_status({**node, "kernels": [kernel]})) == [
        "kernel a.ipynb: the hook does not hold its memory limit: failed: libcuda.so.1: no such file"
    ]


def test_another_runtime_folder_can_be_asked(run_aliquot, an_agent, an_environment, a_runtime_folder: Path) -> None:
    an_environment["ALIQUOT_RUNTIME_DIR"] = "/tmp/aq-nobody-is-here"
    assert run_aliquot("status").returncode == 1
    assert run_aliquot("status", "--runtime-dir", str(a_runtime_folder)).returncode == 0


def test_what_goes_past_the_hook_is_a_line_of_its_own() -> None:
    escaped = {"pid": 77, "name": "py\x1b[2J", "uuid": "GPU-a0", "index": 0, "used_bytes": 3 << 30}
    late = {**escaped, "pid": 78, "charged_bytes": 1 << 30, "why": "past its charge"}
    escaped |= {"charged_bytes": 0, "why": "not registered"}
    kernel = {
        **{"kernel_id": "k1", "owner": "ada", "label": "a.ipynb", "hundredths": 25, "memory_limit": None},
        **{"workload_class": "production", "generation": 1, "attributes": {}, "created": 0.0, "interception": "holds"},
        **{"pids": [1], "ending": False, "devices": [], "enforcement": "failed: only root may"},
        "unhooked_processes": [escaped, late],
    }
    node = {"node": "n", "driver": "nvidia", "enforcer": "driver", "devices": [], "connections": 1}
    status = read_status({**node, "kernels": [kernel], "foreign_processes": [{**escaped, "used_bytes": None}]})
    assert warnings(status) == [
        "kernel a.ipynb: process 77 (py\ufffd[2J) has 3.0 GiB on gpu0: not registered",
        "kernel a.ipynb: process 78 (py\ufffd[2J) has 3.0 GiB on gpu0, 1.0 GiB of it counted: past its charge",
        "kernel a.ipynb: limits by driver failed: only root may",
        "no kernel's: process 77 (py\ufffd[2J) has memory on gpu0: not registered",
    ]
