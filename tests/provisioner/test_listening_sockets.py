"""The listening sockets, as the kernel's diagnostics tell them, and its tables where there are none."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from jupyter_aliquot.provisioner import listening_sockets
from jupyter_aliquot.provisioner.listener import is_this_machine
from jupyter_aliquot.provisioner.listening_sockets import ListeningSocket

BOUND = {"127.0.0.1": socket.AF_INET, "0.0.0.0": socket.AF_INET, "::1": socket.AF_INET6, "::": socket.AF_INET6}


@pytest.fixture
def want_listening() -> Iterator[set[ListeningSocket]]:
    """Listen at each kind of address, and yield how these sockets are to be told."""
    with ExitStack() as stack:
        found = set()
        for address, family in BOUND.items():
            if family == socket.AF_INET6 and not os.path.exists("/proc/net/tcp6"):
                continue
            listener = stack.enter_context(socket.socket(family))
            listener.bind((address, 0))
            listener.listen()
            found.add(ListeningSocket(address, listener.getsockname()[1], os.geteuid()))
        yield found


def test_the_kernels_diagnostics_tell_listening_sockets_and_no_connections(
    want_listening: set[ListeningSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_sockets, "_TABLES", ())
    found = set(listening_sockets.listening_sockets())
    assert want_listening <= found
    port = next(one.port for one in want_listening if one.address == "127.0.0.1")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        ours = connection.getsockname()[1]
        assert ours not in {one.port for one in listening_sockets.listening_sockets()}


def test_the_tables_tell_the_same_where_the_kernel_has_no_diagnostics(
    want_listening: set[ListeningSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_sockets, "_NETLINK_SOCK_DIAG", 31)  # a family that no kernel has
    assert want_listening <= set(listening_sockets.listening_sockets())


@pytest.mark.parametrize(
    ("host", "want"),
    [
        ("localhost", True),
        ("127.0.0.2", True),
        ("::1", True),
        (socket.gethostname().upper(), True),
        ("192.0.2.1", False),  # of no machine: for documents
        ("gpu.example.org", False),
        ("", False),
    ],
)
def test_a_host_is_this_machine_by_its_loopback_its_name_or_an_address_of_its_own(host: str, want: bool) -> None:
    assert is_this_machine(host) is want
