"""Deprecated operations: their headers on a real server, and what the client says of them."""

from __future__ import annotations

import contextlib
import warnings
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

from jupyter_aliquot.client import AsyncClient, NotFoundError, Retries
from jupyter_aliquot.gateway.api import contract, deprecations
from jupyter_aliquot.gateway.api.deprecations import DEPRECATED, Deprecation

from .conftest import TOKENS, Ask

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


def test_the_contract_and_the_headers_name_the_same_operations() -> None:
    paths = yaml.safe_load(Path(contract.__file__).with_name("openapi.yaml").read_text("utf-8"))["paths"]
    marked = {
        f"{method.upper()} {path}"
        for path, item in paths.items()
        for method, operation in item.items()
        if isinstance(operation, dict) and operation.get("deprecated")
    }
    assert marked == set(DEPRECATED)
