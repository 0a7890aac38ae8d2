"""The program of a pod's sidecar: it listens, and serves.

The kernel starts meanwhile. It listens before it imports what it serves with: connections wait in the
socket. What it imports takes the kernel a part of its processors: neither asyncio nor argparse.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

# As the pod's manifest names it (kernel_pod.py, which this small program does not import). Without
# it the sidecar listens at all addresses.
_ADDRESS_VARIABLE = "ALIQUOT_POD_IP"
# The folder for output that no relay is done with, the bound of it, and the pod's grace period. Not options:
# an older sidecar ends at an option that it does not know, and the gateway could not tell why.
_OUTPUT_VARIABLE, _BOUND_VARIABLE, _GRACE_VARIABLE = "ALIQUOT_OUTPUT", "ALIQUOT_OUTPUT_BYTES", "ALIQUOT_GRACE_SECONDS"
_WAITING_CONNECTIONS = 100
_USUAL_BYTES = 1 << 30
_USUAL_GRACE_SECONDS = 30.0  # Kubernetes' own


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of this pod; empty: at all. Raises OSError."""
    if host:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.create_server(found[4][:2], family=found[0], backlog=_WAITING_CONNECTIONS)
    else:
        is_dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual else socket.AF_INET
        made = socket.create_server(("", port), family=family, backlog=_WAITING_CONNECTIONS, dualstack_ipv6=is_dual)
    # Connections inherit it. asyncio sets it for sockets that name their protocol alone, and a reply would
    # wait 40 ms for the gateway's acknowledgement of what went before.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def read_options(words: Sequence[str]) -> tuple[Path, Path, int]:
    """Return the folder of the kernel's sockets, that of its Secret, and the port. Ends the program for other words."""
    given = dict(zip(words[::2], words[1::2], strict=False))
    port = given.get("--port", "")
    if len(words) == 6 and given.keys() == {"--connection", "--keys", "--port"} and port.isdecimal():
        return Path(given["--connection"]), Path(given["--keys"]), int(port)
    # Imported here: a pod's manifest has the words above.
    import argparse

    parser = argparse.ArgumentParser(description="Lead a gateway's connections to the kernel of this pod.")
    parser.add_argument("--connection", type=Path, required=True, help="folder of the kernel's sockets")
    parser.add_argument("--keys", type=Path, required=True, help="folder of the kernel's Secret")
    parser.add_argument("--port", type=int, required=True, help="port for the gateway")
    options = parser.parse_args(words)
    return options.connection, options.keys, options.port


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sidecar; return the exit code."""
    connection, keys, port = read_options(sys.argv[1:] if arguments is None else arguments)
    try:
        listening = listen(os.environ.get(_ADDRESS_VARIABLE, ""), port)
        gc.disable()  # all that is imported stays
        # Imported here: it takes longer than all before.
        from .serving import run

        gc.freeze()
        gc.enable()
        output = Path(os.environ.get(_OUTPUT_VARIABLE) or "/tmp")
        most_bytes = int(os.environ.get(_BOUND_VARIABLE) or _USUAL_BYTES)
        grace = float(os.environ.get(_GRACE_VARIABLE) or _USUAL_GRACE_SECONDS)
        run(connection, keys, listening, output, most_bytes, grace)
    except (OSError, ValueError) as error:
        print(f"aliquot sidecar: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
