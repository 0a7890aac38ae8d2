"""Kernels that run out of host memory, on real engines.

The message has numbers, and differs from that of a kill by hand.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from jupyter_aliquot.provisioner.containers.plan import ContainerLimits
from jupyter_aliquot.provisioner.resources import Bytes
from jupyter_aliquot.provisioner.terminations import EndingCode, read_ending

if TYPE_CHECKING:
    from tests.containers.kernels import ContainerKernels, StartedKernel, a_plan
else:
    from kernels import ContainerKernels, StartedKernel, a_plan

MIB = 1 << 20
LIMIT = Bytes(128 * MIB)


def a_small_kernel(kernels: ContainerKernels) -> StartedKernel:
    return kernels.run(a_plan(kernels.engine, limits=ContainerLimits(memory=LIMIT)))


def test_a_kernel_over_its_memory_is_ended_and_both_numbers_are_said(kernels: ContainerKernels) -> None:
    kernel = a_small_kernel(kernels)
    kernel.send("block = b'x' * (400 << 20)")
    end = kernels.ending(kernel)
    assert (end.signal, end.is_out_of_memory, end.memory_limit) == (signal.SIGKILL, True, LIMIT)
    assert end.memory_used is not None
    assert abs(end.memory_used - LIMIT) <= 2 * MIB
    ending = read_ending(end, None, 0.0)
    assert ending.code is EndingCode.OOM
    assert "of 128 MiB host memory" in ending.message


def test_a_kill_by_hand_is_no_lack_of_memory_even_where_a_child_lacked_it_before(kernels: ContainerKernels) -> None:
    kernel = a_small_kernel(kernels)
    child = "[sys.executable, '-c', 'block = b\"x\" * (400 << 20)']"
    assert kernel.execute(f"import subprocess, sys\nprint(subprocess.run({child}).returncode)") == "-9"
    memory = kernels.runtime._memory
    deadline = time.monotonic() + 60
    while (facts := memory.facts(kernel.process.container)) is not None and facts.killed_at is None:
        # The watching thread notices it when the child's parent does, or a moment later.
        assert time.monotonic() < deadline, "the child was ended for its memory"
        time.sleep(0.02)
    assert facts is not None
    assert facts.killed_at is not None
    # A long time ago.
    watched = memory._watched[kernel.process.container]
    watched.facts = type(facts)(facts.killed_at - 60, facts.peak, facts.limit)
    kernels.do(kernels.runtime.signal(kernel.process, signal.SIGKILL))
    end = kernels.ending(kernel)
    assert (end.signal, end.is_out_of_memory, end.memory_used) == (signal.SIGKILL, False, None)
    assert read_ending(end, None, 0.0).code is EndingCode.CRASH


def test_a_runtime_that_found_the_kernel_running_sees_its_lack_of_memory_too(kernels: ContainerKernels) -> None:
    """The runtime is that of a gateway that came after the one that started the kernel."""
    from jupyter_aliquot.provisioner.engine.runtime import ContainerRuntime
    from jupyter_aliquot.provisioner.engine.settings import ContainerSettings

    kernel = a_small_kernel(kernels)
    another = ContainerRuntime(ContainerSettings(kernels.engine.url))
    try:
        (process,) = kernels.do(another.list())
        assert kernels.do(another.poll(process)) is None
        kernel.send("block = b'x' * (400 << 20)")
        kernels.do(another.wait(process))
        end = kernels.do(another.ending(process))
        assert end is not None
        assert end.is_out_of_memory
    finally:
        another.close()


def test_a_running_kernel_gets_more_memory_and_is_not_ended_by_less(kernels: ContainerKernels) -> None:
    kernel = a_small_kernel(kernels)
    take = "block = b'x' * (200 << 20); print(len(block) >> 20)"
    more = ContainerLimits(memory=Bytes(512 * MIB), cpus=1.5)
    assert kernels.do(kernels.runtime.resize(kernel.process, more)) == ""
    assert kernel.execute(take) == "200"
    left = kernels.do(kernels.runtime.resize(kernel.process, ContainerLimits(memory=LIMIT)))
    assert "its host memory limit stays as it was: requested 128.0 MiB" in left
    assert kernel.execute("del block; print('lives')") == "lives"
