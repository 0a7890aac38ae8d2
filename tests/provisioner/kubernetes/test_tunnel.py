"""The tunnel between gateway and pod: the real sidecar as a process, and sockets in the kernel's place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from jupyter_aliquot.provisioner.errors import EngineUnavailableError
from jupyter_aliquot.provisioner.kubernetes.settings import RelayKeys
from jupyter_aliquot.provisioner.kubernetes.tunnel import gateway
from jupyter_aliquot.provisioner.kubernetes.tunnel.gateway import KernelTunnel
from jupyter_aliquot.provisioner.kubernetes.tunnel.keys import make_keys
from jupyter_aliquot.provisioner.kubernetes.tunnel.sidecar import listen
from jupyter_aliquot.provisioner.kubernetes.tunnel.stream import CHANNELS

from .conftest import PATIENCE_SECONDS, until

KEYS = make_keys("a-key")
LOG = logging.getLogger("test")


class Pod:
    """A sidecar, and the folders that its pod gives it."""

    def __init__(self, folder: Path) -> None:
        self.connection, self.keys, self.here = folder / "c", folder / "k", folder / "h"
        for one in (self.connection, self.keys, self.here):
            one.mkdir()
        told = {"token": KEYS.token.encode(), "tls.crt": KEYS.certificate, "tls.key": KEYS.private_key}
        told["connection.json"] = b'{"key": "a-key", "signature_scheme": "hmac-sha256"}'
        for name, value in told.items():
            (self.keys / name).write_bytes(value)
        self.port = free_port()
        words = ["-m", "jupyter_aliquot.provisioner.kubernetes.tunnel.sidecar", "--connection", str(self.connection)]
        words += ["--keys", str(self.keys), "--port", str(self.port)]
        env = {**os.environ, "ALIQUOT_POD_IP": "127.0.0.1", "ALIQUOT_OUTPUT": str(folder)}
        self.process = subprocess.Popen([sys.executable, *words], env=env)
        self._servers: list[asyncio.AbstractServer] = []

    def tunnel(self, keys: RelayKeys = KEYS, *, is_kept: bool = True) -> KernelTunnel:
        async def read() -> RelayKeys:
            return keys

        return KernelTunnel("k", ("127.0.0.1", self.port), read, self.here, LOG, is_kept=is_kept)

    async def begin_kernel(self) -> None:
        """Make the kernel's sockets, each of which answers what it hears, with its number before."""
        for channel in CHANNELS:

            async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channel: str = channel) -> None:
                while piece := await reader.read(1 << 16):
                    writer.write(channel.encode() + piece)
                writer.close()

            self._servers.append(await asyncio.start_unix_server(echo, self.connection / f"s-{channel}"))

    def end_kernel(self) -> None:
        for server in self._servers:
            server.close()

    async def ask(self, channel: str, said: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self.here / f"s-{channel}")
        writer.write(said)
        answer = await asyncio.wait_for(reader.readexactly(len(said) + 1), PATIENCE_SECONDS)
        writer.close()
        return answer

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def has_sockets(self, *channels: str) -> bool:
        return all((self.here / f"s-{channel}").exists() for channel in channels or ("1", "5"))


@pytest.fixture
def a_pod() -> Iterator[Pod]:
    folder = Path(tempfile.mkdtemp(prefix="aqt-"))  # short: paths of sockets are
    pod = Pod(folder)
    yield pod
    pod.process.kill()
    pod.process.wait()
    shutil.rmtree(folder)


def test_sockets_are_there_with_the_kernel_and_lead_to_it(a_pod: Pod) -> None:
    async def scene() -> None:
        tunnel = a_pod.tunnel()
        tunnel.start()
        await until(a_pod.listens)
        assert not a_pod.has_sockets(), "a relay would take the kernel for one that answers"
        await a_pod.begin_kernel()
        await until(a_pod.has_sockets)
        assert await a_pod.ask("5", b"hello") == b"5hello"
        # The relay empties the folder when it has lost the kernel.
        (a_pod.here / "s-5").unlink()
        await until(a_pod.has_sockets)
        assert await a_pod.ask("5", b"again") == b"5again"
        a_pod.process.send_signal(signal.SIGTERM)
        await until(lambda: not a_pod.has_sockets())
        await tunnel.close()
        a_pod.end_kernel()

    asyncio.run(scene())
    assert a_pod.process.wait(PATIENCE_SECONDS) == 0


def test_a_relay_of_an_older_version_has_the_kernels_own_sockets(a_pod: Pod) -> None:
    async def scene() -> None:
        await a_pod.begin_kernel()
        tunnel = a_pod.tunnel(is_kept=False)
        tunnel.start()
        await until(lambda: a_pod.has_sockets(*CHANNELS))
        assert [await a_pod.ask(channel, b"hello") for channel in CHANNELS] == [
            f"{channel}hello".encode() for channel in CHANNELS
        ]
        await tunnel.close()
        a_pod.end_kernel()

    asyncio.run(scene())


def test_a_sidecar_of_an_older_version_is_told_with_what_to_do(
    a_pod: Pod, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        await a_pod.begin_kernel()
        monkeypatch.setattr(gateway, "LIFE", "a word that the sidecar does not know")
        tunnel = a_pod.tunnel()
        tunnel.start()
        await until(lambda: "tunnel=none" in caplog.text)
        assert "of an older version than the gateway, and keeps no output. Set c.KernelPods.relay_image" in caplog.text
        assert not a_pod.has_sockets()
        await tunnel.close()
        a_pod.end_kernel()

    asyncio.run(scene())


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_reply_does_not_wait_for_an_acknowledgement(host: str) -> None:
    with listen(host, 0) as listening:
        with socket.create_connection(("127.0.0.1", listening.getsockname()[1])):
            connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_neither_another_token_nor_another_certificate_opens_a_tunnel(a_pod: Pod) -> None:
    async def scene() -> None:
        await a_pod.begin_kernel()
        right = a_pod.tunnel()
        right.start()
        await until(a_pod.has_sockets)
        await right.close()
        assert not a_pod.has_sockets()
        with pytest.raises(EngineUnavailableError, match="refused"):
            await a_pod.tunnel(replace(KEYS, token="another-token")).open("1")
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            await a_pod.tunnel(make_keys("a-key")).open("1")
        a_pod.end_kernel()

    asyncio.run(scene())


def test_a_cancellation_that_meets_the_end_of_connecting_is_not_lost(
    a_pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        await until(a_pod.listens)
        connect = asyncio.open_connection

        async def connect_and_cancel(*words: Any, **options: Any) -> Any:
            found = await connect(*words, **options)
            opening.cancel()
            return found

        monkeypatch.setattr(asyncio, "open_connection", connect_and_cancel)
        opening = asyncio.ensure_future(a_pod.tunnel().open("1"))  # no kernel is there to answer
        await asyncio.wait({opening}, timeout=PATIENCE_SECONDS)
        assert opening.cancelled()

    asyncio.run(scene())


def test_the_end_of_a_tunnel_with_open_connections_is_no_error(a_pod: Pod, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        await a_pod.begin_kernel()
        tunnel = a_pod.tunnel()
        tunnel.start()
        await until(a_pod.has_sockets)
        reader, writer = await asyncio.open_unix_connection(a_pod.here / "s-5")
        writer.write(b"hello")
        assert await asyncio.wait_for(reader.readexactly(6), PATIENCE_SECONDS) == b"5hello"
        await tunnel.close()
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
        writer.close()
        a_pod.end_kernel()

        assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []

    asyncio.run(scene())
