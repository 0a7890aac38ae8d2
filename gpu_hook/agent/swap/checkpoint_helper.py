"""The agent's end of the checkpointing process.

Either all processes of a kernel are saved, or none; all restored, or stuck. The helper starts the
process once and keeps it warm. It ends and replaces a process that hangs or dies, and undoes its
unfinished work by asking the driver where each process is. It knows no kernels, and does not decide
when.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

log = logging.getLogger(__name__)

_START_SECONDS = 30.0  # attaching to the driver of a machine with many GPUs
_NO_MAP: Mapping[str, str] = MappingProxyType({})
_VERB_SECONDS = 60.0  # beside the lock's own time: the driver copies the contexts
_NAMES = {1: "invalid value", 2: "out of memory", 401: "illegal state", 600: "not ready", 801: "not supported"}


class ProcessState(IntEnum):
    """The driver's CUprocessState."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class CheckpointError(Exception):
    """A checkpoint or a restore that did not happen.

    ``is_fatal``: a process cannot come back any more.
    """

    def __init__(self, text: str, is_fatal: bool = False) -> None:
        super().__init__(text)
        self.is_fatal = is_fatal


class CheckpointHelper:
    """The checkpointing process.

    ``library`` is the driver's own, not the hook's. ``environment`` is added to the agent's.
    """

    def __init__(self, library: Path, environment: Mapping[str, str]) -> None:
        self._library = library
        self._environment = {**os.environ, **environment}
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def save(self, pids: Sequence[int], lock_milliseconds: int) -> None:
        """Take all of them off their devices, or none. Raises CheckpointError."""
        async with self._turn:
            try:
                for pid in pids:
                    await self._act("lock", pid, ProcessState.LOCKED, lock_milliseconds)
                for pid in pids:
                    await self._act("checkpoint", pid, ProcessState.CHECKPOINTED)
            except CheckpointError as error:
                await self._undo(pids)
                raise error

    async def restore(self, pids: Sequence[int], gpus: Mapping[str, str] = _NO_MAP) -> None:
        """Bring all of them back; their room must be free. Raises CheckpointError.

        *gpus* maps each GPU of the node to the one that replaces it; empty: each replaces itself.
        """
        async with self._turn:
            states = {pid: await self._state(pid) for pid in pids}
            try:
                if lost := [str(pid) for pid, state in states.items() if state is ProcessState.FAILED]:
                    raise CheckpointError(f"the driver has given process {', '.join(lost)} up", is_fatal=True)
                for pid in pids:
                    if states[pid] is ProcessState.CHECKPOINTED:
                        await self._act("restore", pid, ProcessState.LOCKED, gpus=gpus)
            except CheckpointError as error:
                for pid in pids if error.is_fatal else ():  # no further try unlocks those that are back
                    with contextlib.suppress(CheckpointError):
                        await self._unlock(pid)
                raise
            for pid in pids:
                await self._unlock(pid)

    async def states(self, pids: Sequence[int]) -> dict[int, ProcessState | None]:
        """Return where each process is, by the driver. Raises CheckpointError.

        None: the driver does not tell, or the process is gone.
        """
        async with self._turn:
            return {pid: await self._state(pid) for pid in pids}

    async def are_off(self, pids: Sequence[int]) -> bool:
        """Return whether the driver says that none of them is on a device; False: it does not tell."""
        try:
            states = await self.states(pids)
        except CheckpointError:
            return False
        return all(state in (ProcessState.CHECKPOINTED, ProcessState.FAILED) for state in states.values())

    async def close(self) -> None:
        """End the process; checkpointed processes stay so."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def _act(
        self,
        verb: str,
        pid: int,
        want: ProcessState,
        timeout_milliseconds: int = 0,
        gpus: Mapping[str, str] = _NO_MAP,
    ) -> None:
        """Bring a process into the wanted state.

        A process that ended is no error: it has nothing on a device.
        """
        request = {"verb": verb, "pid": pid, "timeout_ms": timeout_milliseconds, "gpus": list(gpus.items())}
        answer = await self._ask(request, timeout_milliseconds)
        error, state = answer.get("error"), answer.get("state")
        if state is None and not _is_there(pid):
            return
        if error or state != want:
            name = _NAMES.get(error or 0, f"error {error}" if error else f"state {state}")
            raise CheckpointError(f"the driver answers to {verb} process {pid}: {name}", state == ProcessState.FAILED)

    async def _state(self, pid: int) -> ProcessState | None:
        state = (await self._ask({"verb": "state", "pid": pid})).get("state")
        return ProcessState(state) if isinstance(state, int) and state in list(ProcessState) else None

    async def _unlock(self, pid: int) -> None:
        if await self._state(pid) is ProcessState.LOCKED:
            await self._act("unlock", pid, ProcessState.RUNNING)

    async def _undo(self, pids: Sequence[int]) -> None:
        """Undo every step: the room of the saved processes is still theirs."""
        for pid in pids:
            try:
                state = await self._state(pid)
                if state is ProcessState.CHECKPOINTED:
                    await self._act("restore", pid, ProcessState.LOCKED)
                    state = ProcessState.LOCKED
                if state is ProcessState.LOCKED:
                    await self._act("unlock", pid, ProcessState.RUNNING)
            except CheckpointError as error:
                log.error("event=checkpoint_not_undone pid=%d reason=%r", pid, str(error))
                if error.is_fatal:
                    raise

    async def _ask(self, request: Mapping[str, Any], milliseconds: int = 0) -> dict[str, Any]:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), _VERB_SECONDS + milliseconds / 1000)
            found = json.loads(line)
        except (asyncio.TimeoutError, OSError, ValueError) as error:
            await self.close()
            what = "does not answer" if isinstance(error, asyncio.TimeoutError) else "ended"
            raise CheckpointError(f"the checkpointing process {what} at {request['verb']} {request['pid']}") from error
        return found if isinstance(found, dict) else {}

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent.swap.checkpoint_process",
            os.fspath(self._library),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            hello = json.loads(await asyncio.wait_for(process.stdout.readline(), _START_SECONDS))
            error, text = hello["error"], hello["text"]
        except (asyncio.TimeoutError, ValueError, KeyError) as problem:
            await self.close()
            raise CheckpointError(
                "the checkpointing process did not start; see the driver with nvidia-smi"
            ) from problem
        if error:
            await self.close()
            name = (
                "its driver has no checkpoints; they came with CUDA 12.8" if error == 500 else f"error {error} {text}"
            )
            raise CheckpointError(f"cannot checkpoint here: {name}")
        log.info("event=checkpointer_started pid=%d", process.pid)
        return process


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
