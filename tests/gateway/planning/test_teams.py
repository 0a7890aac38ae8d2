"""The tree of teams, and the division of what no team is owed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gateway.planning.hierarchy import TOP, Fault, Hierarchy, HierarchyError, faults
from jupyter_aliquot.gateway.planning.surplus import Usage, decayed, surplus_parts

PARENTS = {"research": TOP, "vision": "research", "speech": "research", "teaching": TOP}


def test_a_tree_knows_what_is_below_and_above_each_name() -> None:
    tree = Hierarchy(PARENTS)
    assert tree.children(TOP) == ("research", "teaching")
    assert tree.children("research") == ("vision", "speech")
    assert tree.way("vision") == ("vision", "research")
    assert tree.apart("vision", "teaching") == (("vision", "research"), ("teaching",))
    assert tree.apart("vision", "speech") == (("vision",), ("speech",))
    assert tree.apart("vision", "research") == (("vision",), ())


def test_each_cycle_and_each_unknown_parent_is_told_once() -> None:
    wrong = {"below": "a", "a": "b", "b": "c", "c": "a", "lost": "gone", "self": "self"}
    assert list(faults(wrong)) == [
        Fault("a", "b", ("a", "b", "c", "a")),
        Fault("lost", "gone"),
        Fault("self", "self", ("self", "self")),
    ]
    with pytest.raises(HierarchyError, match="'a' is its own parent: a → b → c → a"):
        Hierarchy(wrong)


def test_a_team_that_had_more_than_its_part_before_gets_less() -> None:
    equal = {"a": 1.0, "b": 1.0}
    assert surplus_parts(equal, {}) == {"a": 1.0, "b": 1.0}
    assert surplus_parts(equal, {"a": 0.25}) == {"a": 0.75, "b": 1.0}
    assert surplus_parts(equal, {"a": 0.25}, factor=0.0) == {"a": 0.5, "b": 0.5}
    assert surplus_parts(equal, {"a": 2.0})["a"] == 0.0
    assert surplus_parts({"a": 0.0}, {}) == {"a": 0.0}


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 1e6))
def test_an_average_in_two_steps_is_that_in_one(before: float, held: float, first: float, second: float) -> None:
    stepwise = decayed(decayed(before, first, 3600.0, held), second, 3600.0, held)
    assert stepwise == pytest.approx(decayed(before, first + second, 3600.0, held), abs=1e-9)


def test_usage_follows_what_teams_hold_and_forgets_it() -> None:
    usage = Usage({}, {}, 0.0).then({"a": 0.5}, 0.0, 10.0)
    assert usage.at_time(10.0, 10.0) == {"a": pytest.approx(0.25)}
    after = usage.then({}, 10.0, 10.0)
    assert after.at_time(20.0, 10.0) == {"a": pytest.approx(0.125)}
    assert after.at_time(1000.0, 10.0) == {}, "next to nothing is none"
