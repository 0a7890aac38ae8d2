"""The folders of the slots, each with a hook socket, and the way from a slot to its kernel.

A container has its slot's folder before the agent knows which pod it is of. So the agent accepts
connections there, asks the kubelet, and hands each to the kernel whose grant names that pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.sessions.listener import HookListener, send_away
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import RefusalReason

from .pods import PodsUnknownError, SlotOwners

log = logging.getLogger(__name__)

_FOLDER_MODE = 0o711
# Of one slot, while the kubelet is asked: silent connections must not take all descriptors.
_MOST_WAITING = 64

Accept = Callable[[socket.socket], None]
FindKernel = Callable[[str], Accept | None]


class Slots:
    """The slots of this node. ``find`` gives what takes the connections of a pod's kernel."""

    def __init__(self, folder: Path, count: int, owners: SlotOwners, find: FindKernel) -> None:
        self._folder = folder
        self._numbers = {f"slot-{number}": number for number in range(count)}
        self._owners = owners
        self._find = find
        self._listeners: dict[str, HookListener] = {}
        self._waiting: dict[asyncio.Task[None], str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    def restore(self) -> None:
        """Listen again in the folders that an earlier agent's pods have. Raises OSError."""
        for name in self._numbers:
            if self._path(name).is_dir():
                self._listen(name)

    def give(self, name: str) -> Path:
        """Return the folder of a slot that the kubelet gives to a pod. Raises KeyError and OSError."""
        folder = self._path(name)
        self._owners.forget(name)
        self._folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        folder.mkdir(exist_ok=True)
        folder.chmod(_FOLDER_MODE)
        self._listen(name)
        return folder

    async def close(self) -> None:
        """Stop listening; the folders stay, for the pods that have them."""
        for listener in self._listeners.values():
            listener.close()
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def _path(self, name: str) -> Path:
        return self._folder / str(self._numbers[name])

    def _listen(self, name: str) -> None:
        if name not in self._listeners:
            path = self._path(name) / protocol.SOCKET_NAME
            self._listeners[name] = HookListener(path, partial(self._accepted, name))

    def _accepted(self, name: str, connection: socket.socket) -> None:
        if sum(slot == name for slot in self._waiting.values()) >= _MOST_WAITING:
            text = f"{_MOST_WAITING} processes of the pod wait for the kubelet's answer"
            return _refuse(connection, RefusalReason.FULL, text)
        task = asyncio.create_task(self._hand_over(name, connection), name=f"aliquot-{name}")
        self._waiting[task] = name
        task.add_done_callback(self._waiting.pop)

    async def _hand_over(self, name: str, connection: socket.socket) -> None:
        is_handed_over = False
        try:
            pod = await self._owners.pod_of(name)
            accept = self._find(pod)
            is_handed_over = True
            if accept is None:
                log.warning("event=hook_refused slot=%s pod=%s reason=KERNEL", name, pod)
                return _refuse(connection, RefusalReason.KERNEL, f"no kernel here has a grant for the pod {pod}")
            accept(connection)
        except PodsUnknownError as error:
            log.warning("event=hook_refused slot=%s reason=KERNEL text=%r", name, str(error))
            is_handed_over = True
            _refuse(connection, RefusalReason.KERNEL, str(error))
        except OSError as error:
            log.info("event=hook_vanished slot=%s reason=%r", name, str(error))
        finally:
            if not is_handed_over:
                connection.close()


def _refuse(connection: socket.socket, reason: RefusalReason, text: str) -> None:
    with contextlib.suppress(OSError):  # the process is gone already
        send_away(connection, protocol.pack(protocol.Refuse(reason, text)))
