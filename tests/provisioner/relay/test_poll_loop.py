"""Tests of the relay's poll loop: each event reaches its handler in the next turn, whatever used the socket between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from jupyter_aliquot.provisioner.relay.server.poll_loop import ERROR, READ, WRITE, Loop
from jupyter_aliquot.provisioner.relay.wire.zmq_io import events_of, receive, send, send_now, used

# A turn that waits for this long has missed its event: the tests' own time limit ends it.
FOR_EVER = 1e6
SETTLED = 0.05


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield a bound ROUTER and a DEALER that is connected to it, with one message gone each way."""
    context: zmq.Context[Any] = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.rcvhwm = dealer.sndhwm = 1  # before it binds: libzmq counts wrongly when they shrink later
    router.bind(f"ipc://{tmp_path}/s")
    dealer.setsockopt(zmq.IDENTITY, b"d")
    dealer.connect(f"ipc://{tmp_path}/s")
    dealer.send(b"hello")
    router.send_multipart(router.recv_multipart())
    dealer.recv()
    yield router, dealer
    context.destroy(linger=0)


def came(socket: Any) -> None:
    """Wait until a message is there, and take the signal of it."""
    while not events_of(socket) & zmq.POLLIN:
        socket.poll(100)


def test_a_message_whose_signal_a_send_took_is_found_without_a_wait(pair: tuple[Any, Any]) -> None:
    router, dealer = pair
    loop, got = Loop(), list[Any]()
    loop.watch(router, lambda _events: got.append(receive(router)))
    loop.turn(0)  # the loop asked its new socket
    assert not any(got)
    dealer.send(b"one")
    came(router)
    send(router, [b"d", b"answer"])
    loop.turn(FOR_EVER)
    assert [bytes(frame) for frame in got[-1]] == [b"d", b"one"]


def test_what_a_handler_left_is_the_next_turn_s(pair: tuple[Any, Any]) -> None:
    router, dealer = pair
    loop, got = Loop(), list[bytes]()

    def take_one(_events: int) -> None:
        if (frames := receive(router)) is not None:
            got.append(bytes(frames[1]))

    loop.watch(router, take_one)
    for word in (b"1", b"2", b"3"):
        dealer.send(word)
    while len(got) < 3:
        loop.turn(FOR_EVER)
    assert got == [b"1", b"2", b"3"]


def test_a_full_socket_is_told_when_there_is_room(pair: tuple[Any, Any]) -> None:
    router, dealer = pair
    loop, told = Loop(), list[int]()
    sent = 0
    # The peer's thread still takes some: full is what has no room for a while.
    while send_now(dealer, [bytes(1 << 20)]) or dealer.poll(100, zmq.POLLOUT):
        sent += 1
    loop.watch(dealer, told.append, READ | WRITE)
    loop.turn(SETTLED)
    assert told == []
    received = 0
    while not told:
        if receive(router) is not None:
            received += 1
        loop.turn(SETTLED)
    assert told[0] == WRITE
    assert 0 < received <= sent


def test_a_socket_that_nothing_told_of_is_asked_after_a_quiet_wait(pair: tuple[Any, Any]) -> None:
    router, dealer = pair
    loop, got = Loop(), list[Any]()
    loop.watch(router, lambda _events: got.append(receive(router)))
    dealer.send(b"one")
    came(router)
    used.clear()  # a call that `zmq_io` knows nothing of took the signal, such as a second bind
    loop.turn(0)
    assert not got
    loop.turn(FOR_EVER)
    assert [bytes(frame) for frame in got[-1]] == [b"d", b"one"]


def test_a_descriptor_tells_of_reading_writing_and_its_other_end() -> None:
    loop, told = Loop(), list[int]()
    reads, writes = os.pipe()
    loop.watch(writes, told.append, WRITE)
    loop.turn(FOR_EVER)
    loop.forget(writes)
    loop.watch(reads, told.append)
    os.write(writes, b"x")
    loop.turn(FOR_EVER)
    os.close(writes)
    loop.turn(FOR_EVER)
    loop.forget(reads)
    loop.forget(reads)
    loop.turn(0)
    assert told == [WRITE, READ, READ | ERROR]
    os.close(reads)


def test_a_forgotten_socket_is_asked_no_more(pair: tuple[Any, Any]) -> None:
    router, dealer = pair
    loop, told = Loop(), list[int]()
    loop.watch(router, told.append)
    loop.watch(dealer, told.append, READ | WRITE)
    send(router, [b"d", b"x"])
    for socket in pair:
        loop.forget(socket)
        socket.close(linger=0)
    loop.turn(0)
    assert told == []


def test_a_handler_that_does_nothing_but_fail_ends_the_loop(capfd: pytest.CaptureFixture[str]) -> None:
    loop, calls = Loop(), list[int]()
    reads, writes = os.pipe()
    os.write(writes, b"x")

    def fail(_events: int) -> None:
        calls.append(1)
        raise LookupError("it fails")

    def run() -> None:
        while True:
            loop.turn(FOR_EVER)

    loop.watch(reads, fail)
    with pytest.raises(LookupError):
        run()
    assert len(calls) == 101
    assert capfd.readouterr().err.count("LookupError: it fails") == 100
    os.close(reads)
    os.close(writes)
