"""Shares of a kernel: one for each name, bounded, valid, and unchanged by JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.sharing.shares import MOST_SHARES, UNSHARED, Share, Shares, read_share, read_shares
from jupyter_aliquot.provisioner.errors import RequestError

BOB = Share("user", "bob", Access.READ)


def test_given_again_it_has_the_new_access_at_its_old_place() -> None:
    team = Share("team", "bob", Access.READ)
    shares = UNSHARED.with_one(BOB).with_one(team).with_one(Share("user", "bob", Access.WRITE))
    assert shares.given == (Share("user", "bob", Access.WRITE), team)
    assert shares.without("user", "bob").given == (team,)
    assert shares.without("user", "carol") == shares


def test_their_number_is_bounded_and_a_full_list_can_still_be_changed() -> None:
    shares = UNSHARED
    for number in range(MOST_SHARES):
        shares = shares.with_one(Share("user", f"u{number}", Access.READ))
    with pytest.raises(RequestError, match=f"{MOST_SHARES} times already"):
        shares.with_one(BOB)
    assert shares.with_one(Share("user", "u7", Access.WRITE)).find("user", "u7") == Share("user", "u7", Access.WRITE)


def test_what_was_written_is_read_again() -> None:
    shares = Shares((BOB, Share("team", "vision", Access.WRITE), Share("user", "Ünal Ö.", Access.READ)))
    assert read_shares(json.loads(json.dumps(shares.report()))) == shares


@pytest.mark.parametrize(
    "record",
    [
        [{"kind": "user", "name": "bob", "access": "own"}],
        [{"kind": "everybody", "name": "bob", "access": "read"}],
        [{"kind": "user", "name": "bob"}],
        [{"kind": "user", "name": str(n), "access": "read"} for n in range(MOST_SHARES + 1)],
        7,
    ],
)
def test_what_it_cannot_have_written_is_refused(record: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, RequestError)):
        read_shares(record)


@pytest.mark.parametrize(
    ("kind", "name", "access", "said"),
    [
        ("user", "*", "read", "all users"),
        ("team", "*", "read", "all users"),
        ("user", "alice", "read", "owns it"),
        ("user", "..", "read", "no URL"),
        ("user", " bob", "read", "spaces around"),
        ("user", "   ", "read", "printable"),
        ("user", "bob\n", "read", "printable"),
        ("user", "b" * 201, "read", "200"),
        ("user", "bob", "own", "read or write"),
        ("user", "bob", None, "read or write"),
        ("user", "bob", {"read": 1}, "read or write"),
    ],
)
def test_what_nobody_can_be_given_is_refused_with_what_to_do(kind: str, name: str, access: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_share(kind, name, access, owner="alice")


def test_a_name_needs_nobody_who_has_it_yet() -> None:
    assert read_share("user", "not.yet@example.org", "write", owner="alice").access is Access.WRITE
    assert read_share("team", "alice", "read", owner="alice").kind == "team"
