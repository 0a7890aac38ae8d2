"""Deprecated operations of the API, and the headers that tell programs of them.

docs/reference/rest-api.md has the rules. An operation here is ``deprecated: true`` in openapi.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import lru_cache
from types import MappingProxyType


@dataclass(frozen=True)
class Deprecation:
    """The moment from which an operation is deprecated, and from which it may be gone; None where none is set."""

    since: datetime
    sunset: datetime | None = None


# By method and path as the contract writes them: "GET /aliquot/api/v1/kernels/{kernel_id}".
DEPRECATED: Mapping[str, Deprecation] = MappingProxyType({})


def deprecation_headers(method: str, path: str, contract: str) -> dict[str, str]:
    """Return the headers of an answer; none for an operation that is not deprecated.

    Args:
        method: The request's method.
        path: Its path below the base URL.
        contract: The path of the contract, which names the successor.
    """
    for operation, found in DEPRECATED.items():
        wanted, _, template = operation.partition(" ")
        if wanted == method and _pattern(template).fullmatch(path):
            return _headers(found, contract)
    return {}


def _headers(found: Deprecation, contract: str) -> dict[str, str]:
    # RFC 9745, RFC 8594
    headers = {"Deprecation": f"@{int(found.since.timestamp())}", "Link": f'<{contract}>; rel="deprecation"'}
    if found.sunset is not None:
        headers["Sunset"] = format_datetime(found.sunset.astimezone(timezone.utc), usegmt=True)
    return headers


@lru_cache
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", template)
    return re.compile("".join("[^/]+" if part.startswith("{") else re.escape(part) for part in parts))
