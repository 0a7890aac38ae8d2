"""The sidecar of a kernel's pod: it leads the gateway's connections to the kernel's sockets, over TLS.

It writes the kernel's connection file before it listens, so that the kernel finds it: the cluster
starts the kernel's container when this port answers. It reads no message, and keeps none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import json
import os
import signal
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from .stream import CHANNELS, LIFE, LONGEST_LINE, OK, has_sockets, pipe

_GREETING_SECONDS = 10.0
_LOOK_SECONDS = 0.05
# As the pod's manifest names it (kernel_pod.py, which this small program does not import). Without
# it the sidecar listens at all addresses.
_ADDRESS_VARIABLE = "ALIQUOT_POD_IP"
SCHEME = "hmac-sha256"


class Sidecar:
    """The connections of one kernel, whose sockets are ``s-1`` to ``s-5`` in *folder*."""

    def __init__(self, folder: Path, token: str) -> None:
        self._folder = folder
        self._token = token.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from its first line to its end."""
        try:
            channel = await self._channel(reader)
            if channel == LIFE:
                await self._until_kernel()
                writer.write(OK)
                await writer.drain()
                await reader.read()
            elif channel in CHANNELS:
                theirs = await asyncio.open_unix_connection(os.fspath(self._folder / f"s-{channel}"))
                writer.write(OK)
                await pipe((reader, writer), theirs)
        except (OSError, asyncio.TimeoutError, ValueError):
            pass  # the gateway sees that the connection is over, and asks again
        finally:
            writer.close()

    async def _channel(self, reader: asyncio.StreamReader) -> str:
        """Return the channel that a connection asks for; empty for one without the token."""
        line = await asyncio.wait_for(reader.readline(), _GREETING_SECONDS)
        token, _, channel = line.strip().partition(b" ")
        return channel.decode("ascii") if hmac.compare_digest(token, self._token) else ""

    async def _until_kernel(self) -> None:
        while not has_sockets(self._folder):  # noqa: ASYNC110  # another process makes them
            await asyncio.sleep(_LOOK_SECONDS)


def write_connection_file(folder: Path, key: str) -> None:
    """Write the kernel's connection file. Raises OSError."""
    names = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
    told = {
        **{name: int(channel) for name, channel in zip(names, CHANNELS, strict=True)},
        "transport": "ipc",
        "ip": os.fspath(folder / "s"),
        "key": key,
        "signature_scheme": SCHEME,
        "kernel_name": "",
    }
    new = folder / "connection.json.new"
    new.write_text(json.dumps(told))
    new.replace(folder / "connection.json")


async def run(folder: Path, keys: Path, host: str, port: int) -> None:
    """Serve until SIGTERM. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(keys / "tls.crt", keys / "tls.key")
    write_connection_file(folder, (keys / "connection-key").read_text())
    sidecar = Sidecar(folder, (keys / "token").read_text().strip())
    ended = asyncio.Event()
    # The first process of a container gets no signal that it does not handle.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = await asyncio.start_server(sidecar.serve, host or None, port, ssl=context, limit=LONGEST_LINE)
    await ended.wait()
    server.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sidecar; return the exit code."""
    parser = argparse.ArgumentParser(description="Lead a gateway's connections to the kernel of this pod.")
    parser.add_argument("--connection", type=Path, required=True, help="folder of the kernel's sockets")
    parser.add_argument("--keys", type=Path, required=True, help="folder of the kernel's Secret")
    parser.add_argument("--port", type=int, required=True, help="port for the gateway")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(run(options.connection, options.keys, os.environ.get(_ADDRESS_VARIABLE, ""), options.port))
    except OSError as error:
        print(f"aliquot sidecar: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
