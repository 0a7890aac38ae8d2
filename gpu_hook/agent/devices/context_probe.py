"""Measure the memory that a context takes of each device, and check whether memory can be swapped.

A process makes a context on each device while the agent reads the driver's figures; then it swaps a
little memory out and in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.ledger.contexts import ContextCosts
from jupyter_aliquot.gpu_hook.waiting import end_task, within

from .devices import DeviceMonitor, DeviceReading

log = logging.getLogger(__name__)

SECONDS = 10.0  # a node with many devices and without a persistence daemon is slow
CHECK_SECONDS = 20.0  # for the self-check of swapping, once contexts are there
_END_SECONDS = 2.0  # a process that hangs in its driver does not end when it is killed
_MOST_PROBES = 16  # of one agent: a device that comes and goes is not measured each time
_NOT_INHERITED = ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_AUDIT")


class ProbeError(Exception):
    """No context could be measured."""


@dataclass(frozen=True)
class Probed:
    """The bytes of a context by device, and why memory there cannot be swapped (empty: it can)."""

    contexts: Mapping[str, int] = field(default_factory=dict)
    moves: Mapping[str, str] = field(default_factory=dict)


class ContextProbe:
    """Measures contexts at the agent's start, and when a device comes that was not measured.

    It gives the outcomes of the self-check to *checked*.
    """

    def __init__(
        self,
        cuda: Path,
        monitor: DeviceMonitor,
        costs: ContextCosts,
        seconds: float = SECONDS,
        checked: Callable[[Mapping[str, str]], None] = lambda found: None,
        is_ours: Callable[[str], bool] = lambda uuid: True,
    ) -> None:
        """*is_ours* tells whether a device may get a context: others are other programs' of a cluster."""
        self._cuda, self._monitor, self._costs, self._seconds = cuda, monitor, costs, seconds
        self._checked = checked
        self._is_ours = is_ours
        self._present: frozenset[str] = frozenset()
        self._probes = 0
        self._task: asyncio.Task[None] | None = None

    async def measure(self) -> None:
        """Measure all of our devices that answer. Never raises.

        A silent driver gets no request for contexts either.
        """
        self._present = self._usable()
        if self._present and not self._monitor.is_silent:
            self._probes += 1
            found = await probe_devices(self._cuda, self._monitor, self._seconds, self._present)
            self._costs.note_measured(found.contexts)
            self._checked(found.moves)

    def saw_devices(self) -> None:
        """Measure new devices. Called after each look, once the agent serves."""
        before, self._present = self._present, self._usable()
        is_due = any(not self._costs.is_measured(uuid) for uuid in self._present - before)
        if is_due and self._probes < _MOST_PROBES and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self.measure(), name="contexts")

    async def close(self) -> None:
        if self._task is not None:
            await end_task(self._task)

    def _usable(self) -> frozenset[str]:
        present = (reading.facts.uuid for reading in self._monitor.readings if not reading.is_lost)
        return frozenset(uuid for uuid in present if self._is_ours(uuid))


async def probe_devices(
    cuda: Path, monitor: DeviceMonitor, seconds: float = SECONDS, devices: Collection[str] | None = None
) -> Probed:
    """Return what could be found out of these devices, or of all; empty where nothing could. Never raises."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    if devices is not None and any(reading.facts.uuid not in devices for reading in monitor.readings):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(sorted(devices))
    command = (sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent.devices.context_process", os.fspath(cuda))
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment
        )
    except OSError as error:
        log.warning("event=contexts_not_measured reason=%r", str(error))
        return Probed()
    found: Mapping[str, int] = {}
    event = "contexts_not_measured"
    try:
        found = await within(_look(process, monitor), seconds)
        log.info("event=contexts_measured bytes=%s", dict(found))
        event = "swapping_not_checked"
        moves = await within(_check_moves(process), CHECK_SECONDS)
        log.info("event=swapping_checked failed=%s", {uuid: why for uuid, why in moves.items() if why})
        return Probed(found, moves)
    except (ProbeError, asyncio.TimeoutError) as error:
        log.warning("event=%s reason=%r", event, str(error) or "no answer in time")
        return Probed(found)
    finally:
        await _end(process)


async def _check_moves(process: asyncio.subprocess.Process) -> Mapping[str, str]:
    """Have the process swap a little memory of each device out and in. Raises ProbeError."""
    assert process.stdin is not None  # the pipes were requested at its start
    assert process.stdout is not None
    try:
        process.stdin.write(b"move\n")
        await process.stdin.drain()
        answer = json.loads(await process.stdout.readline() or b"{}")
        return {str(uuid): str(why) for uuid, why in answer["moves"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProbeError(f"the process that swaps memory ended: {error!r}") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    try:
        await within(process.wait(), _END_SECONDS)
    except asyncio.TimeoutError:
        log.error("event=context_process_hangs pid=%d reason='the driver does not let it end'", process.pid)


async def _look(process: asyncio.subprocess.Process, monitor: DeviceMonitor) -> Mapping[str, int]:
    """Look at the devices before and after the process makes its contexts. Raises ProbeError."""
    assert process.stdout is not None  # the pipe was requested at its start
    before = {reading.facts.uuid: reading for reading in monitor.readings}
    try:
        answer = json.loads(await process.stdout.readline() or b"{}")
    except ValueError as error:
        raise ProbeError(f"the process that makes contexts said what is no JSON: {error}") from error
    if not isinstance(answer, dict) or "devices" not in answer:
        raise ProbeError(str(answer.get("error", "it ended")) if isinstance(answer, dict) else "it said nothing")
    if answer.get("errors"):
        log.warning("event=contexts_not_measured reason=%r", "; ".join(answer["errors"]))
    await monitor.look()
    found = {}
    for reading in monitor.readings:
        uuid = reading.facts.uuid
        if not reading.is_lost and uuid in before and uuid in answer["devices"]:
            amount = context_bytes(process.pid, before[uuid], reading)
            if amount is not None:
                found[uuid] = amount
    return found


def context_bytes(pid: int, before: DeviceReading, after: DeviceReading) -> int | None:
    """Return the bytes of the context that a process made between two looks; None: unknown.

    Where the driver does not report a process's bytes, the bytes that the device lost are its
    context, if no other process is there. A process that is there under a pid of another namespace
    may be this one.
    """
    told = after.processes.get(pid)
    if told is not None:
        return told
    unknown = 0 if pid in after.processes else 1
    if before.processes or len(set(after.processes) - {pid}) > unknown:
        return None
    return max(0, after.used_bytes - before.used_bytes)
