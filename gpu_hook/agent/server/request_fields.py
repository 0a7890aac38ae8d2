"""Read the fields of a control request.

They are untrusted: a field that does not fit raises Refused with the requested value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Refused
from jupyter_aliquot.gpu_hook.agent.ledger.journal import RESIDENCY_MODES
from jupyter_aliquot.gpu_hook.paths import KERNEL_ID

_MAX_AMOUNT = (1 << 62) - 1
_MAX_TEXT = 256
_LATEST = 1e12  # seconds since the epoch
_MAX_ATTRIBUTES = 64
_MAX_PARTS = 1024


def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def read_int(request: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_AMOUNT:
        raise Refused("bad_request", f"{name} is {str(value)[:40]}. Use a whole number from {least} on")
    return value


def read_seconds(request: Mapping[str, Any], name: str) -> float | None:
    value = request.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LATEST:
        raise Refused("bad_request", f"{name} is {str(value)[:40]}. Use a time in seconds since the epoch, or null")
    return float(value)


def read_text(request: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = request.get(name, default)
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise Refused("bad_request", f"{name} is {str(value)[:40]!r}. Use a text of at most {_MAX_TEXT} letters")
    return value


def read_kernel_id(request: Mapping[str, Any]) -> str:
    value = request.get("kernel_id")
    if not isinstance(value, str) or not KERNEL_ID.fullmatch(value):
        raise Refused(
            "bad_request",
            f"kernel_id is {str(value)[:60]!r}. Use 1 to 36 letters, digits, '-', '_' or '.', with a "
            "letter or a digit first",
        )
    return value


def read_attributes(request: Mapping[str, Any]) -> dict[str, str]:
    value = request.get("attributes") or {}
    if not isinstance(value, dict) or len(value) > _MAX_ATTRIBUTES:
        raise Refused("bad_request", f"attributes is not an object of at most {_MAX_ATTRIBUTES} texts. Send one")
    for key, text in value.items():
        if not isinstance(text, str) or len(key) > _MAX_TEXT or len(text) > _MAX_TEXT:
            raise Refused(
                "bad_request", f"The attribute {key[:40]!r} is not valid. Use a text of at most {_MAX_TEXT} letters"
            )
    return value


def read_placement(request: Mapping[str, Any]) -> dict[str, int] | None:
    value = request.get("placement")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > _MAX_PARTS or not all(isinstance(part, dict) for part in value):
        raise Refused("bad_request", "placement is not a list. Use a list of {uuid, hundredths}")
    placement = {read_text(part, "uuid"): read_int(part, "hundredths") for part in value}
    if len(placement) != len(value):
        raise Refused("bad_request", "placement names a device twice. Name each device once")
    return placement


def read_devices(request: Mapping[str, Any]) -> frozenset[str]:
    """Return the UUIDs in the list ``devices``."""
    value = request.get("devices")
    is_list = isinstance(value, list) and len(value) <= _MAX_PARTS
    if not is_list or not all(isinstance(one, str) and len(one) <= _MAX_TEXT for one in value or ()):
        raise Refused("bad_request", f"devices is {str(value)[:40]}. Use a list of the devices' UUIDs")
    return frozenset(value or ())


def read_size(request: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return ``hundredths`` and ``memory_limit``. Placement decides how large they may be."""
    limit = request.get("memory_limit")
    return read_int(request, "hundredths", -_MAX_AMOUNT), None if limit is None else read_int(request, "memory_limit")


def read_class(request: Mapping[str, Any], default: str | None = None) -> str:
    workload_class = read_text(request, "workload_class", default)
    if workload_class not in ("production", "opportunistic"):
        raise Refused("bad_request", f"workload_class is {workload_class!r}. Use production or opportunistic")
    return workload_class


def read_residency(request: Mapping[str, Any], default: str) -> str:
    mode = default if request.get("residency") is None else read_text(request, "residency")
    if mode not in RESIDENCY_MODES:
        raise Refused("bad_request", f"The residency {mode!r} does not exist. Use one of {', '.join(RESIDENCY_MODES)}")
    return mode
