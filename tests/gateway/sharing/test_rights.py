"""Rights to kernels follow from owners and shares."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tornado.web import HTTPError

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import ANONYMOUS, User
from jupyter_aliquot.gateway.sharing.rights import access_of, require_access
from jupyter_aliquot.gateway.sharing.shares import Share, Shares


def manager_of(owners: dict[str, str], *shares: Share) -> SimpleNamespace:
    return SimpleNamespace(owner_of=owners.get, shares_of=lambda kernel_id: Shares(shares))


def test_who_owns_a_kernel() -> None:
    manager = manager_of({"k": "alice"})
    want = {
        (User("alice", "user"), "k"): Access.OWN,
        (User("bob", "user"), "k"): Access.NONE,
        (User("alice", "user"), "unknown"): Access.NONE,
        (User("ada", "admin"), "k"): Access.OWN,
        (User("ada", "admin"), "unknown"): Access.OWN,
    }
    assert {asked: access_of(asked[0], manager, asked[1]) for asked in want} == want
    assert access_of(ANONYMOUS, manager_of({"k": ""}), "k") is Access.NONE
    assert access_of(User("alice", "user"), object(), "k") is Access.NONE


def test_a_share_gives_what_it_says_by_name_or_by_team_and_the_more_of_both() -> None:
    manager = manager_of(
        {"k": "alice"},
        Share("user", "bob", Access.READ),
        Share("team", "vision", Access.WRITE),
        Share("team", "audio", Access.READ),
        Share("user", "vision", Access.READ),
    )
    want = {
        User("bob", "user"): Access.READ,
        User("bob", "user", frozenset({"vision"})): Access.WRITE,
        User("carol", "user", frozenset({"audio"})): Access.READ,
        User("carol", "user", frozenset({"bob"})): Access.NONE,
        User("vision", "user"): Access.READ,
        User("alice", "user", frozenset({"audio"})): Access.OWN,
        ANONYMOUS: Access.NONE,
    }
    assert {requester: access_of(requester, manager, "k") for requester in want} == want


@pytest.mark.parametrize(
    ("name", "needed", "want"),
    [
        ("carol", Access.READ, "404 Kernel does not exist: k"),
        ("bob", Access.READ, ""),
        ("bob", Access.WRITE, "403 read-only by alice"),
        ("bob", Access.OWN, "403 read-only by alice"),
        ("wanda", Access.WRITE, ""),
        ("wanda", Access.OWN, "403 to use by alice"),
        ("alice", Access.OWN, ""),
    ],
)
def test_who_may_see_a_kernel_hears_what_he_lacks_and_others_that_there_is_none(
    name: str, needed: Access, want: str
) -> None:
    manager = manager_of({"k": "alice"}, Share("user", "bob", Access.READ), Share("user", "wanda", Access.WRITE))
    if not want:
        assert require_access(User(name, "user"), manager, "k", needed) >= needed
        return
    with pytest.raises(HTTPError) as refused:
        require_access(User(name, "user"), manager, "k", needed)
    status, _, said = want.partition(" ")
    assert refused.value.status_code == int(status)
    assert said in str(refused.value.log_message)
