"""Measures what a context takes of each device, by a process that makes one on each while the driver is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_aliquot.gpu_hook.waiting import within

from .devices import DeviceMonitor

log = logging.getLogger(__name__)

SECONDS = 10.0  # a node with many devices and without a persistence daemon takes its time
_NOT_INHERITED = ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_AUDIT")


class ProbeError(Exception):
    """No context could be measured."""


async def measure_contexts(cuda: Path, monitor: DeviceMonitor, seconds: float = SECONDS) -> Mapping[str, int]:
    """Return the bytes of a context by device; empty where that cannot be measured. Never raises."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    command = (sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent.devices.context_process", os.fspath(cuda))
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment
        )
    except OSError as error:
        log.warning("event=contexts_not_measured reason=%r", str(error))
        return {}
    try:
        found = await within(_look(process, monitor), seconds)
        log.info("event=contexts_measured bytes=%s", dict(found))
        return found
    except (ProbeError, asyncio.TimeoutError) as error:
        log.warning("event=contexts_not_measured reason=%r", str(error) or f"no answer within {seconds:g} s")
        return {}
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _look(process: asyncio.subprocess.Process, monitor: DeviceMonitor) -> Mapping[str, int]:
    """Raises ProbeError."""
    assert process.stdout is not None  # as asked
    before = {reading.facts.uuid: reading.used_bytes for reading in monitor.readings}
    try:
        answer = json.loads(await process.stdout.readline() or b"{}")
    except ValueError as error:
        raise ProbeError(f"the process that makes contexts said what is no JSON: {error}") from error
    if not isinstance(answer, dict) or "devices" not in answer:
        raise ProbeError(str(answer.get("error", "it ended")) if isinstance(answer, dict) else "it said nothing")
    await monitor.look()
    found = {}
    for reading in monitor.readings:
        uuid, told = reading.facts.uuid, reading.processes.get(process.pid)
        if not reading.is_lost and uuid in before:
            # Where the driver does not tell processes apart, what the device lost meanwhile is taken for it.
            found[uuid] = max(0, reading.used_bytes - before[uuid]) if told is None else told
    return found
