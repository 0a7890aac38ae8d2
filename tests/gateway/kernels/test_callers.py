"""Accounts that ask at the gateway's socket: whose kernels theirs are, and how often they may ask."""

from __future__ import annotations

import asyncio
import os
import pwd
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_aliquot.gateway.kernels.account_users import AccountUsers
from jupyter_aliquot.gateway.node.callers import CallerLimits, Callers
from jupyter_aliquot.gateway.node.lent_numbers import LentNumbers
from jupyter_aliquot.provisioner.errors import AccountError, LimitError, RequestError

ADA, BOB = 3001, 3002


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's accounts are ada and bob, and all persons may have kernels."""
    entries = {
        name: pwd.struct_passwd((name, "x", uid, uid, "", "/", "/bin/sh")) for name, uid in (("ada", ADA), ("bob", BOB))
    }
    by_uid = {entry.pw_uid: entry for entry in entries.values()}
    monkeypatch.setattr(pwd, "getpwnam", entries.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", by_uid.__getitem__)
    monkeypatch.setattr("jupyter_aliquot.gateway.kernels.account_users.check_kernel_account", lambda *_: None)


def users(account_of: Any = None, user_of: Any = None) -> AccountUsers:
    return AccountUsers(account_of or {}, user_of or {}, Path("/none"))


@pytest.mark.parametrize(
    ("account_of", "user_of", "want"),
    [
        ({}, {}, "ada"),
        ({"ada.l": "ada"}, {}, "ada.l"),
        ({"ada.l": "ada", "a": "ada"}, {"ada": "a"}, "a"),
        (lambda user: user.partition("@")[0], lambda name: f"{name}@example.org", "ada@example.org"),
    ],
)
def test_an_accounts_user_is_the_one_whose_account_it_is(
    account_of: Any, user_of: Any, want: str, accounts: None
) -> None:
    assert users(account_of, user_of).of(ADA) == want


def fails(name: str) -> str:
    raise ValueError(name)


@pytest.mark.parametrize(
    ("account_of", "user_of", "words"),
    [
        ({"ada": "bob"}, {}, "its user 'ada' has another account"),
        ({"x": "ada", "y": "ada"}, {}, r"several users \(x, y\)"),
        (lambda user: user, {}, "account_of is a function"),
        ({}, {"ada": "bob"}, "its user 'bob' has another account"),
        ({}, fails, "user_of failed"),
        ({}, lambda name: None, "user_of returned None"),
    ],
)
def test_an_account_whose_user_is_not_clear_gets_nothing(
    account_of: Any, user_of: Any, words: str, accounts: None
) -> None:
    with pytest.raises(AccountError, match=words):
        users(account_of, user_of).of(ADA)


def test_connections_are_counted_for_each_account_and_for_all() -> None:
    callers = Callers(str, CallerLimits(connections=2, all_connections=3))
    with ExitStack() as stack:
        for uid in (ADA, ADA):
            stack.enter_context(callers.admit(uid, 0.0))
        with pytest.raises(LimitError, match=f"it has 2 of the account {ADA}, one"), callers.admit(ADA, 0.0):
            pass
        stack.enter_context(callers.admit(BOB, 0.0))
        with pytest.raises(LimitError, match="other programs have 3 of them"), callers.admit(3003, 0.0):
            pass
        with callers.admit(os.geteuid(), 0.0):
            pass  # the gateway's own account has no bound
    with callers.admit(ADA, 0.0):
        pass


def test_questions_are_counted_for_each_account() -> None:
    callers = Callers(str, CallerLimits(questions=2))
    for _ in range(2):
        with callers.admit(ADA, 0.0):
            pass
    with pytest.raises(LimitError, match=r"asked 2 times.*in 0.5 s"), callers.admit(ADA, 0.0):
        pass
    with callers.admit(BOB, 0.0), callers.admit(ADA, 0.5):
        pass


def test_a_gateway_of_one_account_serves_that_alone() -> None:
    with pytest.raises(RequestError, match="Start one of your own"), Callers().admit(ADA, 0.0):
        pass


def test_a_lenders_name_is_looked_up_once_for_each_state_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's list of accounts may hang, and each connection would wait for it."""
    listed, asked = tmp_path / "subuid", []

    def look_up(name: str) -> Any:
        asked.append(name)
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", look_up)
    listed.write_text("ada:100000:65536\n")
    lent = LentNumbers(listed)
    assert [lent.lender_of(uid) for uid in (100_000, 100_001, 100_000)] == [100_000, 100_001, 100_000]
    assert asked == ["ada"]
    listed.write_text("ada:100000:65536\nbob:200000:65536\n")
    lent.lender_of(100_000)
    assert asked == ["ada", "ada"]


def test_numbers_that_an_account_was_lent_count_as_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes in an account's own containers have them, and could open 64 connections with each."""
    listed = tmp_path / "subuid"
    lent = LentNumbers(listed)
    assert lent.lender_of(200_000) == 200_000, "no file"
    listed.write_text(f"ada:100000:65536\n{BOB}:300000:10\ngone:400000:5\nno loan\na:b:c\n")
    monkeypatch.setattr(pwd, "getpwnam", {"ada": SimpleNamespace(pw_uid=ADA)}.__getitem__)
    numbers = (99_999, 100_000, 165_535, 165_536, 300_000, 300_010, 400_000, ADA)
    assert [lent.lender_of(uid) for uid in numbers] == [99_999, ADA, ADA, 165_536, BOB, 300_010, 400_000, ADA]
    callers = Callers(str, CallerLimits(connections=2), lent.lender_of)
    with callers.admit(100_000, 0.0), callers.admit(100_001, 0.0):
        with (
            pytest.raises(LimitError, match=f"it has 2 of containers of the account {ADA}, one"),
            callers.admit(100_002, 0.0),
        ):
            pass
        with callers.admit(300_000, 0.0), callers.admit(ADA, 0.0):
            pass
    listed.write_text("")
    assert lent.lender_of(100_000) == 100_000, "a changed file is read again"


def test_an_account_of_a_directory_whose_number_was_lent_to_another_counts_for_itself(tmp_path: Path) -> None:
    """The tools that lend numbers know the machine's own accounts alone."""
    listed, eve = tmp_path / "subuid", 100_007
    listed.write_text(f"{ADA}:100000:65536\n")

    def user_of(uid: int) -> str:
        if uid != eve:
            raise AccountError("no such account")
        return "eve"

    callers = Callers(user_of, CallerLimits(connections=2, questions=9), LentNumbers(listed).lender_of)
    with callers.admit(ADA, 0.0), callers.admit(ADA, 0.0):
        with callers.admit(eve, 0.0):
            assert asyncio.run(callers.identify(eve)).user == "eve"
            with callers.admit(100_001, 0.0), callers.admit(100_002, 0.0), callers.admit(eve, 0.0):
                with pytest.raises(LimitError, match=f"it has 2 of the account {eve}, one"), callers.admit(eve, 0.0):
                    pass
                with (
                    pytest.raises(LimitError, match=f"containers of the account {ADA}, one"),
                    callers.admit(100_003, 0.0),
                ):
                    pass
        with pytest.raises(AccountError), callers.admit(100_003, 0.0):
            asyncio.run(callers.identify(100_003))
