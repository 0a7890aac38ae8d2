"""Kernels that waited for an earlier gateway: admission counts them before their requests come again."""

from __future__ import annotations

import asyncio
import logging
from unittest.mock import AsyncMock, Mock

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.recovery.recover import Recovery
from jupyter_aliquot.gateway.state.records import KernelRecord, KernelState

BOOT = "this boot"


def test_admission_expects_a_kernel_before_recovery_begins_it_again() -> None:
    steps = Mock()
    manager = Mock(begin=steps.begin, replacements=Mock(finish=AsyncMock()))
    records = Mock(read=lambda: [KernelRecord("k", "ada", "python3.gpu-0.5", KernelState.PENDING, 1e9, BOOT)])
    finder = Mock(find=AsyncMock(return_value={}))
    admission = Mock(expect=steps.expect)

    async def act() -> None:
        recovery = Recovery(
            manager, admission, Mock(), records, finder, SystemClock(), logging.getLogger(__name__), frozenset
        )
        await recovery.run(BOOT)
        await asyncio.sleep(0)  # the task that looks after what it replaces
        await recovery.stop()

    asyncio.run(act())
    assert [(call[0], call.args[0]) for call in steps.mock_calls] == [("expect", "k"), ("begin", "k")]
