"""The contract of the API and the schema of its events, read once in each process of a run.

The loader in C reads them ten times as fast as the one in Python. A test that changes them takes a copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

GATEWAY = Path(__file__).resolve().parents[1] / "gateway"
CONTRACT = GATEWAY / "api" / "openapi.yaml"


def _read(path: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(path.read_text("utf-8"), loader)
    return found


API = _read(CONTRACT)
EVENT = _read(GATEWAY / "events" / "kernel_event.yaml")
