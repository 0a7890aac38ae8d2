"""The gateway's end of a pod's tunnel: sockets in the folder of the kernel's relay, which stands beside it.

They are there while the pod's kernel is: one for the relay, and the kernel's own for an interrupt. No
message is read here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import zmq
import zmq.asyncio

from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.gpu_hook.waiting import end_task, within
from jupyter_aliquot.provisioner.errors import EngineError, EngineUnavailableError, StateError
from jupyter_aliquot.provisioner.kubernetes.protection import SCHEME
from jupyter_aliquot.provisioner.kubernetes.settings import RelayKeys
from jupyter_aliquot.provisioner.relay.wire.messages import Signer, new_id

from .keys import client_context
from .pipe import Stream, has_sockets, pipe
from .stream import CHANNELS, KEPT, LIFE, LIFE_BEFORE, LONGEST_LINE, OK

_CONNECT_SECONDS = 10.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 5.0
_LOOK_SECONDS = 0.25
_INTERRUPT_SECONDS = 5.0
_CONTROL = CHANNELS[-1]
# By a socket's name in the folder: the channel that it leads to. A relay of an older version has the
# kernel's own sockets, for its pod's sidecar keeps nothing.
_CHANNELS, _CHANNELS_BEFORE = {"1": KEPT, _CONTROL: _CONTROL}, {one: one for one in CHANNELS}


class KernelTunnel:
    """The tunnel to the kernel at *address*, whose sockets it makes in *folder* as ``s-1`` and ``s-5``.

    *read_keys* returns the kernel's keys; it is called when they are needed first. *is_kept* is false for a
    pod of an older version, whose sidecar leads to the kernel's sockets and keeps nothing.
    """

    def __init__(
        self,
        kernel_id: str,
        address: tuple[str, int],
        read_keys: Callable[[], Awaitable[RelayKeys]],
        folder: Path,
        log: logging.Logger,
        *,
        is_kept: bool = True,
    ) -> None:
        self._channels = _CHANNELS if is_kept else _CHANNELS_BEFORE
        self._life = LIFE if is_kept else LIFE_BEFORE
        self._kernel_id = kernel_id
        self._address = address
        self._read_keys = read_keys
        self._keys: RelayKeys | None = None
        self._folder = folder
        self._log = log
        self._context: ssl.SSLContext | None = None
        self._servers: list[asyncio.AbstractServer] = []
        self._passing: set[asyncio.Task[None]] = set()
        # The first connection to each socket, made while the kernel starts: handshakes take time.
        self._ahead: dict[str, asyncio.Future[Stream]] = {}
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Lead connections to the kernel, and connect again after each loss, until `close`."""
        if self._keeper is None:
            self._mark.unlink(missing_ok=True)
            self._keeper = asyncio.create_task(self._keep(), name=f"aliquot-tunnel-{self._kernel_id}")

    async def close(self) -> None:
        """End the tunnel. Idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await end_task(keeper)

    def note_end(self) -> None:
        """Tell the relay that the pod has ended: its sidecar may have had no time to."""
        if self._keeper is not None:
            with contextlib.suppress(OSError):
                self._mark.touch()

    @property
    def _mark(self) -> Path:
        return self._folder / "over"

    async def interrupt(self) -> None:
        """Have the kernel interrupt itself by a message: no signal reaches into a pod. Raises EngineError."""
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        try:
            socket.connect(f"ipc://{self._path(_CONTROL)}")
            signer = Signer((await self._known_keys()).connection_key, SCHEME, new_id())
            await socket.send_multipart(signer.message("interrupt_request", {}))
            await within(socket.recv_multipart(), _INTERRUPT_SECONDS)
        except asyncio.TimeoutError:
            raise EngineUnavailableError(
                f"The kernel did not take the interrupt within {_INTERRUPT_SECONDS:g} s. Try again, or restart it"
            ) from None
        except (zmq.ZMQError, OSError) as error:
            raise EngineError(f"The interrupt cannot be sent to the kernel: {error}") from error
        finally:
            socket.close()
            context.term()

    async def _keep(self) -> None:
        waits = Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        try:
            while True:
                try:
                    life = await self._connect(self._life)
                    ahead = [one for one in self._channels.values() if one != _CONTROL]
                    self._ahead = {one: asyncio.ensure_future(self._connect(one)) for one in ahead}
                    await self._live(life)
                    waits.reset()
                    await self._lead(life)
                except StateError as error:
                    self._log.error("kernel=%s tunnel=none reason=%s", self._kernel_id, error)
                except (OSError, asyncio.TimeoutError, EngineError) as error:
                    self._log.debug("kernel=%s tunnel=lost reason=%s", self._kernel_id, error)
                except Exception:
                    self._log.exception("kernel=%s tunnel=failed; it is made again", self._kernel_id)
                finally:
                    await self._drop_ahead()
                await asyncio.sleep(waits.next_seconds())
        finally:
            await self._stop_leading()

    async def _lead(self, life: Stream) -> None:
        """Have the sockets in the folder until the pod's end."""
        ended = asyncio.ensure_future(life[0].read())
        waits, until = Backoff(_LOOK_SECONDS, _LONGEST_WAIT_SECONDS), 0.0
        loop = asyncio.get_running_loop()
        try:
            await self._listen()  # the names that a killed gateway left lead nowhere
            while not ended.done():
                # The relay empties the folder when it takes the kernel for ended, each time that it looks.
                if not has_sockets(self._folder, self._channels) and loop.time() >= until:
                    await self._stop_leading()
                    await self._listen()
                    until = loop.time() + waits.next_seconds()
                await asyncio.wait({ended}, timeout=_LOOK_SECONDS)
        finally:
            ended.cancel()
            life[1].close()
            await self._stop_leading()

    async def _listen(self) -> None:
        for name, channel in self._channels.items():
            self._servers.append(await asyncio.start_unix_server(self._handler(channel), os.fspath(self._path(name))))
        self._log.info("kernel=%s tunnel=up address=%s:%d", self._kernel_id, *self._address)

    async def _stop_leading(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        passing = list(self._passing)
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
        for channel in self._channels if servers else ():
            with contextlib.suppress(OSError):
                self._path(channel).unlink()

    def _handler(self, channel: str):  # type: ignore[no-untyped-def]  # asyncio's own protocol
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None  # asyncio runs each connection in a task
            self._passing.add(task)
            try:
                await pipe((reader, writer), await self._opened(channel))
            except asyncio.CancelledError:
                return  # the tunnel's end; before 3.12 asyncio logs a cancelled connection as an error
            except (OSError, asyncio.TimeoutError, EngineError) as error:
                self._log.debug("kernel=%s channel=%s lost reason=%s", self._kernel_id, channel, error)
            finally:
                self._passing.discard(task)
                writer.close()

        return handle

    async def _opened(self, channel: str) -> Stream:
        """Return the connection that was made ahead, or a new one. Raises OSError, TimeoutError and EngineError."""
        ahead = self._ahead.pop(channel, None)
        if ahead is None:
            return await self.open(channel)
        stream = await ahead
        await within(self._accepted(stream), _CONNECT_SECONDS)
        return stream

    async def _drop_ahead(self) -> None:
        ahead, self._ahead = list(self._ahead.values()), {}
        for one in ahead:
            one.cancel()
        for stream in await asyncio.gather(*ahead, return_exceptions=True):
            if isinstance(stream, tuple):
                stream[1].close()

    async def open(self, channel: str) -> Stream:
        """Return a connection to one of the kernel's sockets. Raises OSError, TimeoutError and EngineError."""
        stream = await self._connect(channel)
        # The kernel may take long to make its sockets.
        await (self._accepted(stream) if channel == self._life else within(self._accepted(stream), _CONNECT_SECONDS))
        return stream

    async def _live(self, life: Stream) -> None:
        """Wait for the kernel. Raises OSError, EngineError, and StateError for a sidecar that keeps nothing."""
        try:
            await self._accepted(life)
        except EngineUnavailableError:
            if self._life == LIFE and await self._is_older():
                raise StateError(
                    "The sidecar of the pod is of an older version than the gateway, and keeps no output. Set "
                    "c.KernelPods.relay_image to an image of the gateway's version, and restart the kernel"
                ) from None
            raise

    async def _is_older(self) -> bool:
        """Return whether the sidecar knows the word of older versions. Raises OSError, TimeoutError and EngineError."""
        life = await self._connect(LIFE_BEFORE)
        try:
            await within(self._accepted(life), _CONNECT_SECONDS)
        except (EngineUnavailableError, asyncio.TimeoutError):
            return False
        finally:
            life[1].close()
        return True

    async def _accepted(self, stream: Stream) -> None:
        """Wait for the sidecar's word; a connection without it is closed. Raises OSError and EngineError."""
        try:
            if await stream[0].readline() != OK:
                raise EngineUnavailableError("the pod's sidecar refused the connection")
        except BaseException:
            stream[1].close()
            raise

    async def _connect(self, channel: str) -> Stream:
        """Return a connection that asked for a channel. Raises OSError, TimeoutError and EngineError."""
        keys = await self._known_keys()
        if self._context is None:
            self._context = client_context(keys)
        connecting = asyncio.open_connection(*self._address, ssl=self._context, limit=LONGEST_LINE)
        reader, writer = await within(connecting, _CONNECT_SECONDS)
        try:
            writer.write(f"{keys.token} {channel}\n".encode())
            await writer.drain()
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _known_keys(self) -> RelayKeys:
        if self._keys is None:
            self._keys = await self._read_keys()
        return self._keys

    def _path(self, channel: str) -> Path:
        return self._folder / f"s-{channel}"
