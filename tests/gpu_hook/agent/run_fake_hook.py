"""A process of a kernel: it connects, borrows, and obeys lines on stdin.

``DIR AMOUNT [reconnect | host | another]``: borrow AMOUNT of the first device (``host``: of host
memory), print the grant, then obey lines: ``borrow N``, ``end``. With ``reconnect`` it comes back
to a new agent with its table, and prints ``back``. It answers recalls with nothing. ``another``: it
is a process of another account, 65534.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Credit, MessageType

UUID = protocol.device_uuid_bytes("GPU-00000000-0000-0000-0000-0000000000a0")


def connect(folder: str, charged: int) -> socket.socket:
    table = (protocol.HelloDevice(UUID, charged, 0),) if charged else ()
    hello = protocol.pack(protocol.Hello(protocol.Role.PROCESS, os.getpid(), 0, "fake", table))
    deadline = time.monotonic() + 90
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(f"{folder}/{protocol.SOCKET_NAME}")
            connection.send(hello)
            if connection.recv(4096):
                return connection
        except OSError:
            pass  # an agent that the test is killing may still accept
        connection.close()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def borrow(connection: socket.socket, amount: int, device: int = 0) -> int:
    connection.send(protocol.pack(Credit(MessageType.CREDIT_REQUEST, device, amount, 1)))
    while True:
        answer = protocol.unpack(connection.recv(4096))
        if isinstance(answer, protocol.ActivityPageNotice):
            continue
        assert isinstance(answer, Credit)
        if answer.type is MessageType.CREDIT_GRANT:
            return answer.bytes
        if answer.type is MessageType.CREDIT_RECALL:
            refuse_recall(connection, answer)


def refuse_recall(connection: socket.socket, recall: Credit) -> None:
    connection.send(protocol.pack(Credit(MessageType.CREDIT_RETURN, recall.device, 0, recall.sequence)))


def main() -> None:
    folder, amount, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    comes_back, device = "reconnect" in words, protocol.HOST_MEMORY if "host" in words else 0
    if "another" in words:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    connection = connect(folder, 0)
    lent = borrow(connection, amount, device)
    print(lent, flush=True)
    while True:
        ready, _, _ = select.select([connection, sys.stdin], [], [])
        if sys.stdin in ready:
            words = sys.stdin.readline().split()
            if not words or words[0] == "end":
                return
            granted = borrow(connection, int(words[1]), device)
            lent += granted
            print(granted, flush=True)
        if connection in ready:
            try:
                data = connection.recv(4096)
            except ConnectionResetError:
                data = b""
            if data:
                message = protocol.unpack(data)
                if isinstance(message, Credit):
                    refuse_recall(connection, message)
            elif comes_back:
                connection.close()
                connection = connect(folder, lent)
                print("back", flush=True)
            else:
                return


if __name__ == "__main__":
    main()
