from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.launch_spec import KERNEL_ID_VARIABLE, LaunchSpec
from jupyter_aliquot.provisioner.runtime.base import Launch, exit_status
from jupyter_aliquot.provisioner.runtime.process import ProcessRuntime, is_running
from jupyter_aliquot.provisioner.terminations import ProcessEnd


def a_spec(*argv: str, **rest: Any) -> LaunchSpec:
    env = ((KERNEL_ID_VARIABLE, f"k-{os.getpid()}"), ("PATH", os.environ["PATH"]))
    return LaunchSpec("k1", argv, env, program=argv[0], **rest)


def test_a_process_is_polled_signalled_and_waited_for() -> None:
    async def scene() -> None:
        runtime = ProcessRuntime()
        process = await runtime.create(Launch(a_spec("/bin/sleep", "100")))
        assert await runtime.poll(process) is None
        waiting = asyncio.ensure_future(runtime.wait(process))
        await runtime.signal(process, signal.SIGTERM)
        assert await asyncio.wait_for(waiting, 30) == -signal.SIGTERM
        await runtime.signal(process, signal.SIGTERM)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("code", "want_end"),
    [("raise SystemExit(3)", ProcessEnd(exit_code=3)), ("import os; os.abort()", ProcessEnd(signal=signal.SIGABRT))],
)
def test_how_it_ended_is_known_after_it(code: str, want_end: ProcessEnd) -> None:
    async def scene() -> None:
        runtime = ProcessRuntime()
        process = await runtime.create(Launch(a_spec(sys.executable, "-c", code)))
        assert await runtime.wait(process) == exit_status(want_end)
        assert await runtime.ending(process) == want_end
        assert await ProcessRuntime().ending(process) == ProcessEnd(), "another's child: that it ended is all we know"

    asyncio.run(scene())


def test_the_whole_group_gets_the_signal(until: Any) -> None:
    async def scene() -> None:
        runtime = ProcessRuntime()
        code = "import subprocess; print(subprocess.Popen(['/bin/sleep', '100']).pid, flush=True); input()"
        process = await runtime.create(Launch(a_spec(sys.executable, "-c", code), {"stdout": -1, "stdin": -1}))
        output = runtime._children[process].stdout
        assert output is not None
        child = int(output.readline())
        await runtime.remove(process)
        children.append(child)

    children: list[int] = []
    asyncio.run(scene())
    until(lambda: not os.path.exists(f"/proc/{children[0]}"))


def test_another_process_with_the_same_pid_is_not_ours() -> None:
    async def scene() -> None:
        runtime = ProcessRuntime()
        process = await runtime.create(Launch(a_spec("/bin/sleep", "100")))
        assert is_running(process)
        impostor = replace(process, start_time_ticks=process.start_time_ticks + 1)
        assert not is_running(impostor)
        await runtime.signal(impostor, signal.SIGKILL)
        assert await runtime.poll(process) is None
        await runtime.remove(process)

    asyncio.run(scene())


def test_what_runs_is_found_by_asking() -> None:
    async def scene() -> None:
        process = await (runtime := ProcessRuntime()).create(Launch(a_spec("/bin/sleep", "100")))
        kernel_id, deadline = f"k-{os.getpid()}", time.monotonic() + 60
        found = dict[str, int]()
        while kernel_id not in found:  # for a moment of its exec a process shows no environment
            assert time.monotonic() < deadline
            found = {kernel.kernel_id: kernel.pid for kernel in await ProcessRuntime().list()}
        assert found[kernel_id] == process.pid
        await runtime.remove(process)
        assert kernel_id not in {kernel.kernel_id for kernel in await ProcessRuntime().list()}

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("spec", "want_message"),
    [
        (a_spec("/nonexistent/program"), "'/nonexistent/program' cannot be started: not found"),
        (a_spec("/etc/passwd"), "it is not executable"),
        (a_spec(""), "argv in the kernelspec's kernel.json is empty"),
        (a_spec("no-such-program"), "'no-such-program' cannot be started: not found"),
        (a_spec("/bin/sleep", cwd="/nonexistent"), "there is no such folder"),
    ],
)
def test_a_launch_that_fails_names_the_cause(spec: LaunchSpec, want_message: str) -> None:
    with pytest.raises(LaunchError, match=want_message):
        asyncio.run(ProcessRuntime().create(Launch(spec)))
