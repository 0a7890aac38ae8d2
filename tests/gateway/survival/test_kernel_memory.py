"""The record of a start, and a later gateway's reading of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.state.persistence import lasting_arguments, live_arguments, read_saved_kernel
from jupyter_aliquot.gateway.state.records import KernelRecord, KernelState
from jupyter_aliquot.provisioner.errors import StateError
from jupyter_aliquot.provisioner.terminations import Ending, EndingCode


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


def test_a_later_gateway_replays_a_request_to_its_own_kernel_alone() -> None:
    alices = lasting_arguments({"request_env": {"KERNEL_KEY": "of alice"}, "env": {"JPY_SESSION_NAME": "a.ipynb"}})
    carols = lasting_arguments({"env": {}})
    assert live_arguments(alices)["request_env"] == {"KERNEL_KEY": "of alice"}
    live = live_arguments(carols)
    assert "request_env" not in live
    assert "of alice" not in live["env"].values()


def test_a_start_without_an_environment_stays_one() -> None:
    assert live_arguments(lasting_arguments({"cwd": "/"})) == {"cwd": "/"}


FACTS = {
    "owner": "ada",
    "kernelspec": "python3.gpu-0.25",
    "label": "old.ipynb",
    "queued_at": 5.0,
    "arguments": {"cwd": "/old"},
    "grant": None,
    "spec": {"argv": []},
}
RECORD = KernelRecord("k", "ada", "python3.gpu-0.5", KernelState.RUNNING, 9.0, "b", "new.ipynb", {"cwd": "/new"})


def test_a_relays_facts_tell_the_start_and_a_record_what_changed_since() -> None:
    both = read_saved_kernel(RECORD, FACTS)
    assert (both.kernelspec, both.label, both.arguments) == ("python3.gpu-0.5", "new.ipynb", {"cwd": "/new"})
    assert both.queued_at == FACTS["queued_at"]
    alone = read_saved_kernel(None, FACTS)
    assert (alone.kernelspec, alone.label) == ("python3.gpu-0.25", "old.ipynb")
    assert read_saved_kernel(RECORD, None).kernelspec == "python3.gpu-0.5"


def test_the_teams_of_a_kernel_are_read_again_and_those_of_an_older_gateway_told_none() -> None:
    teams = frozenset({"vision", "speech"})
    assert read_saved_kernel(replace(RECORD, teams=tuple(teams)), None).teams == teams
    assert read_saved_kernel(None, {**FACTS, "teams": sorted(teams)}).teams == teams
    assert read_saved_kernel(RECORD, None).teams == read_saved_kernel(None, FACTS).teams == frozenset()


def test_why_a_kernel_was_restarted_is_told_by_the_next_gateway() -> None:
    crash = Ending(EndingCode.CRASH, "The kernel crashed", 12.0, signal=11)
    crashed = replace(RECORD, last_crash=crash)
    assert read_saved_kernel(crashed, None).last_crash == read_saved_kernel(crashed, FACTS).last_crash == crash
    assert read_saved_kernel(RECORD, FACTS).last_crash is None


def test_facts_that_cannot_be_read_cost_nothing_where_there_is_a_record() -> None:
    broken = {name: value for name, value in FACTS.items() if name != "owner"}
    assert read_saved_kernel(RECORD, broken).label == "new.ipynb"
    with pytest.raises(StateError, match="metadata of a relay cannot be read: KeyError"):
        read_saved_kernel(None, broken)
