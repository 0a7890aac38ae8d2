"""The browser tests' scripted answers match the gateway's api.yaml; types are generated from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

if TYPE_CHECKING:
    from tests.labextension.status_script import StatusScript
else:
    from status_script import StatusScript

_REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def a_contract() -> dict[str, Any]:
    contract: dict[str, Any] = yaml.safe_load((_REPOSITORY / "gateway" / "api" / "openapi.yaml").read_text())
    return contract


def test_scripted_answers_are_answers_of_the_contract(a_contract: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator({**a_contract, "$ref": "#/components/schemas/Status"})
    script = StatusScript()
    script.body["kernels"].append(script.an_ended_kernel("k-2", "a.ipynb"))
    assert [error.message for error in validator.iter_errors(script.body)] == []


def test_scripted_events_are_events_of_the_schema() -> None:
    schema = yaml.safe_load((_REPOSITORY / "gateway" / "events" / "kernel_event.yaml").read_text())
    jsonschema.Draft202012Validator(schema).validate(StatusScript.an_event())


def test_each_plugin_is_registered_once() -> None:
    """Lab rejects all plugins if one comes twice."""
    index = (_REPOSITORY / "labextension" / "src" / "index.ts").read_text()
    listed = re.findall(r"^  (\w+),?$", index.partition("= [")[2], re.MULTILINE)
    assert listed
    assert len(listed) == len(set(listed))
