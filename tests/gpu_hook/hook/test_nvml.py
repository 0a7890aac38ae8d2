"""NVML under the hook: memory, processes and load are the kernel's, all else the device's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Enforcer, Hello, Role

MIB = 1 << 20


class Reader:
    """The program nvml_program.py in a process of its own."""

    def __init__(self, env: dict[str, str]) -> None:
        program = str(Path(__file__).with_name("nvml_program.py"))
        self.process = subprocess.Popen(
            [sys.executable, program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, expression: str) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate(timeout=20)


@pytest.fixture
def read(request: pytest.FixtureRequest) -> Any:
    def start(env: dict[str, str]) -> Reader:
        reader = Reader(env)
        request.addfinalizer(reader.close)
        return reader

    return start


@pytest.fixture
def granted(a_node: Any, read: Any) -> tuple[Any, Any]:
    """Return the agent, with 64 MiB of one of two devices, and an NVML client of the kernel."""
    agent = a_node.grant((uuids(read(a_node.plain_env)("facts()"))[0], 64 * MIB))
    reader = read(a_node.hooked_env)
    reader("facts()")
    return agent, reader


def uuids(rows: list[Any]) -> list[str]:
    return [row[2].removeprefix("GPU-").replace("-", "") for row in rows]


def hellos(agent: Any) -> list[Role]:
    return [one.role for one in agent.heard if isinstance(one, Hello)]


def test_memory_is_the_quota_and_what_the_whole_kernel_uses(a_node: Any, read: Any, granted: Any) -> None:
    agent, reader = granted
    first = reader("facts()")
    assert first[0][:2] == [[64 * MIB, 0, 64 * MIB], [64 * MIB, 0, 64 * MIB, 0]]
    for connection in agent.connections:
        agent.write(connection, 0, AgentPage.CHARGED, 24 * MIB)
    assert reader("facts()")[0][:2] == [[64 * MIB, 24 * MIB, 40 * MIB], [64 * MIB, 24 * MIB, 40 * MIB, 0]]
    assert [row[2:] for row in first] == [row[2:] for row in read(a_node.plain_env)("facts()")]


def test_a_device_that_was_not_granted_is_full_and_empty_of_processes(a_node: Any, granted: Any) -> None:
    _, reader = granted
    other = a_node.outsider()
    assert other("begin(1)") == 0
    other(f"alloc({8 * MIB})")
    want_full = [256 * MIB, 256 * MIB, 0]
    assert reader("facts()")[1][:2] == [want_full, [*want_full, 0]]
    assert reader("[processes('Compute', 1), load(1)]") == [[], [0, 0]]


def test_processes_are_the_kernels_with_their_own_pids_and_charged_bytes(a_node: Any, read: Any, granted: Any) -> None:
    agent, reader = granted
    outsider = a_node.outsider()
    assert outsider("begin()") == 0
    outsider(f"alloc({8 * MIB})")
    assert read(a_node.plain_env)("processes()") == [[outsider.pid, 8 * MIB]]
    assert reader("processes()") == []
    agent.set_processes((5001, 11, 0, 6 * MIB), (5002, 12, 0, 0), (5002, 12, 1, MIB))
    want = [[11, 6 * MIB], [12, 0]]
    assert reader("processes()") == want
    assert reader("details()") == [0, 2, want]
    assert reader("[processes('Graphics'), processes('MPSCompute'), details(1), details(2)]") == [
        [],
        [],
        [0, 0, []],
        [0, 0, []],
    ]


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_lists_that_do_not_fit_say_how_long_they_are(granted: Any, version: str) -> None:
    agent, reader = granted
    agent.set_processes((5001, 11, 0, 6 * MIB), (5002, 12, 0, 0))
    ask = f"[ask_list('Compute', {version!r}, 0, room)[:2] for room in (0, 1, 2)]"
    assert reader(ask) == [[7, 2], [7, 2], [0, 2]]
    assert reader("[details(room=1)[:2], details(version=2)[0], details(mode=3)[0]]") == [[7, 2], 25, 2]


def test_a_table_in_the_middle_of_a_change_is_not_shown(granted: Any) -> None:
    agent, reader = granted
    agent.set_processes((5001, 11, 0, 6 * MIB), sequence=3)
    assert reader("processes()") == []
    agent.set_processes((5001, 11, 0, 6 * MIB), sequence=4)
    assert reader("processes()") == [[11, 6 * MIB]]


def test_measured_work_is_the_kernels_own(a_node: Any, read: Any, granted: Any) -> None:
    agent, reader = granted
    own, other = a_node.outsider(), a_node.outsider()
    for one in (own, other):
        assert one("begin()") == 0
        assert one("spin(50)") == 0
    assert read(a_node.plain_env)("samples()") == sorted([own.pid, other.pid])
    assert reader("samples()") == []
    agent.set_processes((own.pid, 11, 0, MIB), (own.pid, 11, 1, MIB))
    assert reader("samples()") == [11]
    assert reader("[sample_infos(room=0)[:2], sample_infos(version=2)[0]]") == [[7, 1], 25]


def test_load_is_the_kernels_own(granted: Any) -> None:
    agent, reader = granted
    assert reader("load()") == [0, 0]
    agent.write_half(0, AgentPage.UTILIZATION, 37)
    assert reader("load()") == [37, 0]


def test_memory_that_the_driver_limits_is_shown_as_the_driver_shows_it(a_node: Any, read: Any, granted: Any) -> None:
    agent, reader = granted
    agent.write_half(0, AgentPage.ENFORCER, Enforcer.DRIVER)
    assert reader("facts()")[0] == read(a_node.plain_env)("facts()")[0]
    agent.set_processes((5001, 11, 0, 6 * MIB))
    assert reader("processes()") == [[11, 6 * MIB]]


def test_processes_of_a_kernel_under_mps_are_in_its_list(granted: Any) -> None:
    agent, reader = granted
    agent.write_half(0, AgentPage.ENFORCER, Enforcer.MPS)
    agent.set_processes((5001, 11, 0, 6 * MIB))
    assert reader("[processes(), processes('MPSCompute'), details(2)[2]]") == [[], [[11, 6 * MIB]], [[11, 6 * MIB]]]


def test_a_kernel_reads_memory_limits_and_sets_none(a_node: Any, read: Any, granted: Any, tmp_path: Path) -> None:
    _, reader = granted
    outsider = a_node.outsider(ALIQUOT_SOFTGPU_CGROUP=str(tmp_path))
    assert outsider("begin()") == 0
    outsider(f"alloc({8 * MIB})")
    want_no_permission, no_limit = 4, 2**64 - 1
    assert reader(f"set_limits({str(tmp_path)!r}, {MIB})") == want_no_permission
    assert reader(f"limits({str(tmp_path)!r})") == [0, 0, no_limit, 8 * MIB]


@pytest.mark.parametrize("enforcer", [Enforcer.HOOK, Enforcer.DRIVER])
def test_a_moved_kernel_finds_its_device_by_the_name_of_the_one_before(
    a_node: Any, read: Any, enforcer: Enforcer
) -> None:
    """CUDA_VISIBLE_DEVICES goes on to name that, in the kernel and in its children."""
    plain = read(a_node.plain_env)
    before, now = [row[2] for row in plain("facts()")]
    agent = a_node.grant((uuids(plain("facts()"))[1], 64 * MIB))
    reader = read({**a_node.hooked_env, "ALIQUOT_VISIBLE_DEVICES": before})
    reader("facts()")
    agent.write_half(0, AgentPage.ENFORCER, enforcer)
    agent.write_half(0, AgentPage.UTILIZATION, 37)
    agent.set_processes((5001, 11, 0, 6 * MIB))
    there = plain(f"by_name({now!r})")
    assert reader(f"by_name({before!r})") == reader(f"by_name({now!r})") == there
    listed, own = reader("facts()")
    assert listed[:2] == own[:2] == (own if enforcer is Enforcer.HOOK else plain("facts()")[1])[:2]
    assert (listed[2], own[2]) == (before, now), "NVML lists the node's devices"
    assert reader("[load(0), load(1), processes('Compute', 0)]") == [[37, 0], [37, 0], [[11, 6 * MIB]]]
    assert read(a_node.plain_env)("facts()") == plain("facts()")


def test_a_kernel_that_is_where_it_began_finds_other_devices_by_their_names(a_node: Any, read: Any) -> None:
    plain = read(a_node.plain_env)
    own, other = [row[2] for row in plain("facts()")]
    a_node.grant((uuids(plain("facts()"))[0], 64 * MIB))
    for started in (own, f"{own},{other}"):
        reader = read({**a_node.hooked_env, "ALIQUOT_VISIBLE_DEVICES": started})
        for name in (own, other):
            assert reader(f"by_name({name!r})") == plain(f"by_name({name!r})")
        assert reader("facts()")[1][0] == [256 * MIB, 256 * MIB, 0]


def test_nvml_connects_as_an_observer_and_again_after_the_agent_came_back(granted: Any) -> None:
    agent, reader = granted
    assert hellos(agent) == [Role.OBSERVER]
    agent.stop()
    assert reader("facts()")[0][0] == [64 * MIB, 0, 64 * MIB]
    agent.start()
    agent.set_quota(0, 32 * MIB)
    agent.wait_for(lambda: reader("facts()")[0][0][0] == 32 * MIB)


def test_a_stopped_agent_is_waited_for_once(a_node: Any, read: Any) -> None:
    plain = read(a_node.plain_env)("facts()")
    agent = a_node.grant((uuids(plain)[0], 64 * MIB))
    agent.welcomes = False
    reader = read(a_node.hooked_env)
    assert [reader("facts()") for _ in range(3)] == [plain] * 3
    assert hellos(agent) == [Role.OBSERVER]


def test_without_an_agent_nvml_forwards(a_node: Any, read: Any) -> None:
    assert read(a_node.hooked_env)("facts()") == read(a_node.plain_env)("facts()")


def test_the_kill_switch_forwards(a_node: Any, read: Any) -> None:
    plain = read(a_node.plain_env)("facts()")
    agent = a_node.grant((uuids(plain)[0], 64 * MIB))
    assert read({**a_node.hooked_env, "ALIQUOT_HOOK": "off"})("facts()") == plain
    assert agent.heard == []


def test_without_a_real_library_nvml_says_that_it_is_not_found(a_node: Any, read: Any) -> None:
    reader = read({**a_node.hooked_env, "ALIQUOT_REAL_NVML": "/no/such/library"})
    output, _ = reader.process.communicate(timeout=20)
    assert json.loads(output) == [12, "NVML Shared Library Not Found"]
    assert "variable=ALIQUOT_REAL_NVML" in a_node.log.read_text()
