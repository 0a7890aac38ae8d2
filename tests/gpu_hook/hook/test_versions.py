"""A hook beside an agent of the version before its own: kernels outlive upgrades, and downgrades."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.protocol.codec import VERSION, Hello, HookPage, Role, SelfCheck, SelfCheckResult

MIB = 1 << 20
UUID = "10" * 16
DOWN_TO_1 = list(range(VERSION, 0, -1))


def versions(agent: Any, role: Role) -> list[int]:
    return [one.version for one in agent.heard if isinstance(one, Hello) and one.role is role]


@pytest.fixture
def an_old_agent(a_null_node: Any) -> Any:
    agent = a_null_node.grant((UUID, 64 * MIB))
    agent.version = 1
    return agent


def test_a_hook_asks_for_its_own_version_first(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    assert a_null_node.program()("begin()") == 0
    agent.process()
    assert versions(agent, Role.PROCESS) == [VERSION]


def test_a_hook_speaks_version_1_with_an_agent_that_knows_no_other(a_null_node: Any, an_old_agent: Any) -> None:
    program = a_null_node.program()
    assert program("begin()") == 0
    _, pointer = program(f"alloc({10 * MIB})")
    assert an_old_agent.process().word(0, HookPage.CHARGED) == 10 * MIB
    assert program(f"free({pointer})") == 0
    an_old_agent.recall(an_old_agent.process(), 1)
    an_old_agent.wait_for(lambda: an_old_agent.lent() < 64 * MIB)
    assert versions(an_old_agent, Role.PROCESS) == DOWN_TO_1


def test_a_hook_goes_on_when_the_agent_is_replaced_by_an_older_one_and_back(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    assert program("begin()") == 0
    program(f"alloc({10 * MIB})")
    for version in (1, VERSION):
        agent.stop()
        agent.version = version
        agent.start()
        hello = agent.process().hello
        assert (hello.version, hello.devices[0].charged_bytes) == (version, 10 * MIB)
    assert versions(agent, Role.PROCESS) == [VERSION, *DOWN_TO_1, VERSION]


def test_an_observer_and_the_self_check_speak_version_1_too(a_node: Any) -> None:
    agent = a_node.grant((UUID, 64 * MIB))
    agent.version = 1
    start = paths.native_dir() / "bin" / "aliquot-kernel-start"
    ask = "import json, pynvml; pynvml.nvmlInit(); print(json.dumps(pynvml.nvmlDeviceGetCount()))"
    done = subprocess.run(
        [str(start), sys.executable, "-c", ask],
        env=a_node.hooked_env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == 2
    agent.wait_for(lambda: any(isinstance(one, SelfCheckResult) for one in agent.heard))
    (result,) = (one for one in agent.heard if isinstance(one, SelfCheckResult))
    assert SelfCheck.ALL in result.passed
    assert versions(agent, Role.CHECK) == versions(agent, Role.OBSERVER) == DOWN_TO_1
