from __future__ import annotations

from types import MappingProxyType

from hypothesis import given, strategies as st

from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gateway.teams.tree import ROOT, TeamTree, Use
from jupyter_aliquot.gateway.teams.values import Quotas, Team


def a_tree(text: str, gpus: int, **held: int) -> TeamTree:
    tree = TeamTree(read_quotas(f"teams:\n{text}", "aliquot.yaml"), {"": gpus})
    return tree.plus(Use(team, "", hundredths) for team, hundredths in held.items())


def available(tree: TeamTree, *teams: str) -> list[int]:
    return [tree.available(team, "") for team in teams]


def test_a_team_borrows_what_others_do_not_use() -> None:
    two = "  a: {nominalQuota: 1}\n  b: {nominalQuota: 1}\n"
    assert available(a_tree(two, 200), "a", "b") == [200, 200]
    assert available(a_tree(two, 200, a=150), "a", "b") == [50, 50]
    assert a_tree(two, 200, a=150).borrowed("a", "") == 50
    assert a_tree(two, 200, a=50).lent("a", "") == 50


def test_a_team_borrows_up_to_its_limit_and_lends_up_to_its_limit() -> None:
    limited = "  a: {nominalQuota: 1, borrowingLimit: 0.5}\n  b: {nominalQuota: 1, lendingLimit: 0.25}\n"
    assert available(a_tree(limited, 200), "a", "b") == [125, 200], "b keeps 0.75 for itself"
    assert available(a_tree(limited, 400), "a") == [150], "no more than its borrowing limit"
    assert available(a_tree(limited, 200, a=125), "a", "b") == [0, 75]


def test_gpus_that_no_team_is_owed_are_there_to_borrow() -> None:
    assert available(a_tree("  a: {nominalQuota: 1}\n  b: {}\n", 400), "a", "b") == [400, 400]


def test_a_department_lends_to_its_teams_first() -> None:
    department = "  d: {nominalQuota: 1, borrowingLimit: 0}\n  x: {parent: d}\n  y: {parent: d, nominalQuota: 1}\n"
    tree = f"{department}  e: {{nominalQuota: 2}}\n"
    assert available(a_tree(tree, 400), "x", "y", "e") == [200, 200, 400]
    assert available(a_tree(tree, 400, x=200), "x", "y", "e") == [0, 0, 200]


def test_a_team_takes_back_from_those_that_borrow_and_from_no_others() -> None:
    three = "  a: {nominalQuota: 1}\n  b: {nominalQuota: 1}\n  c: {nominalQuota: 1}\n"
    tree = a_tree(three, 300, b=200, c=100)
    assert tree.may_reclaim("a", "b", "", 100)
    assert not tree.may_reclaim("a", "c", "", 100), "c holds what it is owed"
    assert not tree.may_reclaim("a", "b", "", 150), "that would be more than a is owed"
    assert not tree.may_reclaim("a", "a", "", 50)


def test_a_department_within_its_quota_keeps_what_its_teams_borrow_from_it() -> None:
    tree = "  d: {nominalQuota: 2}\n  x: {parent: d}\n  y: {parent: d}\n  e: {nominalQuota: 1}\n"
    held = a_tree(tree, 300, x=200)
    assert held.borrowed("x", "") == 200
    assert not held.may_reclaim("e", "x", "", 100)
    assert a_tree(tree, 300, x=250).may_reclaim("e", "x", "", 50)


amounts = st.integers(0, 4).map(lambda quarters: quarters * 25)
limits = st.none() | amounts.map(lambda amount: MappingProxyType({"": amount}))


@st.composite
def trees(draw: st.DrawFn) -> TeamTree:
    names = [f"t{place}" for place in range(draw(st.integers(1, 5)))]
    teams = {}
    for place, name in enumerate(names):
        parent = draw(st.sampled_from([ROOT, *names[:place]]))
        nominal = MappingProxyType({"": draw(amounts)})
        teams[name] = Team(name, parent=parent, nominal=nominal, borrowing=draw(limits), lending=draw(limits))
    owed = sum(team.nominal[""] for team in teams.values())
    return TeamTree(Quotas(teams=MappingProxyType(teams)), {"": owed + draw(amounts)})


@given(trees(), st.data())
def test_teams_never_hold_more_than_there_is_and_what_is_owed_and_not_lent_stays_theirs(
    tree: TeamTree, data: st.DataObject
) -> None:
    gpus = tree.gpus[""]
    for _ in range(12):
        team = data.draw(st.sampled_from(sorted(tree.quotas.teams)))
        more = min(tree.available(team, ""), data.draw(amounts))
        tree = tree.plus([Use(team, "", max(0, more))])
    held = {team: tree.own.get((team, ""), 0) for team in tree.quotas.teams}
    assert sum(held.values()) <= gpus
    for team in tree.quotas.teams.values():
        if not tree.quotas.children(team.name) and team.lending is not None:
            kept = max(0, team.nominal[""] - team.lending[""] - held[team.name])
            assert tree.available(team.name, "") >= kept, "what a team does not lend is its own"


@given(trees(), amounts)
def test_a_larger_quota_never_gives_a_team_less(tree: TeamTree, more: int) -> None:
    name = sorted(tree.quotas.teams)[0]
    before = tree.quotas.teams[name]
    larger = Team(
        name, parent=before.parent, nominal={"": before.nominal[""] + more}, borrowing=before.borrowing,
        lending=before.lending,
    )  # fmt: skip
    grown = TeamTree(Quotas(teams={**tree.quotas.teams, name: larger}), {"": tree.gpus[""] + more})
    assert grown.available(name, "") >= tree.available(name, "")
