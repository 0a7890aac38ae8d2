"""The program of a pod's sidecar: it writes the kernel's connection file, listens, and serves.

The cluster starts the kernel's container when its port answers. So it listens before it imports what
it serves with: connections wait in the socket meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

# The numbers of shell, iopub, stdin, heartbeat and control in a connection file over ipc.
_PORTS = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "hb_port": 4, "control_port": 5}
# As the pod's manifest names it (kernel_pod.py, which this small program does not import). Without
# it the sidecar listens at all addresses.
_ADDRESS_VARIABLE = "ALIQUOT_POD_IP"
_WAITING_CONNECTIONS = 100
SCHEME = "hmac-sha256"


def write_connection_file(folder: Path, key: str) -> None:
    """Write the kernel's connection file. Raises OSError."""
    told = {
        **_PORTS,
        "transport": "ipc",
        "ip": os.fspath(folder / "s"),
        "key": key,
        "signature_scheme": SCHEME,
        "kernel_name": "",
    }
    new = folder / "connection.json.new"
    new.write_text(json.dumps(told))
    new.replace(folder / "connection.json")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of this pod; empty: at all. Raises OSError."""
    if host:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(found[4][:2], family=found[0], backlog=_WAITING_CONNECTIONS)
    return socket.create_server(
        ("", port),
        family=socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET,
        backlog=_WAITING_CONNECTIONS,
        dualstack_ipv6=socket.has_dualstack_ipv6(),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sidecar; return the exit code."""
    parser = argparse.ArgumentParser(description="Lead a gateway's connections to the kernel of this pod.")
    parser.add_argument("--connection", type=Path, required=True, help="folder of the kernel's sockets")
    parser.add_argument("--keys", type=Path, required=True, help="folder of the kernel's Secret")
    parser.add_argument("--port", type=int, required=True, help="port for the gateway")
    options = parser.parse_args(arguments)
    try:
        write_connection_file(options.connection, (options.keys / "connection-key").read_text())
        listening = listen(os.environ.get(_ADDRESS_VARIABLE, ""), options.port)
        # Imported here: it takes longer than all before, and the kernel starts meanwhile.
        import asyncio

        from .serving import run

        asyncio.run(run(options.connection, options.keys, listening))
    except OSError as error:
        print(f"aliquot sidecar: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
