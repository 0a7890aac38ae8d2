"""Identity of a request: the configured users, and the one user of a server without any."""

from __future__ import annotations

import hashlib
import os
import pwd
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server import CallContext
from jupyter_server.auth import IdentityProvider, PasswordIdentityProvider, User as JupyterUser
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.access import may_do, may_reach
from jupyter_aliquot.gateway.auth.identity import (
    AliquotIdentityProvider,
    AliquotUser,
    current_user,
    user_of,
)
from jupyter_aliquot.gateway.auth.principals import ANONYMOUS, User

ME = User(pwd.getpwuid(os.getuid()).pw_name, "admin")
SHA = hashlib.sha256(b"secret of bob").hexdigest()
USERS = {"alice": {"token": "secret of alice", "role": "admin"}, "bob": {"token_hash": SHA.upper()}}


def provider(users: dict[str, Any] | None = None, **knobs: Any) -> AliquotIdentityProvider:
    return AliquotIdentityProvider(config=Config({"AliquotIdentityProvider": {"users": users or {}, **knobs}}))


def request(token: str = "", **attributes: Any) -> Any:
    """Return the part of a handler that identity reads."""
    return SimpleNamespace(
        get_argument=lambda name, default="": token if name in ("token", "password") else default,
        request=SimpleNamespace(headers={}),
        **attributes,
    )


@pytest.mark.parametrize(
    ("token", "want"),
    [
        ("secret of alice", ("alice", "admin")),
        ("secret of bob", ("bob", "user")),
        ("secret of bo", None),
        (SHA, None),
        ("", None),
        ("\udcff", None),
    ],
)
async def test_a_token_is_its_user(token: str, want: tuple[str, str] | None) -> None:
    in_request = await provider(USERS).get_user_token(request(token))
    in_login_form = provider(USERS).process_login_form(request(token))
    for user in (in_request, in_login_form):
        assert want == (None if user is None else (user.username, user.role))


@pytest.mark.parametrize(
    ("users", "want"),
    [
        ({"": {"token": "x"}}, "printable text"),
        ({"a\nb": {"token": "x"}}, "printable text"),
        ({"alice": "a token"}, "not a table of texts"),
        ({"alice": {"token": 5}}, "not a table of texts"),
        ({"alice": {}}, "exactly one of token and token_hash"),
        ({"alice": {"token": ""}}, "exactly one of token and token_hash"),
        ({"alice": {"token": "x", "token_hash": SHA}}, "exactly one of token and token_hash"),
        ({"alice": {"token_hash": "abc"}}, "64 digits"),
        ({"alice": {"token": "x", "role": "root"}}, "Use one of user, admin"),
        ({"alice": {"token": "x", "roles": "admin"}}, "unknown fields ['roles']"),
        ({"alice": {"token": "x"}, "bob": {"token": "x"}}, "the same token"),
        ({"alice": {"token": "x", "teams": "vision"}}, "Use a list of names"),
        ({"alice": {"token": "x", "teams": ["vision", 5]}}, "Use a list of names"),
    ],
)
def test_a_wrong_table_of_users_is_refused_without_telling_tokens(users: dict[str, Any], want: str) -> None:
    with pytest.raises(TraitError) as caught:
        provider(users)
    assert want in str(caught.value)
    assert "c.AliquotIdentityProvider.users" in str(caught.value)


def test_with_users_the_servers_own_token_and_password_open_nothing() -> None:
    found = provider(USERS, token="the servers own", hashed_password="argon2:x")
    assert (found.token, found.hashed_password, found.auth_enabled) == ("", "", True)
    assert found.process_login_form(request("the servers own")) is None


def test_with_users_nobody_can_rename_themselves() -> None:
    assert provider(USERS).updatable_fields == []


def test_without_users_everything_is_as_jupyters() -> None:
    ours, stock = provider(token="t"), PasswordIdentityProvider(config=Config({"IdentityProvider": {"token": "t"}}))
    assert (ours.has_users, ours.token, ours.auth_enabled) == (False, stock.token, stock.auth_enabled)
    assert ours.updatable_fields == stock.updatable_fields
    assert ours.user_from_cookie(ours.user_to_cookie(JupyterUser("moon"))) == JupyterUser("moon")
    assert not provider(token="").auth_enabled


def test_a_cookie_names_its_user_and_takes_the_role_of_today() -> None:
    cookie = provider(USERS).user_to_cookie(AliquotUser("bob", role="user"))
    promoted = provider({"bob": {"token_hash": SHA, "role": "admin"}})
    assert "secret" not in cookie
    assert SHA not in cookie
    assert promoted.user_from_cookie(cookie) == AliquotUser("bob", role="admin")


def test_a_user_has_the_teams_of_the_configuration() -> None:
    found = provider({"eve": {"token": "x", "teams": ["vision", "audio"]}})
    assert found.user_named("eve") == User("eve", "user", frozenset({"vision", "audio"}))
    assert found.user_named("nobody-of-this-name") == User("nobody-of-this-name", "user")
    cookie = found.user_to_cookie(AliquotUser("eve"))
    assert found.user_from_cookie(cookie) == AliquotUser("eve", teams=("audio", "vision"))


def test_a_withdrawn_token_ends_its_logins() -> None:
    cookie = provider(USERS).user_to_cookie(AliquotUser("bob", role="user"))
    assert provider({"bob": {"token": "a new one"}}).user_from_cookie(cookie) is None
    assert provider({"alice": {"token": "x"}}).user_from_cookie(cookie) is None


def test_a_cookie_of_a_server_without_users_opens_nothing() -> None:
    cookie = provider(token="t").user_to_cookie(JupyterUser("alice"))
    assert provider(USERS).user_from_cookie(cookie) is None


def test_outside_of_a_request_the_servers_account_asks() -> None:
    assert current_user() == ME


@pytest.mark.parametrize(
    ("found", "by", "want"),
    [
        (None, AliquotIdentityProvider(), ANONYMOUS),
        (AliquotUser("bob", role="user"), AliquotIdentityProvider(), User("bob", "user")),
        (AliquotUser("ada", role="admin"), AliquotIdentityProvider(), User("ada", "admin")),
        (AliquotUser("eve", teams=("a", "b")), AliquotIdentityProvider(), User("eve", "user", frozenset({"a", "b"}))),
        (JupyterUser("a random id"), AliquotIdentityProvider(), ME),
        (JupyterUser("a random id"), PasswordIdentityProvider(), ME),
        (JupyterUser("a random id"), IdentityProvider(), ME),
        (JupyterUser("hub-user"), SimpleNamespace(), User("hub-user", "admin")),
    ],
)
def test_in_a_request_the_identity_provider_tells(found: Any, by: Any, want: User) -> None:
    handler: Any = SimpleNamespace(_jupyter_current_user=found, identity_provider=by)
    assert user_of(handler) == want


def test_the_request_that_is_served_is_found_by_its_context() -> None:
    handler = SimpleNamespace(_jupyter_current_user=AliquotUser("bob"), identity_provider=AliquotIdentityProvider())
    CallContext.set(CallContext.JUPYTER_HANDLER, handler)
    try:
        assert current_user() == User("bob", "user")
    finally:
        CallContext.set(CallContext.JUPYTER_HANDLER, None)


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/base/api/kernels", True),
        ("/base/api/kernels/1/channels", True),
        ("/base/aliquot/api/v1/status", True),
        ("/base/api/contents", False),
        ("/base/api/kernelsx", False),
        ("/base/api/resolvePath", False),
        ("/base/lab", False),
        ("/base/", False),
        ("/api/kernels", False),
        ("/base/api/%6Bernels", False),
        ("/base/api/contents?x=/api/kernels", False),
    ],
)
def test_the_outer_gate_knows_its_paths(path: str, want: bool) -> None:
    assert may_reach(path, "/base/") == want


def test_what_is_in_no_table_is_refused() -> None:
    assert may_do("execute", "kernels")
    assert not may_do("execute", "terminals")
    assert not may_do("write", "api")
    assert not may_do("read", "something new")
