"""The service of a pod's sidecar: it leads the gateway's connections to the kernel, over TLS.

What the kernel sends is kept (`keeper`) until the gateway's relay is done with it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import signal
import socket
import ssl
from pathlib import Path

from jupyter_aliquot.provisioner.relay.store.spill_room import sweep
from jupyter_aliquot.provisioner.relay.wire.messages import Signer, new_id

from .keeper import Keeper
from .stream import CHANNELS, KEPT, LIFE, LIFE_BEFORE, LONGEST_LINE, OK, pipe

_GREETING_SECONDS = 10.0
_LAST_PART = 0.8  # of the pod's grace period: for what no gateway has taken at its end


class Sidecar:
    """The connections of one kernel, whose sockets are ``s-1`` to ``s-5`` in *folder*."""

    def __init__(self, folder: Path, token: str, keeper: Keeper) -> None:
        self._folder = folder
        self._keeper = keeper
        self._token = token.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from its first line to its end."""
        try:
            channel = await self._channel(reader)
            if channel in (LIFE, LIFE_BEFORE):
                await self._keeper.joined.wait()
                writer.write(OK)
                await writer.drain()
                await reader.read()
            elif channel == KEPT:
                await self._keeper.joined.wait()  # the gateway connects ahead
                writer.write(OK)
                await self._keeper.serve((reader, writer))
            elif channel in CHANNELS:
                await self._keeper.joined.wait()
                theirs = await asyncio.open_unix_connection(os.fspath(self._folder / f"s-{channel}"))
                writer.write(OK)
                await pipe((reader, writer), theirs)
        except asyncio.CancelledError:
            return  # the sidecar's end; before 3.12 asyncio logs a cancelled connection as an error
        except (OSError, asyncio.TimeoutError, ValueError):
            pass  # the gateway sees that the connection is over, and asks again
        finally:
            writer.close()

    async def _channel(self, reader: asyncio.StreamReader) -> str:
        """Return the channel that a connection asks for; empty for one without the token."""
        line = await asyncio.wait_for(reader.readline(), _GREETING_SECONDS)
        token, _, channel = line.strip().partition(b" ")
        return channel.decode("ascii") if hmac.compare_digest(token, self._token) else ""


async def run(
    folder: Path, keys: Path, listening: socket.socket, output: Path, most_bytes: int, grace_seconds: float
) -> None:
    """Serve until SIGTERM. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(keys / "tls.crt", keys / "tls.key")
    told = json.loads((keys / "connection.json").read_text())
    kept = output / "kept"  # its own: a volume's folder is the node's
    sweep(kept)  # what a killed sidecar left
    keeper = Keeper(folder, kept, most_bytes, Signer(told["key"], told["signature_scheme"], new_id()))
    sidecar = Sidecar(folder, (keys / "token").read_text().strip(), keeper)
    ended = asyncio.Event()
    # The first process of a container gets no signal that it does not handle.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = await asyncio.start_server(sidecar.serve, sock=listening, ssl=context, limit=LONGEST_LINE)
    keeping = asyncio.create_task(keeper.keep(), name="aliquot-keeper")
    ending = asyncio.create_task(ended.wait())
    await asyncio.wait({keeping, ending}, return_when=asyncio.FIRST_COMPLETED)
    if keeping.done():
        keeping.result()  # raises what it failed with: the sidecar is started again
    await ending
    await keeper.finish(_LAST_PART * grace_seconds)
    server.close()
