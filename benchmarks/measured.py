"""A kernel whose launches are measured all the time: the benchmark's agent orders it in its pages.

A real agent measures launches only where kernels share a device; here one program must be alone on
its CPU.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Credit, Gate, Hello, MessageType, Pace

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
QUOTA = 64 << 30


def _make_page() -> tuple[int, mmap.mmap]:
    descriptor = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, protocol.PAGE_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor, mmap.mmap(descriptor, protocol.PAGE_BYTES)


def _welcome(connection: socket.socket, uuid: bytes) -> None:
    agent, page = _make_page()
    hook, _ = _make_page()
    struct.pack_into("=II", page, AgentPage.MAGIC, protocol.PAGE_MAGIC, protocol.VERSION)
    struct.pack_into("=I", page, AgentPage.GATE, Gate.PACED)
    struct.pack_into("=I", page, AgentPage.DEVICE_COUNT, 1)
    struct.pack_into("=16sQ", page, AgentPage.DEVICES, uuid, QUOTA)
    struct.pack_into("=I", page, AgentPage.DEVICES + AgentPage.PACE, Pace.MEASURE)
    welcome = protocol.pack(protocol.Welcome(1))
    with suppress(BrokenPipeError):
        socket.send_fds(connection, [welcome], [agent, hook])
    os.close(agent)
    os.close(hook)


def _serve(connection: socket.socket, uuid: bytes) -> None:
    """Serve until the process ends; grant each request."""
    with connection, suppress(ConnectionError):
        while packet := connection.recv(protocol.LARGEST_MESSAGE):
            message = protocol.unpack(packet)
            if isinstance(message, Hello):
                _welcome(connection, uuid)
            elif isinstance(message, Credit) and message.type is MessageType.CREDIT_REQUEST:
                grant = Credit(MessageType.CREDIT_GRANT, message.device, message.bytes, message.sequence)
                connection.send(protocol.pack(grant))


@contextmanager
def a_measured_kernel(folder: Path, uuid: str) -> Iterator[Path]:
    """Yield the folder where the kernel's processes register; ``uuid`` in hex."""
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(folder / protocol.SOCKET_NAME))
    listener.listen()

    def accept() -> None:
        with suppress(OSError):  # the socket was shut down
            while True:
                connection = listener.accept()[0]
                threading.Thread(target=_serve, args=(connection, bytes.fromhex(uuid)), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield folder
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
