"""Deprecated operations: their headers on a real server, and what the client says of them."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from contract_files import API

from jupyter_aliquot.client import AsyncClient, NotFoundError, Retries
from jupyter_aliquot.gateway.api import deprecations
from jupyter_aliquot.gateway.api.deprecations import DEPRECATED, Deprecation

from .conftest import TOKENS, Ask
from .test_metric_names import DEPRECATED as DEPRECATED_METRICS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "rest-api.md").read_text("utf-8")
SINCE = datetime(2026, 11, 29, tzinfo=timezone.utc)
SUNSET = datetime(2027, 12, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def one_is_deprecated(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "GET /aliquot/api/v1/sizes": Deprecation(SINCE),
        "GET /aliquot/api/v1/kernels/{kernel_id}": Deprecation(SINCE, SUNSET),
    }
    monkeypatch.setattr(deprecations, "DEPRECATED", table)


async def test_answers_and_errors_of_a_deprecated_path_say_so(one_is_deprecated: None, ask: Ask) -> None:
    sizes = await ask("alice", "GET", "aliquot/api/v1/sizes")
    assert (sizes.status, sizes.headers["Deprecation"]) == (200, f"@{int(SINCE.timestamp())}")
    assert sizes.headers["Link"] == '</a%40b/aliquot/api/v1/openapi.json>; rel="deprecation"'
    assert "Sunset" not in sizes.headers
    lost = await ask("alice", "GET", "aliquot/api/v1/kernels/k9")
    assert (lost.status, lost.headers["Sunset"]) == (404, "Wed, 01 Dec 2027 12:00:00 GMT")
    for path in ("status", "kernels"):
        assert "Deprecation" not in (await ask("alice", "GET", f"aliquot/api/v1/{path}")).headers
    assert "Deprecation" not in (await ask("alice", "DELETE", "aliquot/api/v1/kernels/k9")).headers


async def test_the_client_warns_of_a_deprecated_path_and_of_no_other(
    one_is_deprecated: None, ask: Ask, jp_http_port: int, jp_base_url: str
) -> None:
    await ask("alice", "GET", "api/status")
    client = AsyncClient(f"http://127.0.0.1:{jp_http_port}{jp_base_url}", TOKENS["alice"], Retries(attempts=1))
    want = "from Wed, 01 Dec 2027 12:00:00 GMT on. Update"
    with pytest.warns(DeprecationWarning, match=want), contextlib.suppress(NotFoundError):
        await client.kernel("k9")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await client.status()


def named_parts(node: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each part of a contract with its name: a field's, a parameter's, or METHOD and path."""
    if isinstance(node, list):
        for one in node:
            yield from named_parts(one, str(one.get("name", "")) if isinstance(one, dict) else "")
    elif isinstance(node, dict):
        yield name, node
        for key, one in node.items():
            method = isinstance(one, dict) and "responses" in one and "operationId" in one
            yield from named_parts(one, f"{key.upper()} {name}" if method else str(key))


def deprecation_faults(document: dict[str, Any], page: str) -> list[str]:
    """Return the deprecated parts that name no successor of the contract, or that the changelog of fields lacks."""
    parts = list(named_parts(document))
    names = {name for name, _ in parts}
    told = " ".join(re.findall(r"deprecated: (.*?)\|$", page.split("## Changelog of fields", 1)[1], re.MULTILINE))
    found = []
    for name, part in parts:
        if part.get("deprecated") is True:
            match = re.match(r"Deprecated: (.+?)\.(\s|$)", str(part.get("description", "")))
            if match is None or match[1] not in names - {name}:
                found.append(f"{name} names no successor")
            if f"`{name}`" not in told:
                found.append(f"{name} is not in the changelog of fields")
    return found


def test_each_deprecated_part_names_its_successor_and_is_in_the_changelog_of_fields() -> None:
    assert deprecation_faults(API, PAGE) == []
    for metric in DEPRECATED_METRICS:
        assert re.search(rf"deprecated: .*`{metric}`", PAGE.split("## Changelog of fields", 1)[1])


@pytest.mark.parametrize(
    ("description", "row", "want"),
    [
        ("Deprecated: wait_reason. Why it waits.", "deprecated: `reason`", []),
        ("Why it waits.", "deprecated: `reason`", ["reason names no successor"]),
        ("Deprecated: no_field. Why.", "deprecated: `reason`", ["reason names no successor"]),
        ("Deprecated: reason. Why.", "deprecated: `reason`", ["reason names no successor"]),
        ("Deprecated: wait_reason.", "`wait_reason`", ["reason is not in the changelog of fields"]),
    ],
)
def test_a_deprecated_field_without_successor_or_entry_is_found(description: str, row: str, want: list[str]) -> None:
    old = {"type": "string", "deprecated": True, "description": description}
    document = {"components": {"schemas": {"Kernel": {"properties": {"reason": old, "wait_reason": {}}}}}}
    assert deprecation_faults(document, f"## Changelog of fields\n\n| 0.2.0 | {row} |\n") == want
    parameter = {"paths": {"/queue": {"get": {"parameters": [{"name": "reason", **old}, {"name": "wait_reason"}]}}}}
    assert deprecation_faults(parameter, f"## Changelog of fields\n\n| 0.2.0 | {row} |\n") == want


def test_the_contract_and_the_headers_name_the_same_operations() -> None:
    paths = API["paths"]
    marked = {
        f"{method.upper()} {path}"
        for path, item in paths.items()
        for method, operation in item.items()
        if isinstance(operation, dict) and operation.get("deprecated")
    }
    assert marked == set(DEPRECATED)
