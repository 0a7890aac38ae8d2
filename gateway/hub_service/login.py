"""Login, callback and logout of a browser, by the Hub's OAuth.

JupyterHub's handlers do it; none blocks the loop.
"""

# mypy: disable-error-code="no-untyped-call, misc, import-untyped, override"
# Neither JupyterHub's handlers nor Jupyter Server's carry types.
from __future__ import annotations

from typing import Any, NoReturn
from urllib.parse import urlsplit

from jupyter_server import CallContext
from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyterhub.singleuser.extension import JupyterHubLogoutHandler, JupyterHubOAuthCallbackHandler
from tornado.web import RequestHandler

from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.base.startup_gate import until_recovered
from jupyter_aliquot.gateway.limits.http import admit, refuse_for
from jupyter_aliquot.provisioner.errors import HubError, TooManyTokensError

# The first page after a login that was not on the way to another one.
_FIRST_PAGE = "aliquot/api/v1/status"


class HubLoginHandler(JupyterHandler):
    """/login: to the Hub and back, to a page of this gateway."""

    def initialize(self, hub_auth: Any) -> None:
        self._hub_auth = hub_auth

    @allow_unauthenticated
    async def get(self) -> None:
        page = self._page()
        if self.current_user:
            self.redirect(page)
            return
        # The Hub redirects back to this page.
        self.request.uri = page
        self.redirect(self.get_login_url())

    def _page(self) -> str:
        """Return the page after the login; a link to another site leads to the first page."""
        wanted = self.get_argument("next", default="")
        parts = urlsplit(wanted)
        is_ours = not parts.scheme and not parts.netloc and wanted.startswith(self.base_url)
        if not is_ours or "\\" in wanted or "//" in parts.path:
            return self.base_url + _FIRST_PAGE
        return wanted


class HubCallbackHandler(JupyterHubOAuthCallbackHandler):
    """/oauth_callback: the Hub's code becomes a token, which the browser keeps in a cookie."""

    async def prepare(self) -> None:
        """Called by tornado. JupyterHub's handler would ask the Hub later on, and block the loop.

        That handler is no JupyterHandler, whose `prepare` counts the request and sets it as the
        present one, by which the address of a token's sender is found. So this method does both.
        """
        CallContext.set(CallContext.JUPYTER_HANDLER, self)
        self._hub_auth_user_cache = None
        await until_recovered(self)
        admit(self, "")
        try:
            self._hub_auth_user_cache = await self.hub_auth.get_user(self, sync=False)
        except HubError as error:
            _refuse(self, error)

    @allow_unauthenticated
    async def get(self) -> None:
        """End a login, with a token that is new to the gateway."""
        try:
            await super().get()
        except HubError as error:
            _refuse(self, error)


def _refuse(handler: Any, error: HubError) -> NoReturn:
    if isinstance(error, TooManyTokensError):
        refuse_for(handler, error.wait_seconds, str(error))
    raise http_error(error) from error


class HubLogoutHandler(JupyterHubLogoutHandler):
    """/logout: forgets the cookie, and goes on to the Hub's logout."""

    def initialize(self, hub_auth: Any) -> None:
        """Called by tornado, with what all handlers of a login get."""


HUB_LOGIN_HANDLERS: tuple[tuple[str, type[RequestHandler]], ...] = (
    (r"/login", HubLoginHandler),
    (r"/logout", HubLogoutHandler),
    (r"/oauth_callback", HubCallbackHandler),
)
