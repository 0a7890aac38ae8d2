"""Launched work ends: on any stream, a process whose work is done shows none."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, Pace

MS = 1_000_000


@pytest.mark.parametrize("kind", ["kernel", "kernel_ptsz"])
def test_work_far_ahead_in_a_default_stream_ends(kind: str, a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    assert kernel.program("[spins('kernel', 1, 100) or wait() for _ in range(5)]") == [0] * 5
    assert kernel.program("make_stream(0) and 0") == 0  # one that waits for the legacy stream
    assert kernel.program(f"spins('{kind}', 1200, 100) or wait()") == 0
    assert kernel.occupied() >= 120 * MS * 0.9
    assert kernel.occupied() <= 120 * MS * 1.5


def test_work_beside_a_capture_that_is_left_open_ends(a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    assert kernel.program("call('cuStreamBeginCapture_v2', U64(make_stream()), 2)") == 0
    work = "spins('kernel', 300, 50, s) or call('cuStreamSynchronize', U64(s))"
    assert kernel.program(f"(lambda s: {work})(make_stream())") == 0
    kernel.agent.wait_for(lambda: kernel.half(HookPage.IN_FLIGHT) == 0)


def test_work_of_a_thread_that_ended_ends(a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    assert kernel.program("in_threads(2, lambda: use(0) or spins('kernel_ptsz', 300, 100))") == [0, 0]
    kernel.agent.wait_for(lambda: kernel.half(HookPage.IN_FLIGHT) == 0)


def test_work_left_open_in_a_stream_that_another_thread_captures_is_measured(a_paced_kernel: Any) -> None:
    """An event recorded there would belong to the capture, and could never be asked about."""
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    assert kernel.program("globals().update(memory=alloc(1024)[1]) or 0") == 0
    assert kernel.program("[spins('kernel', 1, 100) or wait() for _ in range(5)]") == [0] * 5
    before = kernel.occupied()
    assert kernel.program("[close_work_under_capture(memory) for _ in range(10)]") == [0] * 10
    assert kernel.occupied() - before >= 10 * 25 * 0.1 * MS * 0.5
    assert "event=unmeasured" not in kernel.node.log.read_text()
