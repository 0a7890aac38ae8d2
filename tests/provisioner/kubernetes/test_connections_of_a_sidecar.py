"""The sidecar's connections in its poll loop: TLS with a real other side, which reads late, ends, or is cut."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_aliquot.provisioner.kubernetes.tunnel.connection import Connection
from jupyter_aliquot.provisioner.kubernetes.tunnel.keys import client_context, make_keys
from jupyter_aliquot.provisioner.relay.server.poll_loop import Loop

from .conftest import PATIENCE_SECONDS

KEYS = make_keys("a-key")


class Taken:
    """An owner that keeps what it is told."""

    def __init__(self) -> None:
        self.came, self.rooms, self.ends = b"", 0, 0

    def take(self, piece: bytes) -> None:
        self.came += piece

    def has_room(self) -> None:
        self.rooms += 1

    def gone(self) -> None:
        self.ends += 1


class Both:
    """Both sides of one connection: ours in a loop, and a blocking one, whose handshake is to come."""

    def __init__(self, folder: Path) -> None:
        for name, value in (("tls.crt", KEYS.certificate), ("tls.key", KEYS.private_key)):
            (folder / name).write_bytes(value)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.plain = socket.create_connection(listening.getsockname())
            ours, _ = listening.accept()
        self.loop, self.owner = Loop(), Taken()
        secured = context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False)
        self.ours = Connection(self.loop, secured, self.owner)

    def secure(self) -> ssl.SSLSocket:
        """Return the other side after its handshake."""
        found: list[ssl.SSLSocket] = []
        asking = threading.Thread(target=lambda: found.append(client_context(KEYS).wrap_socket(self.plain)))
        asking.start()
        self.until(lambda: not asking.is_alive())
        return found[0]

    def until(self, claim: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not claim():
            assert time.monotonic() < until
            self.loop.turn(0.01)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path)
    yield made
    made.ours.close()
    made.plain.close()


def test_much_goes_to_a_side_that_reads_late(both: Both) -> None:
    theirs = both.secure()
    want = bytes(range(256)) * (1 << 16)
    both.ours.send([want[:3], b"", memoryview(want)[3:]])
    both.loop.turn(0.05)
    assert not both.ours.can_take, "what is not sent is in memory"
    got = bytearray()

    def read() -> None:
        while len(got) < len(want):
            got.extend(theirs.recv(1 << 16))

    reading = threading.Thread(target=read)
    reading.start()
    both.until(lambda: not reading.is_alive())
    assert got == want
    assert both.ours.can_take
    assert both.owner.rooms, "it is told that there is room again"
    theirs.sendall(b"and back")
    both.until(lambda: both.owner.came == b"and back")


def test_nothing_is_read_while_it_is_paused(both: Both) -> None:
    theirs = both.secure()
    both.ours.pause()
    theirs.sendall(b"hello")
    for _ in range(5):
        both.loop.turn(0.01)
    assert both.owner.came == b""
    both.ours.resume()
    both.until(lambda: both.owner.came == b"hello")


def test_an_end_is_confirmed_by_a_side_that_had_all(both: Both) -> None:
    theirs = both.secure()
    want = b"x" * (8 << 20)
    both.ours.send([want])
    both.ours.end()
    got = bytearray()

    def read() -> None:
        while piece := theirs.recv(1 << 16):
            got.extend(piece)
        theirs.unwrap()

    reading = threading.Thread(target=read)
    reading.start()
    both.until(lambda: both.ours.is_over)
    reading.join()
    assert got == want
    assert both.ours.is_confirmed
    assert both.owner.ends == 1


@pytest.mark.parametrize("is_reset", [False, True])
def test_an_end_is_not_confirmed_by_a_side_that_was_cut(both: Both, is_reset: bool) -> None:
    theirs = both.secure()
    both.ours.send([b"hello"])
    both.ours.end()
    assert theirs.recv(5) == b"hello"
    if is_reset:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()  # as a killed process does: without TLS's own word
    both.until(lambda: both.ours.is_over)
    assert not both.ours.is_confirmed


def test_an_end_that_the_other_side_does_not_hear_has_its_time(both: Both) -> None:
    both.secure()
    both.ours.send([b"x" * (8 << 20)])
    both.ours.end(time.monotonic() + 3.0)
    assert both.ours.deadline <= time.monotonic() + 3.0
    both.ours.close()
    assert both.owner.ends == 1
    assert not both.ours.is_confirmed


def test_a_side_that_speaks_no_tls_is_ended(both: Both) -> None:
    both.plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
    both.until(lambda: both.ours.is_over)
    assert both.owner.came == b""
