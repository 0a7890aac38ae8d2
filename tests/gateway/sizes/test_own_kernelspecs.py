"""Kernelspecs in homes, as the gateway takes them: a user's word, which decides nothing but that user's kernels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from jupyter_aliquot.gateway.kernelspecs import own_specs
from jupyter_aliquot.gateway.kernelspecs.own_specs import OwnSpecs
from jupyter_aliquot.provisioner.errors import RelayUnavailableError

LOG = logging.getLogger("test")
SPEC = {"argv": ["/home/ada/env/bin/python", "{connection_file}"], "display_name": "Ada's", "language": "python"}


class Home:
    """The answers of a relay host about one user."""

    def __init__(self, **specs: Any) -> None:
        self.answer: Any = {"mark": "1", "specs": specs, "problems": {}, "left_out": 0}
        self.known: list[str] = []

    async def ask(self, user: str, known: str) -> Mapping[str, Any]:
        assert user == "ada"
        self.known.append(known)
        if isinstance(self.answer, Exception):
            raise self.answer
        found: Mapping[str, Any] = {"mark": known} if known == self.answer["mark"] else self.answer
        return found


def look(home: Home, times: int = 1) -> OwnSpecs:
    own = OwnSpecs(home.ask, LOG)

    async def scene() -> None:
        for _ in range(times):
            await own.refresh("ada")

    asyncio.run(scene())
    return own


def test_a_kernelspec_has_what_runs_and_nothing_that_the_gateway_would_obey() -> None:
    fields = {
        **SPEC,
        "metadata": {"kernel_provisioner": {"provisioner_name": "local-provisioner"}},
        "resource_dir": "/var/lib/aliquot",
        "debugger": True,
    }
    spec = look(Home(env=fields)).of("ada")["env"]
    assert spec.argv == SPEC["argv"]
    assert spec.metadata == {"aliquot": {"kernelspec": "env", "is_own": True}, "debugger": True}
    assert spec.resource_dir.endswith("ipykernel/resources"), "the gateway serves pictures from there to all"


def test_what_has_not_changed_is_asked_by_its_mark_and_kept() -> None:
    home = Home(env=SPEC)
    own = look(home, times=2)
    assert home.known == ["", "1"]
    assert set(own.of("ada")) == {"env"}
    assert own.of("bob") == {}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("text", "no JSON object"),
        ({**SPEC, "argv": []}, "argv is no list of words"),
        ({**SPEC, "argv": "python"}, "argv is no list of words"),
        ({**SPEC, "argv": ["a\0b"]}, "argv is no list of words"),
        ({**SPEC, "env": {"A": 1}}, "env is no table of strings"),
        ({**SPEC, "env": {"A=B": "1"}}, "env is no table of strings"),
        ({**SPEC, "interrupt_mode": "never"}, "interrupt_mode is none of signal, message"),
    ],
)
def test_a_kernelspec_that_is_none_is_told_and_hides_no_other(fields: Any, words: str) -> None:
    own = look(Home(bad=fields, good=SPEC))
    assert set(own.of("ada")) == {"good"}
    assert words in own.why_not("ada", "bad")
    assert own.why_not("ada", "good") == ""


@pytest.mark.parametrize("name", ["env.gpu-0.25", "env.gpu-none", "env.gpu-nine"])
def test_the_name_of_a_size_is_no_kernelspecs(name: str) -> None:
    own = look(Home(**{name: SPEC}))
    assert own.of("ada") == {}
    assert "Rename the folder" in own.why_not("ada", name)


@pytest.mark.parametrize(
    "answer",
    [{}, {"mark": 7, "specs": [], "problems": 1, "left_out": "x"}, {"mark": "2", "specs": None, "left_out": -1}],
)
def test_an_answer_of_any_form_is_read(answer: Any) -> None:
    home = Home()
    home.answer = {"mark": None, **answer}
    assert look(home).of("ada") == {}


def test_kernelspecs_that_are_too_many_are_told() -> None:
    home = Home(env=SPEC)
    home.answer["left_out"] = 900
    said = look(home).why_not("ada", "env-0999")
    assert "only the first 1 are offered, by name, and 900 are not" in said


def test_a_look_that_fails_or_takes_long_keeps_the_last_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_specs, "_SECONDS", 0.01)
    home = Home(env=SPEC)
    hangs = asyncio.Event

    async def scene() -> None:
        own = OwnSpecs(home.ask, LOG)
        await own.refresh("ada")
        home.answer = RelayUnavailableError("the relay host is away")
        await own.refresh("ada")
        assert set(own.of("ada")) == {"env"}
        never = hangs()

        async def ask(user: str, known: str) -> Mapping[str, Any]:
            await never.wait()
            return {}

        own._ask = ask
        await own.refresh("ada")
        assert set(own.of("ada")) == {"env"}
        never.set()
        await asyncio.gather(*own._looks.values())

    asyncio.run(scene())


def test_looks_at_one_home_are_one_question() -> None:
    home = Home(env=SPEC)

    async def scene() -> None:
        own = OwnSpecs(home.ask, LOG)
        await asyncio.gather(*(own.refresh("ada") for _ in range(20)))

    asyncio.run(scene())
    assert home.known == [""]
