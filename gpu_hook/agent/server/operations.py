"""The operations of the control socket: they check a request, perform it, and answer.

Untrusted fields end here. ``answer`` never raises: an error is an answer with a code of
docs/reference/agent-protocol.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity
from jupyter_aliquot.gpu_hook.agent.devices.libraries import Libraries
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Refused, Reservations
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.trimming.trimmer import Trims
from jupyter_aliquot.gpu_hook.paths import Driver

from .guests import Guests
from .lease_operations import LeaseOperations
from .request_fields import (
    is_int,
    read_attributes,
    read_class,
    read_int,
    read_kernel_id,
    read_placement,
    read_residency,
    read_seconds,
    read_size,
    read_text,
)
from .status import describe_grant

log = logging.getLogger(__name__)

Operation = Callable[[Mapping[str, Any], int], dict[str, Any] | Awaitable[dict[str, Any]]]

CONTROL_VERSION = 1
_WITHOUT_DEVICES = ("hello", "subscribe", "shutdown")


@dataclass(frozen=True)
class DeviceDiscovery:
    """The state of the first reading of the devices.

    ``is_over``: the devices are known, or their driver missed its deadline; earlier kernels are
    restored. ``why_unknown`` says why no device is known; it is empty where one is.
    """

    is_over: asyncio.Event
    why_unknown: Callable[[], str]


@dataclass(frozen=True)
class Node:
    """The facts about an agent that clients can ask for."""

    name: str
    driver: Driver
    driver_env: Mapping[str, str]
    libraries: Libraries
    may_be_shut_down: bool
    residency: str = "vmm"  # for kernels that request no mode
    # the options in force, by their names on the command line
    options: Mapping[str, str] = field(default_factory=dict)


class Operations:
    """The operations, by their names.

    ``devices`` tells whether the first look at the devices is over; until then, requests that need
    devices wait for it.

    ``describe`` gives the status: with the kernels or without them, with only those that changed
    since a number, and with the devices' use or without it. ``shut_down`` ends the agent;
    ``subscribe`` enters a connection for events.

    ``limits_env`` are the variables of enforcer and actuators in a kernel's environment;
    ``misfits`` are the settings that its running processes cannot get before they are restarted.
    """

    def __init__(
        self,
        node: Node,
        reservations: Reservations,
        leases: LeaseOperations,
        trims: Trims,
        describe: Callable[[bool, int | None, bool], Awaitable[dict[str, Any]]],
        subscribe: Callable[[int], None],
        shut_down: Callable[[], None],
        limits_env: Callable[[Reservation], Mapping[str, str]],
        needs_restart: Callable[[Kernel], tuple[str, ...]],
        devices: DeviceDiscovery,
        guests: Guests,
    ) -> None:
        self._node = node
        self._devices = devices
        self._guests = guests
        self._reservations = reservations
        self._trims = trims
        self._describe = describe
        self._subscribe = subscribe
        self._shut_down = shut_down
        self._limits_env = limits_env
        self._needs_restart = needs_restart
        self._table: dict[str, Operation] = {
            "hello": self._hello,
            "status": self._status,
            "reserve": self._reserve,
            "bind": self._bind,
            "release": self._release,
            "resize": self._resize,
            "activity": self._take_activity,
            "interrupt": self._interrupt,
            "subscribe": self._enter_subscriber,
            **leases.table,
            "trimmer": self._take_trimmer,
            "trimmed": self._take_trimmed,
            "shutdown": self._shutdown,
        }

    async def answer(self, request: object, connection: int) -> dict[str, Any] | None:
        """Return the answer to one parsed line of a connection; None for an activity without id."""
        if isinstance(request, dict) and request.get("op") == "activity" and "id" not in request:
            await self._answer({**request, "id": 0}, connection)
            return None
        return await self._answer(request, connection)

    async def _answer(self, request: object, connection: int) -> dict[str, Any]:
        number = request.get("id") if isinstance(request, dict) else None
        try:
            if not isinstance(request, dict) or not is_int(number):
                raise Refused("bad_request", "a request is an object with a whole number as its id, and an op")
            operation = self._table.get(str(request.get("op")))
            if operation is None:
                raise Refused(
                    "bad_request",
                    f"Requested op {str(request.get('op'))[:40]!r}, which does not exist. Use one of "
                    f"{', '.join(self._table)}",
                )
            self._guests.check(request, connection)
            if request["op"] not in _WITHOUT_DEVICES:
                await self._devices.is_over.wait()
            found = operation(request, connection)
            return {"id": number, "ok": True, **(await found if isinstance(found, Awaitable) else found)}
        except Refused as refused:
            return {"id": number, "ok": False, "code": refused.code, "message": str(refused)}
        except Exception:
            log.exception("event=operation_failed op=%r", request.get("op") if isinstance(request, dict) else None)
            message = f"the agent (pid {os.getpid()}) failed at this; its log says how"
            return {"id": number, "ok": False, "code": "internal", "message": message}

    def _hello(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        if request.get("version") != CONTROL_VERSION:
            raise Refused(
                "version",
                f"Requested version {request.get('version')!r}, but this agent speaks {CONTROL_VERSION}. "
                "Restart the agent",
            )
        log.info("event=hello connection=%d name=%r", connection, read_text(request, "name", default=""))
        return {
            "version": CONTROL_VERSION,
            "node": self._node.name,
            "driver": self._node.driver.kind,
            "pid": os.getpid(),
            "options": dict(self._node.options),
        }

    def _status(self, request: Mapping[str, Any], connection: int) -> Awaitable[dict[str, Any]]:
        since = None if request.get("since") is None else read_int(request, "since")
        return self._describe(request.get("kernels") is not False, since, request.get("use") is not False)

    def _reserve(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        hundredths, memory_limit = read_size(request)
        asked = Reservation(
            kernel_id=read_kernel_id(request),
            owner=read_text(request, "owner"),
            hundredths=hundredths,
            memory_limit=memory_limit,
            workload_class=read_class(request, "production"),
            label=read_text(request, "label", default=""),
            attributes=read_attributes(request),
            parts=(),
            created=time.time(),
            residency=read_residency(request, self._node.residency),
            uid=None if request.get("uid") is None else read_int(request, "uid"),
        )
        if self._reservations.find(asked.kernel_id) is None:
            self._check_devices()
        limit = None if request.get("owner_limit") is None else read_int(request, "owner_limit")
        node, placement = self._node, read_placement(request)
        kernel = self._reservations.reserve(asked, placement, connection, limit, node.libraries.folder.name)
        env = {**node.driver_env, **self._limits_env(kernel.reservation)}
        grant = describe_grant(kernel, node.name, node.driver, node.libraries, env)
        if limit is not None:
            grant["owner_hundredths"] = self._reservations.held_by(asked.owner)
        return {"grant": grant}

    def _check_devices(self) -> None:
        """Refuse requests that need a device, while none is known.

        Its driver does not answer then.
        """
        if why := self._devices.why_unknown():
            raise Refused(
                "no_room", f"the devices of {self._node.name} are not known yet: {why}. Queued until they are"
            )

    def _bind(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        pid = read_int(request, "pid", 1)
        if pid >= 1 << 31:
            raise Refused("bad_request", f"{pid} is not the pid of a process. Send a number below 2147483648")
        self._reservations.bind(read_kernel_id(request), pid, read_int(request, "start_time_ticks"))
        return {}

    def _release(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        return {"released": self._reservations.release(read_kernel_id(request))}

    def _resize(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        hundredths, memory_limit = read_size(request)
        workload_class = None if request.get("workload_class") is None else read_class(request)
        kernel = self._reservations.resize(read_kernel_id(request), hundredths, memory_limit, workload_class)
        node = self._node
        env = {**node.driver_env, **self._limits_env(kernel.reservation)}
        grant = describe_grant(kernel, node.name, node.driver, node.libraries, env)
        return {"grant": grant, "misfits": list(self._needs_restart(kernel))}

    def _take_activity(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        since, waiting = read_seconds(request, "since"), read_seconds(request, "input")
        activity = Activity(read_int(request, "open"), read_int(request, "work"), since, waiting)
        if activity.work > activity.open:
            raise Refused(
                "bad_request",
                f"Reported work on {activity.work} of {activity.open} open requests. Send at most as many as are open",
            )
        if activity.input is not None and not activity.work:
            raise Refused(
                "bad_request", "Reported a wait for input of a kernel without work, but only a cell waits for input"
            )
        self._reservations.note_activity(read_kernel_id(request), activity)
        return {}

    def _interrupt(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        self._reservations.interrupt(read_kernel_id(request))
        return {}

    def _take_trimmer(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        """Note a relay that can trim its kernel.

        The agent requests trims on this connection.
        """
        kernel_id = read_kernel_id(request)
        if not self._trims.note_relay(kernel_id, connection):
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here")
        return {}

    def _take_trimmed(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        kernel_id = read_kernel_id(request)
        if not self._trims.note_trimmed(kernel_id, read_int(request, "bytes")):
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here")
        return {}

    def _enter_subscriber(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        self._subscribe(connection)
        return {}

    def _shutdown(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        if not self._node.may_be_shut_down:
            raise Refused(
                "bad_request", f"this agent (pid {os.getpid()}) runs as a service; end it there, or send it SIGTERM"
            )
        self._shut_down()
        return {}
