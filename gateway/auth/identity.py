"""The identity provider in front of every path of the server.

The identity comes from a token that the administrator configured, or from the login that the token
led to, and never from a client's own statement.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pwd
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from jupyter_server import CallContext
from jupyter_server.auth import IdentityProvider, PasswordIdentityProvider, User as JupyterUser
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError, RequestHandler
from traitlets import Dict, TraitError, default, validate

from jupyter_aliquot.gateway.base.jupyter_private import forget_user, known_user
from jupyter_aliquot.gateway.base.startup_gate import until_recovered
from jupyter_aliquot.gateway.limits.http import admit

from .access import REFUSAL, may_reach
from .principals import ANONYMOUS, ROLES, User

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass
class AliquotUser(JupyterUser):
    """Jupyter's user with a role and teams.

    Only our identity providers make one, from their own data.
    """

    role: str = "user"
    # A tuple: Jupyter answers /api/me with it as JSON.
    teams: tuple[str, ...] = ()


@cache
def operating_system_user() -> User:
    """Return the account that this server runs as.

    It is the one user of a server without configured users.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return User(name, "admin")


def current_user() -> User:
    """Return the user of the request being served; the server's own account outside of any request."""
    handler = CallContext.get(CallContext.JUPYTER_HANDLER)
    return operating_system_user() if handler is None else user_of(handler)


def user_of(handler: JupyterHandler) -> User:
    """Return the user of this request, by the identity provider's answer."""
    found: JupyterUser | None = known_user(handler)
    if found is None:
        return ANONYMOUS
    if isinstance(found, AliquotUser):
        return User(found.username, found.role, frozenset(found.teams))
    provider = handler.identity_provider
    # These invent a name for each browser. All of them stand for one user, the account's owner.
    if isinstance(provider, AliquotIdentityProvider) or type(provider) in (IdentityProvider, PasswordIdentityProvider):
        return operating_system_user()
    return User(found.username, "admin")


def tells_people_apart(provider: IdentityProvider) -> bool:
    """Return whether this server has several users."""
    return isinstance(provider, AliquotIdentityProvider) and provider.has_users


def users_by_name(provider: IdentityProvider) -> Callable[[str], User]:
    """Return a function that finds a user outside of their requests.

    Only our own provider knows roles and teams.
    """
    if isinstance(provider, AliquotIdentityProvider):
        return provider.user_named
    return lambda name: User(name, "user")


def user_finder(provider: IdentityProvider) -> Callable[[str], User]:
    """Return a function that finds the user whom a request over HTTP would have.

    Without configured users that is the server's own. The function serves grants to a name outside
    of a request, or by the local socket.
    """
    if isinstance(provider, AliquotIdentityProvider) and provider.has_users:
        return provider.user_named
    return lambda name: User(name, "admin")


class AliquotIdentityProvider(PasswordIdentityProvider):
    """Jupyter's own identity provider. With configured `users`, each has a token and a role."""

    users = Dict(
        help=(
            "Users of this server: name to a table of `token` (or `token_hash`, its SHA-256 in hex), `role` "
            "(user or admin; user if not given) and `teams` (a list of names). Empty: the server has one user, as "
            "Jupyter does by itself."
        ),
    ).tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.users:
            if self.hashed_password or (self.token and not self.token_generated):
                self.log.warning("users are configured: the server's own token and password are not accepted")
            self.token, self.hashed_password, self.token_generated = "", "", False

    @property
    def has_users(self) -> bool:
        """Return whether this server has several users."""
        return bool(self.users)

    @property
    def auth_enabled(self) -> bool:
        """Called by Jupyter Server. Without it, an empty server token would give access to all."""
        return self.has_users or bool(super().auth_enabled)

    @default("cookie_options")
    def _own_cookie_options(self) -> dict[str, Any]:
        """Return options that keep browsers from sending the cookie with requests of other sites."""
        return {"samesite": "Lax"} if self.has_users else {}

    @default("updatable_fields")
    def _own_updatable_fields(self) -> list[str]:
        fields: list[str] = [] if self.has_users else self._default_updatable_fields()
        return fields

    @validate("users")
    def _users_are_complete(self, proposal: dict[str, Any]) -> dict[str, dict[str, Any]]:
        users: dict[str, dict[str, Any]] = proposal["value"]
        for name, entry in users.items():
            _check_user(name, entry)
        if len({_digest_of(entry) for entry in users.values()}) < len(users):
            raise TraitError("c.AliquotIdentityProvider.users: two users have the same token; give each their own")
        return users

    async def get_user(self, handler: RequestHandler) -> JupyterUser | None:
        """Return the user of a request.

        Called by JupyterHandler.prepare for every request, and thus the outer gate, too.
        """
        await until_recovered(handler)
        user = await self._get_user(handler)
        refuse_unreachable(user, cast(JupyterHandler, handler))
        return user

    async def get_user_token(self, handler: RequestHandler) -> JupyterUser | None:
        """Return the user of the token in the request. Called by `_get_user`."""
        if not self.has_users:
            return await super().get_user_token(handler)
        return self._user_with_token(self.get_token(handler) or "")

    def process_login_form(self, handler: RequestHandler) -> JupyterUser | None:
        """Return the user whose token was typed into the login page.

        Called by the login handler.
        """
        if not self.has_users:
            return super().process_login_form(handler)
        return self._user_with_token(handler.get_argument("password", default="") or "")

    def user_to_cookie(self, user: JupyterUser) -> str:
        """Return a cookie with the user and the token of the login.

        So a withdrawn token ends its logins.
        """
        if not isinstance(user, AliquotUser):
            return str(super().user_to_cookie(user))
        return json.dumps({"username": user.username, "login": self._login_mark(user.username)})

    def user_from_cookie(self, cookie_value: str) -> JupyterUser | None:
        """Return the user of a cookie. The role is read from the present configuration."""
        if not self.has_users:
            return super().user_from_cookie(cookie_value)
        cookie = json.loads(cookie_value)
        name = cookie.get("username", "")
        if name not in self.users or not hmac.compare_digest(cookie.get("login", ""), self._login_mark(name)):
            return None
        return self._user_named(name)

    def _user_with_token(self, token: str) -> AliquotUser | None:
        presented = hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
        found = None
        # All are compared, so that the time does not tell which one came close.
        for name, entry in self.users.items():
            if hmac.compare_digest(presented, _digest_of(entry)):
                found = name
        return None if found is None else self._user_named(found)

    def remember_in(self, folder: Path) -> None:
        """Called by the extension with the gateway's state folder.

        Configured users need no state.
        """

    async def start(self) -> None:
        """Called by the extension once the server's loop runs.

        Users of the configuration change with a restart.
        """

    async def stop(self) -> None:
        """Called by the extension."""

    def knows(self, name: str) -> bool:
        """Return whether the teams of this user are known: those of the configuration are."""
        return True

    def has_user(self, name: str) -> bool:
        """Return whether this server has a user of this name, as far as it knows."""
        return not self.has_users or name in self.users

    async def removed_users(self, names: Collection[str]) -> frozenset[str]:
        """Return those of *names*, which all were users of this server, that it has no more."""
        return frozenset(name for name in names if not self.has_user(name))

    def user_named(self, name: str) -> User:
        """Return a configured user by name; without role and teams if there is none of that name."""
        entry = self.users.get(name, {})
        return User(name, entry.get("role", "user"), frozenset(entry.get("teams", ())))

    def _user_named(self, name: str) -> AliquotUser:
        known = self.user_named(name)
        return AliquotUser(name, role=known.role, teams=tuple(sorted(known.teams)))

    def _login_mark(self, name: str) -> str:
        return hashlib.sha256(f"login:{name}:{_digest_of(self.users[name])}".encode()).hexdigest()


def refuse_unreachable(user: JupyterUser | None, handler: JupyterHandler) -> None:
    """Refuse requests that come too fast, and users' requests to other paths than those of kernels.

    The outer gate.
    """
    if user is None or (isinstance(user, AliquotUser) and user.role != "admin"):
        admit(handler, "" if user is None else user.username)
    if not isinstance(user, AliquotUser) or user.role == "admin":
        return
    if not may_reach(handler.request.path, handler.base_url):
        # Set as prepare does when it refuses a host: the error page reads the user.
        forget_user(handler)
        raise HTTPError(403, REFUSAL)


def _check_user(name: object, entry: object) -> None:
    setting = "c.AliquotIdentityProvider.users"
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise TraitError(f"{setting}: {name!r} is not a valid user name. Use printable text")
    if not isinstance(entry, dict) or not all(isinstance(entry[field], str) for field in set(entry) - {"teams"}):
        raise TraitError(f"{setting}: the entry of {name!r} is not a table of texts. Use {{'token': …, 'role': …}}")
    if unknown := set(entry) - {"token", "token_hash", "role", "teams"}:
        raise TraitError(
            f"{setting}: the entry of {name!r} has unknown fields {sorted(unknown)}. Use token or "
            "token_hash, role and teams"
        )
    teams = entry.get("teams", ())
    if not isinstance(teams, (list, tuple, set, frozenset)) or not all(
        isinstance(team, str) and team.strip() and team.isprintable() for team in teams
    ):
        raise TraitError(f"{setting}: {teams!r} are no teams of {name!r}. Use a list of names, such as ['vision'].")
    if ("token" in entry) == ("token_hash" in entry) or not entry.get("token", entry.get("token_hash")):
        raise TraitError(f"{setting}: the entry of {name!r} needs exactly one of token and token_hash, not empty")
    if "token_hash" in entry and not _SHA256.fullmatch(entry["token_hash"].lower()):
        raise TraitError(f"{setting}: the token_hash of {name!r} is no SHA-256 in hex (64 digits)")
    if entry.get("role", "user") not in ROLES:
        raise TraitError(
            f"{setting}: {name!r} has the role {entry['role']!r}, which does not exist. Use one of {', '.join(ROLES)}"
        )


def _digest_of(entry: dict[str, Any]) -> str:
    if "token_hash" in entry:
        return str(entry["token_hash"]).lower()
    return hashlib.sha256(entry["token"].encode()).hexdigest()
