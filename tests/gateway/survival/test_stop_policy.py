"""The stop policy: which stops of a server leave its kernels running."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_aliquot.gateway.state.stop_policy import StopPolicy


class Server:
    """The part of a Jupyter server that the policy sees."""

    def __init__(self) -> None:
        self.stopped_by: list[int] = []

    def _signal_stop(self, signal_number: int, frame: Any) -> None:
        self.stopped_by.append(signal_number)


@pytest.fixture
def a_server() -> Iterator[Server]:
    server = Server()
    old = signal.signal(signal.SIGTERM, server._signal_stop)
    yield server
    signal.signal(signal.SIGTERM, old)


@pytest.mark.parametrize(
    ("knob", "want_by_call", "want_by_sigterm"),
    [("auto", False, True), ("always", True, True), ("never", False, False)],
)
def test_the_knob_and_the_signal_decide(knob: str, want_by_call: bool, want_by_sigterm: bool, a_server: Any) -> None:
    policy = StopPolicy(knob, can_keep=True)
    policy.watch(a_server)
    assert policy.keeps_kernels() is want_by_call
    signal.raise_signal(signal.SIGTERM)
    assert policy.keeps_kernels() is want_by_sigterm
    assert a_server.stopped_by == [signal.SIGTERM]


@pytest.mark.parametrize("knob", ["auto", "always"])
def test_what_could_not_be_found_again_is_not_kept(knob: str, a_server: Any) -> None:
    policy = StopPolicy(knob, can_keep=False)
    policy.watch(a_server)
    signal.raise_signal(signal.SIGTERM)
    assert not policy.keeps_kernels()
    assert not policy.lets_kernels_outlive


def test_a_process_with_a_handler_of_its_own_keeps_it(a_server: Any) -> None:
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    policy = StopPolicy("auto", can_keep=True)
    policy.watch(a_server)
    signal.raise_signal(signal.SIGTERM)
    assert seen == [signal.SIGTERM]
    assert not policy.keeps_kernels()
