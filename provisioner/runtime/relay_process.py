"""Run kernels as processes of this machine, started by their relays.

So kernels outlive the program that started them. This module signals and looks at the processes
itself. The relay writes down how a process ended, or the relay host after the relay's end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.process_account import account_of
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits
from jupyter_aliquot.provisioner.control_groups import ControlGroups, MemoryUse
from jupyter_aliquot.provisioner.errors import LaunchError, RelayError, RelayRefusedError
from jupyter_aliquot.provisioner.launch_spec import LaunchSpec
from jupyter_aliquot.provisioner.relay.client.control import signal_kernel, spawn
from jupyter_aliquot.provisioner.relay.wire.files import (
    Ended,
    KernelLaunch,
    RelayRecord,
    is_anothers,
    read_ended,
    read_relay_records,
)
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.terminations import UNREACHABLE, ProcessEnd

from .base import Launch, exit_status
from .process import check_program, is_running, signal_group, wait_for_exit
from .stdio import PipeEnds, Streams

# The relay writes down a kernel's end right after it. Without a record by then, relay and host were
# killed.
_ENDED_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.005
# A kernel started within a kernel inherits this name of that kernel's parent, and would end at
# once.
_PARENT_VARIABLE = "JPY_PARENT_PID"


class RelayedRuntime:
    """The processes of one kernel, one after another, below its relay."""

    def __init__(self, relay: RelayRecord, groups: ControlGroups | None = None) -> None:
        self._relay = relay
        self._groups = groups or ControlGroups()
        # What was ended for memory before the process began, or before we took it over.
        self._kills = (self._memory_use() or MemoryUse()).kills
        self._streams: dict[KernelProcess, Streams] = {}
        self._ended: dict[KernelProcess, ProcessEnd] = {}

    async def create(self, launch: Launch) -> KernelProcess:
        spec = launch.spec
        is_ours = not is_anothers(self._relay.folder)
        if is_ours:  # another account's programs and folders are for its relay to check
            check_program(spec)
        # A gateway's kernel outlives the gateway, so it must not write to the gateway's output.
        streams = Streams(launch.streams, inherits=self._relay.gateway is None)
        try:
            process = await spawn(
                self._relay, _kernel_launch(spec, streams.umask, is_ours=is_ours), streams.descriptors
            )
        except RelayError as error:
            streams.close()
            raise LaunchError(_failure(spec, error)) from error
        except BaseException:
            streams.close()
            raise
        finally:
            streams.given()
        if not is_ours and account_of(process.pid) not in (None, self._relay.folder.stat().st_uid):
            streams.close()
            raise LaunchError(
                f"{spec.program!r} was not started: the relay of kernel {self._relay.kernel_id} names a process of "
                "another account. Shut the kernel down, and start it again"
            )
        self._streams[process] = streams
        self._kills = (self._memory_use() or MemoryUse()).kills
        return process

    async def signal(self, process: KernelProcess, signal_number: int) -> None:
        if not is_running(process):
            return
        if is_anothers(self._relay.folder):
            await signal_kernel(self._relay, signal_number)
        else:
            signal_group(process, signal_number)

    async def poll(self, process: KernelProcess) -> int | None:
        end = await self.ending(process)
        return None if end is None else exit_status(end)

    async def wait(self, process: KernelProcess) -> int:
        while (end := await self.ending(process)) is None:
            await wait_for_exit(process.pid)
        streams = self._streams.pop(process, None)
        if streams is not None:
            streams.close()
        return exit_status(end)

    async def ending(self, process: KernelProcess) -> ProcessEnd | None:
        if process in self._ended:
            return self._ended[process]
        if is_running(process):
            return None
        self._ended[process] = await self._read_end(process)
        return self._ended[process]

    async def resize(self, process: KernelProcess, limits: ContainerLimits) -> str:
        """Return no failure: a process of this machine has no limits of ours."""
        return ""

    async def remove(self, process: KernelProcess) -> None:
        await self.signal(process, signal.SIGKILL)
        await self.wait(process)

    async def list(self) -> tuple[KernelProcess, ...]:
        runtime = RuntimeDir(self._relay.folder.parent.parent)
        return await asyncio.to_thread(_list_kernels, runtime)

    def pipes(self, process: KernelProcess) -> PipeEnds:
        """Return the pipes for a caller that asked for pipes."""
        streams = self._streams.get(process)
        return PipeEnds(process.pid) if streams is None else PipeEnds(process.pid, **streams.ours)

    async def _read_end(self, process: KernelProcess) -> ProcessEnd:
        """Return the recorded end.

        It is empty if relay and host were killed before they wrote it.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _ENDED_SECONDS
        while True:
            ended = read_ended(self._relay)
            if ended is not None and (ended.pid, ended.start_time_ticks) == (process.pid, process.start_time_ticks):
                return self._judged(process_end(ended))
            if loop.time() > give_up:
                return ProcessEnd()
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _memory_use(self) -> MemoryUse | None:
        """Return what the kernel's control group used; None for a kernel of our own account, which has none."""
        if not is_anothers(self._relay.folder):
            return None
        try:
            uid = self._relay.folder.stat().st_uid
        except OSError:
            return None
        return self._groups.memory_use(uid, self._relay.kernel_id)

    def _judged(self, end: ProcessEnd) -> ProcessEnd:
        """Return the end with the system's word on memory, which its owner's relay does not decide.

        A program that the kernel ran may have been ended for memory before the kernel was killed by
        hand: the system tells the two not apart.
        """
        used = self._memory_use() if end.signal == signal.SIGKILL else None
        if used is None or used.kills <= self._kills:
            return end
        return replace(end, is_out_of_memory=True, memory_used=used.peak, memory_limit=used.limit)


def process_end(ended: Ended) -> ProcessEnd:
    """Return a relay's record of an end as a ProcessEnd."""
    return ProcessEnd(
        ended.exit_code,
        ended.signal,
        ended.at,
        ended.last_words,
        is_orphaned=ended.reason == "orphaned",
        is_unreachable=ended.reason == UNREACHABLE,
    )


def _failure(spec: LaunchSpec, error: RelayError) -> str:
    is_said = isinstance(error, RelayRefusedError) and error.code in ("launch", "account")
    return str(error) if is_said else f"{spec.program!r} cannot be started: {error}"


def _kernel_launch(spec: LaunchSpec, umask: int | None, *, is_ours: bool) -> KernelLaunch:
    env = {name: value for name, value in spec.env if name != _PARENT_VARIABLE}
    if not is_ours:
        return KernelLaunch(spec.argv, env, spec.cwd, umask=umask, program=spec.program)
    argv = tuple(os.path.expanduser(word) for word in spec.argv)
    # The relay has a working directory of its own, so paths relative to ours mean nothing to it.
    return KernelLaunch(argv, env, os.path.abspath(spec.cwd or Path.cwd()), umask=umask)


def _list_kernels(runtime: RuntimeDir) -> tuple[KernelProcess, ...]:
    return tuple(
        KernelProcess(record.kernel_id, record.kernel.pid, record.kernel.start_time_ticks, record.kernel.pid)
        for record in read_relay_records(runtime)
        if record.kernel is not None and record.has_living_kernel
    )
