"""What is noted of a start, and how a later gateway reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aliquot.gateway.kernel_memory import lasting_arguments, live_arguments


def test_of_the_environment_only_what_the_asker_added_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_GATEWAY", "s3cret")
    monkeypatch.setenv("CHANGED", "before")
    asked = {
        "cwd": Path("/tmp"),
        "kernel_id": "k",
        "env": {"A_SECRET_OF_THE_GATEWAY": "s3cret", "CHANGED": "after", "JPY_SESSION_NAME": "a.ipynb"},
        "stderr": object(),
    }
    lasting = lasting_arguments(asked)
    assert lasting == {"cwd": "/tmp", "env": {"CHANGED": "after", "JPY_SESSION_NAME": "a.ipynb"}}
    assert json.loads(json.dumps(lasting)) == lasting
    monkeypatch.setenv("A_SECRET_OF_THE_GATEWAY", "another")
    live = live_arguments(lasting)
    assert live["env"]["A_SECRET_OF_THE_GATEWAY"] == "another"
    assert (live["env"]["CHANGED"], live["env"]["JPY_SESSION_NAME"]) == ("after", "a.ipynb")


def test_a_start_without_an_environment_stays_one() -> None:
    assert live_arguments(lasting_arguments({"cwd": "/"})) == {"cwd": "/"}
