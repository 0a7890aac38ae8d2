"""NVML under the hook: memory is the kernel's, all else is the device's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from aliquot.gpu_hook.protocol import AgentPage, Hello, Role

MIB = 1 << 20
SCRIPT = """
import json, sys
import pynvml
try:
    pynvml.nvmlInit()
except pynvml.NVMLError as error:
    print(json.dumps([error.value, str(error)]), flush=True)
    sys.exit()
for line in sys.stdin:
    rows = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        v1 = pynvml.nvmlDeviceGetMemoryInfo(device)
        v2 = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
        rows.append([[v1.total, v1.used, v1.free], [v2.total, v2.used, v2.free, v2.reserved],
                     pynvml.nvmlDeviceGetUUID(device), pynvml.nvmlDeviceGetName(device)])
    print(json.dumps(rows), flush=True)
"""


class Reader:
    def __init__(self, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
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


def uuids(rows: list[Any]) -> list[str]:
    return [row[2].removeprefix("GPU-").replace("-", "") for row in rows]


def test_memory_is_the_quota_and_what_the_whole_kernel_uses(a_node: Any, read: Any) -> None:
    plain = read(a_node.plain_env).read()
    agent = a_node.grant((uuids(plain)[0], 64 * MIB))
    reader = read(a_node.hooked_env)
    first = reader.read()
    assert first[0][:2] == [[64 * MIB, 0, 64 * MIB], [64 * MIB, 0, 64 * MIB, 0]]
    for connection in agent.connections:
        agent.write(connection, 0, AgentPage.CHARGED, 24 * MIB)
    assert reader.read()[0][:2] == [[64 * MIB, 24 * MIB, 40 * MIB], [64 * MIB, 24 * MIB, 40 * MIB, 0]]
    assert [row[2:] for row in first] == [row[2:] for row in plain]
    assert first[1] == plain[1]


def test_nvml_connects_as_an_observer_and_again_after_the_agent_came_back(a_node: Any, read: Any) -> None:
    plain = read(a_node.plain_env).read()
    agent = a_node.grant((uuids(plain)[0], 64 * MIB))
    reader = read(a_node.hooked_env)
    reader.read()
    assert [one.role for one in agent.heard if isinstance(one, Hello)] == [Role.OBSERVER]
    agent.stop()
    assert reader.read()[0][0] == [64 * MIB, 0, 64 * MIB]
    agent.start()
    agent.set_quota(0, 32 * MIB)
    agent.wait_for(lambda: reader.read()[0][0][0] == 32 * MIB)


def test_without_an_agent_nvml_forwards(a_node: Any, read: Any) -> None:
    assert read(a_node.hooked_env).read() == read(a_node.plain_env).read()


def test_the_kill_switch_forwards(a_node: Any, read: Any) -> None:
    plain = read(a_node.plain_env).read()
    agent = a_node.grant((uuids(plain)[0], 64 * MIB))
    assert read({**a_node.hooked_env, "ALIQUOT_HOOK": "off"}).read() == plain
    assert agent.heard == []


def test_without_a_real_library_nvml_says_that_it_is_not_found(a_node: Any, read: Any) -> None:
    reader = read({**a_node.hooked_env, "ALIQUOT_REAL_NVML": "/no/such/library"})
    output, _ = reader.process.communicate(timeout=20)
    assert json.loads(output) == [12, "NVML Shared Library Not Found"]
    assert "variable=ALIQUOT_REAL_NVML" in a_node.log.read_text()
