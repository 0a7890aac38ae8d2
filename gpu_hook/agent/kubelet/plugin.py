"""The kubelet's device plugin: it offers slots for kernel pods, and answers Allocate.

It registers again after a restart of the kubelet, which removes all plugins' sockets and makes its
own anew, and with a kubelet that no longer reads its devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import grpc

from jupyter_aliquot.gpu_hook.base.pacing import Backoff

from .messages import (
    DEVICE_PLUGIN_SERVICE,
    DEVICE_PLUGIN_VERSION,
    HEALTHY,
    REGISTRATION_SERVICE,
    UNHEALTHY,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    RegisterRequest,
)
from .settings import KubeletSettings
from .wire import decode, encode

log = logging.getLogger(__name__)

_CALL_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_LAST_RETRY_SECONDS = 15.0
_END_SECONDS = 1.0
# Looks without a reader of the devices, until the plugin registers again: after the kubelet has
# stopped reading, and while a slow one has not begun to.
_MOST_LOOKS_AFTER, _MOST_LOOKS_BEFORE = 5, 60

_Identity = tuple[int, int, int]


class AllocationError(Exception):
    """A container cannot get what the kubelet chose for it."""


class DevicePlugin:
    """The plugin of one resource.

    ``names`` are its devices. ``is_healthy`` tells whether new pods may get them. ``allocate``
    returns what the container with a device gets, or raises AllocationError.
    """

    def __init__(
        self,
        settings: KubeletSettings,
        names: tuple[str, ...],
        is_healthy: Callable[[], bool],
        allocate: Callable[[str], Any],
    ) -> None:
        self._settings = settings
        self._names = names
        self._is_healthy = is_healthy
        self._allocate = allocate
        self._told = False  # the health that watchers were last told
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None
        self._registered_with: _Identity | None = None
        self._readers = 0  # open streams of ListAndWatch
        self._was_read = False  # since the registration
        self._unread_looks = 0
        self._problem = ""

    @property
    def is_registered(self) -> bool:
        """Return whether the present kubelet knows the plugin."""
        return self._registered_with is not None

    async def run(self) -> None:
        """Serve and register for as long as the agent runs."""
        waits = Backoff(_LOOK_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            try:
                await self.look()
                waits.reset()
                pause = _LOOK_SECONDS
            except (grpc.RpcError, OSError, RuntimeError) as error:
                self._note_problem(error)
                pause = waits.next_seconds()
            await asyncio.sleep(pause)

    async def look(self) -> None:
        """Tell the watchers of a changed health, and register with a kubelet that is new.

        Raises grpc.RpcError, OSError and RuntimeError.
        """
        await self._tell_health()
        kubelet = _identity(os.stat(self._settings.registration_socket))
        if kubelet == self._registered_with and self._has_socket() and self._is_read():
            return
        self._registered_with, self._was_read, self._unread_looks = None, False, 0
        await self._serve()
        await self._register()
        self._registered_with, self._problem = kubelet, ""
        log.info("event=plugin_registered resource=%s slots=%d", self._settings.resource, len(self._names))

    async def close(self) -> None:
        """End the server; the kubelet then takes the devices for unhealthy."""
        if self._server is not None:
            await self._server.stop(_END_SECONDS)
            self._server = None
        with contextlib.suppress(OSError):
            (self._settings.plugins / self._settings.endpoint).unlink()

    # ---- the plugin's side of the service

    async def options(self, request: Empty, context: grpc.aio.ServicerContext) -> DevicePluginOptions:
        """Called by the kubelet after the registration."""
        return DevicePluginOptions()

    async def list_and_watch(
        self, request: Empty, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[ListAndWatchResponse]:
        """Called by the kubelet, which reads for as long as it runs."""
        self._readers, self._was_read = self._readers + 1, True
        try:
            while True:
                told = self._told
                yield self._devices(told)
                async with self._changed:
                    await self._changed.wait_for(partial(self._differs, told))
        finally:
            self._readers -= 1

    async def allocate(self, request: AllocateRequest, context: grpc.aio.ServicerContext) -> AllocateResponse:
        """Called by the kubelet before it creates a pod's containers."""
        responses: list[ContainerAllocateResponse] = []
        for container in request.container_requests:
            if len(container.device_ids) != 1:
                told = f"Requested {len(container.device_ids)} of {self._settings.resource} for a container. Request 1"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, told)
            try:
                responses.append(await self._allocate(container.device_ids[0]))
            except AllocationError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return AllocateResponse(tuple(responses))

    # ---- registration

    async def _serve(self) -> None:
        await self.close()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._handler(),))
        server.add_insecure_port(f"unix:{os.fspath(self._settings.plugins / self._settings.endpoint)}")
        await server.start()
        self._server = server

    def _handler(self) -> grpc.GenericRpcHandler:
        methods = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                self.options, request_deserializer=partial(decode, Empty), response_serializer=encode
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self.list_and_watch, request_deserializer=partial(decode, Empty), response_serializer=encode
            ),
            "Allocate": grpc.unary_unary_rpc_method_handler(
                self.allocate, request_deserializer=partial(decode, AllocateRequest), response_serializer=encode
            ),
        }
        return grpc.method_handlers_generic_handler(DEVICE_PLUGIN_SERVICE, methods)

    async def _register(self) -> None:
        settings = self._settings
        request = RegisterRequest(DEVICE_PLUGIN_VERSION, settings.endpoint, settings.resource)
        async with grpc.aio.insecure_channel(f"unix:{os.fspath(settings.registration_socket)}") as channel:
            call: Any = channel.unary_unary(
                f"/{REGISTRATION_SERVICE}/Register",
                request_serializer=encode,
                response_deserializer=partial(decode, Empty),
            )
            await call(request, timeout=_CALL_SECONDS)

    def _has_socket(self) -> bool:
        return (self._settings.plugins / self._settings.endpoint).exists()

    def _is_read(self) -> bool:
        """Return whether the kubelet reads the devices, or may begin to. It stops at an error of the stream."""
        self._unread_looks = 0 if self._readers else self._unread_looks + 1
        return self._unread_looks < (_MOST_LOOKS_AFTER if self._was_read else _MOST_LOOKS_BEFORE)

    async def _tell_health(self) -> None:
        health = self._is_healthy()
        if health is not self._told:
            log.info("event=plugin_health is_healthy=%s", health)
            async with self._changed:
                self._told = health
                self._changed.notify_all()

    def _differs(self, told: bool) -> bool:
        return self._told is not told

    def _devices(self, is_healthy: bool) -> ListAndWatchResponse:
        health = HEALTHY if is_healthy else UNHEALTHY
        return ListAndWatchResponse(tuple(Device(name, health) for name in self._names))

    def _note_problem(self, error: Exception) -> None:
        """Log a problem once, until it is over."""
        self._registered_with = None
        details = error.details() if isinstance(error, grpc.aio.AioRpcError) else None
        told = str(details or error)
        if told != self._problem:
            log.warning("event=plugin_not_registered reason=%r", told)
            self._problem = told


def _identity(found: os.stat_result) -> _Identity:
    """Return what differs between two sockets that were made at one path."""
    return found.st_dev, found.st_ino, found.st_ctime_ns
