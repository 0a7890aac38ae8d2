"""The operations of the control socket: checks what was asked, does it, answers. Untrusted fields end here.

``answer`` never raises: what goes wrong is an answer with a code of docs/reference/agent-protocol.md.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aliquot.gpu_hook.paths import KERNEL_ID, Driver
from aliquot.gpu_hook.placement import Part

from .activity import Activity
from .journal import Reservation
from .libraries import Libraries
from .reservations import Refused, Reservations
from .status import describe_grant

log = logging.getLogger(__name__)

CONTROL_VERSION = 1
_MAX_AMOUNT = (1 << 62) - 1
_MAX_TEXT = 256
_LATEST = 1e12  # seconds since the epoch
_MAX_ATTRIBUTES = 64
_MAX_PARTS = 1024


@dataclass(frozen=True)
class Node:
    """What an agent is, for those who ask."""

    name: str
    driver: Driver
    driver_env: Mapping[str, str]
    libraries: Libraries
    may_be_shut_down: bool


class Operations:
    """``describe`` gives the status; ``shut_down`` ends the agent; ``subscribe`` enters a connection for events.

    ``limits_env`` is what the enforcer wants in the environment of a kernel with these parts.
    """

    def __init__(
        self,
        node: Node,
        reservations: Reservations,
        describe: Callable[[], dict[str, Any]],
        subscribe: Callable[[int], None],
        shut_down: Callable[[], None],
        limits_env: Callable[[Sequence[Part]], Mapping[str, str]],
    ) -> None:
        self._node = node
        self._reservations = reservations
        self._describe = describe
        self._subscribe = subscribe
        self._shut_down = shut_down
        self._limits_env = limits_env
        self._table: dict[str, Callable[[Mapping[str, Any], int], dict[str, Any]]] = {
            "hello": self._hello,
            "status": lambda request, connection: self._describe(),
            "reserve": self._reserve,
            "bind": self._bind,
            "release": self._release,
            "activity": self._take_activity,
            "subscribe": self._enter_subscriber,
            "shutdown": self._shutdown,
        }

    def answer(self, request: object, connection: int) -> dict[str, Any]:
        """The answer to one parsed line of a connection."""
        number = request.get("id") if isinstance(request, dict) else None
        try:
            if not isinstance(request, dict) or not _is_int(number):
                raise Refused("bad_request", "a request is an object with a whole number as its id, and an op")
            operation = self._table.get(str(request.get("op")))
            if operation is None:
                raise Refused(
                    "bad_request", f"asked op {str(request.get('op'))[:40]!r}; there are {', '.join(self._table)}"
                )
            return {"id": number, "ok": True, **operation(request, connection)}
        except Refused as refused:
            return {"id": number, "ok": False, "code": refused.code, "message": str(refused)}
        except Exception:
            log.exception("event=operation_failed op=%r", request.get("op") if isinstance(request, dict) else None)
            message = f"the agent (pid {os.getpid()}) failed at this; its log says how"
            return {"id": number, "ok": False, "code": "internal", "message": message}

    def _hello(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        if request.get("version") != CONTROL_VERSION:
            raise Refused(
                "version", f"asked version {request.get('version')!r}; this agent speaks {CONTROL_VERSION}: restart it"
            )
        log.info("event=hello connection=%d name=%r", connection, _text(request, "name", default=""))
        return {
            "version": CONTROL_VERSION,
            "node": self._node.name,
            "driver": self._node.driver.kind,
            "pid": os.getpid(),
        }

    def _reserve(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        limit = request.get("memory_limit")
        workload_class = _text(request, "workload_class", default="production")
        if workload_class not in ("production", "opportunistic"):
            raise Refused("bad_request", f"asked class {workload_class!r}; there are production and opportunistic")
        asked = Reservation(
            kernel_id=_kernel_id(request),
            owner=_text(request, "owner"),
            hundredths=_int(request, "hundredths", -_MAX_AMOUNT),
            memory_limit=None if limit is None else _int(request, "memory_limit"),
            workload_class=workload_class,
            label=_text(request, "label", default=""),
            attributes=_attributes(request),
            parts=(),
            created=time.time(),
        )
        kernel = self._reservations.reserve(asked, _placement(request), connection)
        node = self._node
        env = {**node.driver_env, **self._limits_env(kernel.reservation.parts)}
        kernel.note_libraries(node.libraries.folder.name)
        return {"grant": describe_grant(kernel, node.name, node.driver, node.libraries, env)}

    def _bind(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        pid = _int(request, "pid", 1)
        if pid >= 1 << 31:
            raise Refused("bad_request", f"asked pid {pid}")
        self._reservations.bind(_kernel_id(request), pid, _int(request, "start_time_ticks"))
        return {}

    def _release(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        return {"released": self._reservations.release(_kernel_id(request))}

    def _take_activity(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        since, waiting = _seconds(request, "since"), _seconds(request, "input")
        activity = Activity(_int(request, "open"), _int(request, "work"), since, waiting)
        if activity.work > activity.open:
            raise Refused("bad_request", f"asked work {activity.work} of {activity.open} open requests")
        if activity.input is not None and not activity.work:
            raise Refused("bad_request", "asked input of a kernel without work: only a cell waits for input")
        self._reservations.note_activity(_kernel_id(request), activity)
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


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _int(request: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_AMOUNT:
        raise Refused("bad_request", f"asked {name} {str(value)[:40]}; it is a whole number from {least} on")
    return value


def _seconds(request: Mapping[str, Any], name: str) -> float | None:
    value = request.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LATEST:
        raise Refused(
            "bad_request", f"asked {name} {str(value)[:40]}; it is a time in seconds since the epoch, or null"
        )
    return float(value)


def _text(request: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = request.get(name, default)
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise Refused("bad_request", f"asked {name} {str(value)[:40]!r}; it is a text of at most {_MAX_TEXT} letters")
    return value


def _kernel_id(request: Mapping[str, Any]) -> str:
    value = request.get("kernel_id")
    if not isinstance(value, str) or not KERNEL_ID.fullmatch(value):
        raise Refused(
            "bad_request",
            f"asked kernel_id {str(value)[:60]!r}; it has 1 to 36 letters, digits, '-', '_' or '.', and starts with "
            "a letter or a digit",
        )
    return value


def _attributes(request: Mapping[str, Any]) -> dict[str, str]:
    value = request.get("attributes") or {}
    if not isinstance(value, dict) or len(value) > _MAX_ATTRIBUTES:
        raise Refused("bad_request", f"asked attributes that are no object of at most {_MAX_ATTRIBUTES} texts")
    for key, text in value.items():
        if not isinstance(text, str) or len(key) > _MAX_TEXT or len(text) > _MAX_TEXT:
            raise Refused("bad_request", f"asked attribute {key[:40]!r}; it is a text of at most {_MAX_TEXT} letters")
    return value


def _placement(request: Mapping[str, Any]) -> dict[str, int] | None:
    value = request.get("placement")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > _MAX_PARTS or not all(isinstance(part, dict) for part in value):
        raise Refused("bad_request", "asked a placement that is no list of {uuid, hundredths}")
    placement = {_text(part, "uuid"): _int(part, "hundredths") for part in value}
    if len(placement) != len(value):
        raise Refused("bad_request", "asked a placement that names a device twice")
    return placement
