"""Run kernels as processes of this machine.

This module owns their Popen objects; it knows nothing of grants or connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path
from subprocess import Popen

from jupyter_client.launcher import launch_kernel

from jupyter_aliquot.provisioner.containers.plan import ContainerLimits
from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.launch_spec import KERNEL_ID_VARIABLE, LaunchSpec
from jupyter_aliquot.provisioner.relay.wire.proc import is_process, start_time_ticks, stat_fields
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.terminations import ProcessEnd

from .base import UNKNOWN_EXIT_STATUS, Launch
from .stdio import PipeEnds

_PROC = Path("/proc")
_POLL_SECONDS = 0.1


class ProcessRuntime:
    """Start, signal and end kernels as children of this process, each in a session of its own."""

    def __init__(self) -> None:
        self._children: dict[KernelProcess, Popen[bytes]] = {}
        self._ended: dict[KernelProcess, int] = {}

    async def create(self, launch: Launch) -> KernelProcess:
        spec = launch.spec
        if launch.container is not None:
            raise LaunchError(
                f"Requested kernel {spec.kernel_id} in a container of {launch.container.image}, but this "
                "runtime starts processes outside of containers. Start it through a gateway with "
                "containers"
            )
        check_program(spec)
        try:
            child = launch_kernel(list(spec.argv), env=dict(spec.env), cwd=spec.cwd, **launch.streams)
        except OSError as error:
            raise LaunchError(_launch_failure(spec, error)) from error
        # We have not reaped the child, so its /proc entry stays readable even if it ended at once.
        process = KernelProcess(spec.kernel_id, child.pid, start_time_ticks(child.pid) or 0, child.pid)
        self._children[process] = child
        return process

    async def signal(self, process: KernelProcess, signal_number: int) -> None:
        if await self.poll(process) is None:
            signal_group(process, signal_number)

    async def poll(self, process: KernelProcess) -> int | None:
        child = self._children.get(process)
        if child is not None:
            return child.poll()
        if process in self._ended:
            return self._ended[process]
        # We cannot read the exit status of a process that is not our child.
        return None if is_running(process) else UNKNOWN_EXIT_STATUS

    async def wait(self, process: KernelProcess) -> int:
        while (status := await self.poll(process)) is None:
            await wait_for_exit(process.pid)
        self._ended[process] = status
        self._forget(process)
        return status

    async def ending(self, process: KernelProcess) -> ProcessEnd | None:
        status = await self.poll(process)
        if status is None:
            return None
        if process not in self._children and process not in self._ended:
            return ProcessEnd()
        return ProcessEnd(signal=-status) if status < 0 else ProcessEnd(exit_code=status)

    async def resize(self, process: KernelProcess, limits: ContainerLimits) -> str:
        """Return no failure: a process of this machine has no limits of ours."""
        return ""

    async def remove(self, process: KernelProcess) -> None:
        await self.signal(process, signal.SIGKILL)
        await self.wait(process)

    async def list(self) -> tuple[KernelProcess, ...]:
        return await asyncio.get_running_loop().run_in_executor(None, _list_kernels)

    def pipes(self, process: KernelProcess) -> PipeEnds:
        child = self._children.get(process)
        if child is None:
            return PipeEnds(process.pid)
        return PipeEnds(process.pid, child.stdin, child.stdout, child.stderr)

    def _forget(self, process: KernelProcess) -> None:
        child = self._children.pop(process, None)
        for stream in (child.stdin, child.stdout, child.stderr) if child is not None else ():
            if stream is not None:
                stream.close()


def signal_group(process: KernelProcess, signal_number: int) -> None:
    """Signal a process that runs, and all that it started."""
    try:
        os.killpg(process.process_group, signal_number)
    except ProcessLookupError:
        return
    except PermissionError:
        # A member of the group changed its user: signal at least the kernel itself.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal_number)


def is_running(process: KernelProcess) -> bool:
    """Tell whether this very process lives: same pid, same start time, not a zombie."""
    return is_process(process.pid, process.start_time_ticks)


async def wait_for_exit(pid: int) -> None:
    """Return when the process may have ended.

    Uses a pidfd, or short sleeps on a Linux without them.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:
        await asyncio.sleep(_POLL_SECONDS)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def check_program(spec: LaunchSpec) -> None:
    """Check that the kernel's program exists. Raises LaunchError.

    The self-check program would find a missing one only when no caller waits any more.
    """
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        raise LaunchError(
            f"Requested to start a kernel in {spec.cwd}, but there is no such folder. Create it, or choose another"
        )
    if not spec.program:
        raise LaunchError("The kernel has no program: argv in the kernelspec's kernel.json is empty. Write one there")
    program = os.path.expanduser(spec.program)
    if os.path.dirname(program):
        program = os.path.join(spec.cwd or "", program)
    if shutil.which(program, path=dict(spec.env).get("PATH", os.defpath)) is None:
        found = "it is not executable" if os.path.exists(program) else "not found"
        raise LaunchError(f"{spec.program!r} cannot be started: {found}. Check argv in the kernelspec's kernel.json")


def _launch_failure(spec: LaunchSpec, error: OSError) -> str:
    program = spec.program or " ".join(spec.argv[:1])
    return f"{program!r} cannot be started: {error.strerror or error}. Check argv in the kernelspec's kernel.json"


def _list_kernels() -> tuple[KernelProcess, ...]:
    """Return the session leaders that carry our variable, the eldest for each kernel.

    The kernel's children inherit the variable.
    """
    eldest: dict[str, KernelProcess] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        process = _as_kernel(int(entry.name))
        if process is None:
            continue
        known = eldest.get(process.kernel_id)
        if known is None or process.start_time_ticks < known.start_time_ticks:
            eldest[process.kernel_id] = process
    return tuple(eldest.values())


def _as_kernel(pid: int) -> KernelProcess | None:
    fields = stat_fields(pid)
    if not fields or fields[0] in ("Z", "X") or int(fields[3]) != pid:
        return None
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{KERNEL_ID_VARIABLE}=".encode()
    for entry in environment:
        if entry.startswith(prefix):
            return KernelProcess(entry.removeprefix(prefix).decode(), pid, int(fields[19]), int(fields[2]))
    return None
