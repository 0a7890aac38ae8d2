"""The identity provider of a gateway in a JupyterHub: the Hub's user of the request's token.

`aliquot serve --hub` loads it.

JupyterHub's own classes read tokens from requests, log browsers in and guard against forged ones;
ours bound how often the Hub is asked. What a client says of itself is never believed.
"""

# mypy: disable-error-code="no-untyped-call, misc, import-untyped"
# Neither JupyterHub's classes nor Jupyter Server's handlers carry types.
from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Collection
from pathlib import Path
from types import MethodType
from typing import Any, cast

from jupyter_server import CallContext
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyterhub.services.auth import HubOAuth
from jupyterhub.singleuser.extension import JupyterHubIdentityProvider
from tornado.netutil import is_valid_ip
from tornado.web import HTTPError, RequestHandler
from tornado.websocket import WebSocketHandler
from traitlets import Float, Instance, Int, List, TraitError, Unicode, default, validate

from jupyter_aliquot.gateway.auth.identity import AliquotIdentityProvider, AliquotUser, refuse_unreachable
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.base.jupyter_private import forget_user
from jupyter_aliquot.gateway.base.startup_gate import until_recovered
from jupyter_aliquot.gateway.hub.scopes import ADMIN_SCOPE, availability_service
from jupyter_aliquot.gateway.limits.http import refuse_for
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import HubAwayError, HubError, TooManyTokensError

from .environment import HubService
from .login import HUB_LOGIN_HANDLERS
from .removed_users import HubUserList, RemovedUsers
from .token_cache import CheckLimits, Model, TokenChecks
from .user_cache import HubPeople, is_service, service_name
from .websocket_recheck import HubSockets

UNKNOWN_TOKEN = (
    "JupyterHub does not know this token: it was revoked, or its time is over. Log in again, or restart your server "
    "from the Hub's control panel"
)
NO_ACCESS = "%s may not use the service %r: this token has no scope %s. Ask the Hub's administrator"
STATUS_PATH = "/aliquot/api/v1/status"
PAGE_ONLY = (
    f"This token is of the Hub's spawn page, which may GET {STATUS_PATH} and nothing else. Use a token of your own"
)
OWN_TOKEN_UNKNOWN = (
    "JupyterHub does not know the token of this gateway (JUPYTERHUB_API_TOKEN): no user can log in by a browser, "
    "and kernels outlive minutes_without_server. Give it the api_token of the service %r in jupyterhub_config.py"
)
# Logins that have begun, and the length of the page that each leads to; without it, the first page.
_MOST_LOGINS, _LONGEST_PAGE = 20_000, 2048


class HubTokens(HubOAuth):
    """JupyterHub's client, with our cache of tokens in place of its own.

    No call blocks the loop.
    """

    checks = Instance(TokenChecks)
    # The timeout of one request to the Hub.
    answer_seconds = 10.0

    @default("checks")
    def _own_checks(self) -> TokenChecks:
        return TokenChecks(self.ask, SystemClock(), CheckLimits())

    @default("allow_websocket_cookie_auth")
    def _no_websockets_by_cookie(self) -> bool:
        # Pages of users' servers have the gateway's origin and a visitor's cookies: such a page
        # could open websockets.
        return False

    def user_for_token(
        self, token: str, use_cache: bool = True, session_id: str = "", *, sync: bool = True
    ) -> Awaitable[Model | None]:
        """Called by HubOAuth for every token, of a header, a URL or a cookie."""
        _refuse_to_block(sync)
        handler = CallContext.get(CallContext.JUPYTER_HANDLER)
        return self.checks.model_of(token, "" if handler is None else str(handler.request.remote_ip))

    def get_user(self, handler: RequestHandler, *, sync: bool = True) -> Any:
        """Called by JupyterHub's identity provider and its callback handler."""
        _refuse_to_block(sync)
        return super().get_user(handler, sync=False)

    def generate_state(self, next_url: str | None = None, **more: Any) -> str:
        """Make the state of a login.

        Called for each browser on its way to the Hub's login; each state is kept for long.
        """
        states = self._oauth_states
        while len(states) >= _MOST_LOGINS:
            del states[next(iter(states.timestamps))]
        is_kept = next_url is not None and len(next_url) <= _LONGEST_PAGE
        return str(super().generate_state(next_url if is_kept else None, **more))

    async def ask(self, token: str) -> Model | None:
        """Ask the Hub about the token. Raises HubAwayError."""
        try:
            asked = super().user_for_token(token, use_cache=False, sync=False)
            model: Model | None = await asyncio.wait_for(asked, self.answer_seconds)
        except (HTTPError, asyncio.TimeoutError, ValueError) as error:
            self.log.warning("hub=away url=%s reason=%s", self.api_url, error or type(error).__name__)
            raise HubAwayError(f"JupyterHub at {self.api_url} does not answer") from error
        return model

    def _get_token_url(self, handler: RequestHandler) -> str:
        """Called by get_token. A websocket may come from a client that sends no fetch mode."""
        if isinstance(handler, WebSocketHandler):
            return str(handler.get_argument("token", ""))
        return str(super()._get_token_url(handler))

    def _get_token_cookie(self, handler: RequestHandler) -> str | None:
        """Called by HubOAuth, which checks a header that browsers send to secure origins only."""
        if isinstance(handler, WebSocketHandler) and not self.allow_websocket_cookie_auth:
            return None
        token: str | None = super()._get_token_cookie(handler)
        return token


class HubIdentityProvider(JupyterHubIdentityProvider, AliquotIdentityProvider):
    """The Hub's users, with its groups as their teams.

    The server's own token, password and users count for nothing.
    """

    recheck_seconds = Float(
        30.0,
        help="How old the Hub's answer about a token may be: within this time a token that was revoked, or whose user "
        "may do less, is refused, and the websockets that it opened are closed.",
    ).tag(config=True)
    hub_away_seconds = Float(
        300.0,
        help="How much longer the last answer counts while the Hub does not answer. Tokens that it was not asked about "
        "before are refused with 503 meanwhile.",
    ).tag(config=True)
    hub_answer_seconds = Float(10.0, help="How long one question to the Hub may take; then it is away.").tag(
        config=True
    )
    remembered_tokens = Int(10_000, help="How many tokens, and how many wrong ones, are remembered.").tag(config=True)
    wrong_tokens_per_minute = Int(
        600, help="How many unknown tokens may turn out wrong in a minute before no new one is looked up (429)."
    ).tag(config=True)
    wrong_tokens_per_address = Int(60, help="The same, for those of one address.").tag(config=True)
    trusted_proxies = List(
        Unicode(),
        help="Addresses of proxies in front of the Hub's own. An address is what the last proxy says that is none of "
        "these, in X-Forwarded-For; X-Real-Ip counts for nothing: the Hub's proxy hands on what clients write.",
    ).tag(config=True)

    hub = Instance(HubService, help="The service that this gateway is, from the environment.")
    hub_auth = Instance(HubTokens)
    # The Hub's class stores the service's secret here, which Jupyter writes into files and URLs.
    token = ""
    hashed_password = ""
    auth_enabled = True
    has_users = True
    login_available = True
    logout_available = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.users:
            raise TraitError(
                "c.AliquotIdentityProvider.users: this gateway is a service of JupyterHub, whose users "
                "it has, and the setting names users too. Remove them, or start it without --hub"
            )
        self.people = HubPeople(self.log)
        self.sockets = HubSockets(self.user_with, self.recheck_seconds, self.people, SystemClock(), self.log)
        self._removed = RemovedUsers(SystemClock(), self.log)

    _own_check: asyncio.Task[None] | None = None

    @default("hub")
    def _hub_of_the_server(self) -> HubService:
        server: Any = self.parent
        service: HubService = server.hub
        return service

    @default("hub_auth")
    def _own_hub_auth(self) -> HubTokens:
        hub = self.hub
        auth = HubTokens(
            parent=self,
            base_url=hub.prefix,
            api_url=hub.api_url,
            api_token=hub.api_token,
            hub_host=hub.hub_host,
            hub_prefix=hub.hub_prefix,
            oauth_client_id=hub.client_id,
            oauth_redirect_uri=hub.callback_url,
            access_scopes=set(hub.scopes),
            keyfile=hub.keyfile,
            certfile=hub.certfile,
            client_ca=hub.client_ca,
        )
        auth.answer_seconds = self.hub_answer_seconds
        auth.checks = TokenChecks(auth.ask, SystemClock(), self._limits())
        return auth

    def _limits(self) -> CheckLimits:
        return CheckLimits(
            recheck_seconds=self.recheck_seconds,
            hub_away_seconds=self.hub_away_seconds,
            tokens=self.remembered_tokens,
            wrong_per_minute=self.wrong_tokens_per_minute,
            wrong_per_address=self.wrong_tokens_per_address,
        )

    async def get_user(self, handler: RequestHandler) -> AliquotUser | None:
        """Return the user of a request, after the limits.

        Called by JupyterHandler.prepare for every request.
        """
        await until_recovered(handler)
        handler = cast(JupyterHandler, handler)
        try:
            found: Any = await super().get_user(handler)
        except TooManyTokensError as error:
            refuse_for(handler, error.wait_seconds, str(error))
        except HubError as error:
            # Set as prepare does when it refuses a host: the error page reads the user from it.
            forget_user(handler)
            _answer_in_words(handler)
            raise http_error(error) from error
        user = None if found is None else self._met(found.hub_user)
        refuse_unreachable(user, handler)
        if user is not None and self._is_page(user.username):
            _refuse_beyond_status(handler)
        if user is None:
            self._tell_refused(handler)
        elif isinstance(handler, WebSocketHandler):
            is_explicit = getattr(handler, "_token_authenticated", False)
            token = str(self.hub_auth.get_token(handler, in_cookie=not is_explicit))
            self.sockets.watch(handler, token, self.user_of_model(found.hub_user))
        return user

    def _is_page(self, name: str) -> bool:
        """Return whether this is the Hub's spawn page, which asks for the free GPUs."""
        return name == service_name(availability_service(self.hub.name))

    def _tell_refused(self, handler: JupyterHandler) -> None:
        """Answer an unknown token with the reason, where Jupyter answers a bare 403.

        Without a token a user may log in.
        """
        method = getattr(handler, str(handler.request.method).lower(), None)
        if getattr(method, "__allow_unauthenticated", False) or not self.hub_auth.get_token(handler, in_cookie=False):
            return
        forget_user(handler)
        _answer_in_words(handler)
        model: Model | None = getattr(handler, "_cached_hub_user", None)
        if model is None:
            raise HTTPError(403, UNKNOWN_TOKEN)
        who, wanted = self.user_of_model(model).name, " or ".join(sorted(self.hub_auth.access_scopes))
        raise HTTPError(403, NO_ACCESS % (who, self.hub.name, wanted))

    async def user_with(self, token: str, within_seconds: float) -> User | None:
        """Return the user of this token, if the user may use the gateway. Raises HubError."""
        model = await self.hub_auth.checks.model_of(token, within_seconds=within_seconds)
        if model is None or not self.hub_auth.check_scopes(self.hub_auth.access_scopes, model):
            return None
        user = self.user_of_model(model)
        self.people.meet(user)
        return user

    async def start(self) -> None:
        """Called by the extension once the server's loop runs."""
        self.sockets.start()
        self._own_check = asyncio.create_task(self.check_own_token(), name="aliquot-own-token")

    async def stop(self) -> None:
        """Called by the extension."""
        if self._own_check is not None:
            await end_task(self._own_check)
        await self.sockets.stop()

    async def check_own_token(self) -> None:
        """Write to the log where the Hub does not know the token of this gateway itself."""
        try:
            if await self.hub_auth.ask(self.hub.api_token) is None:
                self.log.error(OWN_TOKEN_UNKNOWN, self.hub.name)
        except HubAwayError:
            return  # unknown: the Hub may start after its gateway

    def _met(self, model: Model) -> AliquotUser:
        user = self.user_of_model(model)
        self.people.meet(user)
        return AliquotUser(user.name, role=user.role, teams=tuple(sorted(user.teams)))

    def user_of_model(self, model: Model) -> User:
        """Convert the Hub's model of a token.

        Services get a name that no user of a Hub can have.
        """
        is_user = model.get("kind", "user") == "user"
        name = model["name"] if is_user else service_name(model["name"])
        role = "admin" if self.hub_auth.check_scopes({ADMIN_SCOPE}, model) else "user"
        return User(name, role, frozenset(model.get("groups") or ()) if is_user else frozenset())

    def remember_in(self, folder: Path) -> None:
        """Called by the extension with the folder where this gateway keeps its state."""
        self.people.keep_in(folder / "hub_users.json")
        self._removed.keep_in(folder / "hub_missing_users.json")

    def knows(self, name: str) -> bool:
        """Return whether the Hub has told of this user."""
        return self.people.knows(name)

    def has_user(self, name: str) -> bool:
        """Return whether the Hub has told of this user, and the gateway has not missed the user since."""
        return self.people.knows(name)

    async def removed_users(self, names: Collection[str]) -> frozenset[str]:
        """Return those of *names* that the Hub has no more, and forget them. Services are no users."""
        users = [name for name in names if not is_service(name)]
        removed = await self._removed.among(users, HubUserList(self.hub_auth))
        for name in removed:
            self.people.forget(name)
        return removed

    def user_named(self, name: str) -> User:
        """Return a user without a request, as the Hub reported the user last."""
        return self.people.named(name)

    def get_handlers(self) -> list[tuple[Any, ...]]:
        """Called by the server's application."""
        return [(path, handler, {"hub_auth": self.hub_auth}) for path, handler in HUB_LOGIN_HANDLERS]

    @validate("trusted_proxies")
    def _are_addresses(self, proposal: dict[str, Any]) -> list[str]:
        proxies: list[str] = proposal["value"]
        for proxy in proxies:
            if not is_valid_ip(proxy):
                raise TraitError(
                    f"c.HubIdentityProvider.trusted_proxies: {proxy!r} is not an address. Use one such as '10.0.0.1'"
                )
        return proxies

    @validate(
        "recheck_seconds",
        "hub_away_seconds",
        "hub_answer_seconds",
        "remembered_tokens",
        "wrong_tokens_per_minute",
        "wrong_tokens_per_address",
    )
    def _is_enough(self, proposal: dict[str, Any]) -> float:
        value, name = proposal["value"], proposal["trait"].name
        least = 0 if name == "hub_away_seconds" else 1
        if not least <= value < math.inf:
            raise TraitError(f"c.HubIdentityProvider.{name}: {value!r} is not valid. Use a number, {least} or more")
        return value  # type: ignore[no-any-return]  # int or float, as the trait is


def _refuse_beyond_status(handler: JupyterHandler) -> None:
    """Refuse the spawn page's token for all but the one request that the page makes.

    Any program that holds the gateway's address while the gateway is down gets that token.
    """
    asked = (handler.request.method, handler.request.path)
    if asked != ("GET", f"{handler.base_url.rstrip('/')}{STATUS_PATH}"):
        forget_user(handler)
        _answer_in_words(handler)
        raise HTTPError(403, PAGE_ONLY)


def _answer_in_words(handler: JupyterHandler) -> None:
    """Refuse a websocket with a status and a message that its client can read.

    Jupyter would answer with a page.
    """
    if isinstance(handler, WebSocketHandler):
        handler.write_error = MethodType(APIHandler.write_error, handler)  # type: ignore[method-assign]


def _refuse_to_block(sync: bool) -> None:
    if sync:
        raise RuntimeError("The Hub is asked without blocking the loop. Use sync=False")
