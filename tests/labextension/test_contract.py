"""The gateway's api.yaml, the extension's types and the scripted answers of the tests name the same fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

if TYPE_CHECKING:
    from tests.labextension.lab_page import StatusScript
else:
    from lab_page import StatusScript

_REPOSITORY = Path(__file__).resolve().parents[2]
_TOKENS = _REPOSITORY / "labextension" / "src" / "tokens.ts"


@pytest.fixture(scope="module")
def a_contract() -> dict[str, Any]:
    contract: dict[str, Any] = yaml.safe_load((_REPOSITORY / "gateway" / "api.yaml").read_text())
    return contract


def _fields(interface: str) -> dict[str, str]:
    """Field to type, of an interface in tokens.ts."""
    body = re.search(rf"export interface {interface} {{(.*?)\n}}", _TOKENS.read_text(), re.DOTALL)
    assert body is not None, f"{interface} is not in {_TOKENS.name}"
    return dict(re.findall(r"^  readonly (\w+): (.+);$", body[1], re.MULTILINE))


SCHEMAS = (
    *("Status", "Node", "Device", "ComputeControl", "Kernel", "KernelDevice", "Compute"),
    *("Ending", "EndingSoon"),
)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_types_name_the_fields_of_the_contract(a_contract: dict[str, Any], schema: str) -> None:
    want = a_contract["components"]["schemas"][schema]["properties"]
    found = _fields(f"I{schema}")
    assert set(found) == set(want)
    want_nullable = {name for name, field in want.items() if _is_nullable(field)}
    assert {name for name, kind in found.items() if kind.endswith("| null")} == want_nullable


def _is_nullable(field: dict[str, Any]) -> bool:
    choices = field.get("oneOf", [])
    return "null" in field.get("type", []) or None in field.get("enum", []) or {"type": "null"} in choices


def test_scripted_answers_are_answers_of_the_contract(a_contract: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator({**a_contract, "$ref": "#/components/schemas/Status"})
    script = StatusScript()
    script.body["kernels"].append(script.an_ended_kernel("k-2", "a.ipynb"))
    assert [error.message for error in validator.iter_errors(script.body)] == []
