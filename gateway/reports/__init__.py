"""The typed reports of the REST API and its events, and the one function that serializes them.

A struct has the name and the fields of its schema in api/openapi.yaml or events/kernel_event.yaml;
tests/gateway/rest/test_report_types.py compares them. This package imports no other of the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Mapping


def to_json(report: Mapping[str, object]) -> str:
    """Return the report as the JSON that clients read."""
    return json.dumps(report)
