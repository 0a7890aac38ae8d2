"""The gateway as a JupyterHub service: the Hub sets its address and authenticates its users."""

from __future__ import annotations

from typing import Any

from traitlets import Instance, default

from jupyter_aliquot.gateway.base.errors import CommandError
from jupyter_aliquot.gateway.hub_service.environment import HubService
from jupyter_aliquot.gateway.hub_service.identity import HubIdentityProvider
from jupyter_aliquot.gateway.hub_service.proxy_headers import believe_the_proxy
from jupyter_aliquot.gateway.sharing.authorizer import AliquotAuthorizer

from .app import GatewayServerApp
from .hub_address import check_address

# The sections whose own token, password and users are ignored here.
_OWN_LOGINS = ("IdentityProvider", "PasswordIdentityProvider", "AliquotIdentityProvider", "ServerApp")
_OWN_LOGIN_KNOBS = ("token", "password", "hashed_password", "password_required")


class HubGatewayServerApp(GatewayServerApp):
    """The application of `aliquot serve --hub`.

    The environment sets the defaults. Options and files still win, except for authentication.
    """

    name = "aliquot serve"
    classes = [*GatewayServerApp.classes, HubIdentityProvider]
    is_hub_service = True
    hub = Instance(HubService)

    @default("ip")
    def _default_ip(self) -> str:
        return self.hub.ip

    @default("port")
    def _default_port(self) -> int:
        return self.hub.port

    @default("port_retries")
    def _default_port_retries(self) -> int:
        return 0

    @default("base_url")
    def _default_base_url(self) -> str:
        return self.hub.prefix

    @default("default_url")
    def _default_default_url(self) -> str:
        return "/login"

    @default("allow_remote_access")
    def _default_allow_remote_access(self) -> bool:
        # The Hub's proxy passes the browser's Host header on.
        return True

    @default("trust_xheaders")
    def _default_trust_xheaders(self) -> bool:
        return True

    @default("keyfile")
    def _default_keyfile(self) -> str:
        return self.hub.keyfile if self.hub.is_secure else ""

    @default("certfile")
    def _default_certfile(self) -> str:
        return self.hub.certfile if self.hub.is_secure else ""

    @default("client_ca")
    def _default_client_ca(self) -> str:
        return self.hub.client_ca if self.hub.is_secure else ""

    def find_server_extensions(self) -> None:
        """Called by ServerApp.initialize between reading the configuration and making its parts."""
        self._put_classes()
        if ignored := self._ignored_logins():
            self.log.warning(
                "a service of JupyterHub: its users are the Hub's; not accepted here: %s", ", ".join(ignored)
            )
        super().find_server_extensions()

    def _put_classes(self) -> None:
        ours = {"identity_provider_class": HubIdentityProvider, "authorizer_class": AliquotAuthorizer}
        for trait, wanted in ours.items():
            found = self.config.get("ServerApp", {}).get(trait, wanted)
            if found is not wanted:
                raise CommandError(
                    f"--hub: c.ServerApp.{trait} is {found!r}, but a service of JupyterHub has its own. Remove it"
                )
            setattr(self, trait, wanted)

    def _ignored_logins(self) -> list[str]:
        return [
            f"c.{section}.{knob}"
            for section in _OWN_LOGINS
            for knob in _OWN_LOGIN_KNOBS
            if self.config.get(section, {}).get(knob)
        ]

    def init_httpserver(self) -> None:
        """Called by ServerApp.initialize."""
        check_address(self.ip, self.port)
        super().init_httpserver()
        provider = self.identity_provider
        assert isinstance(provider, HubIdentityProvider)  # put there before it was made
        believe_the_proxy(self.http_server, provider.trusted_proxies)

    def init_webapp(self) -> None:
        """Called by ServerApp.initialize."""
        # JupyterHub's XSRF check replaces tornado's, which runs before the user is authenticated.
        self.tornado_settings: dict[str, Any] = {**self.tornado_settings, "xsrf_cookies": False}
        headers = self.tornado_settings.setdefault("headers", {})
        # Pages of users' servers share this gateway's origin.
        headers.setdefault("Content-Security-Policy", "frame-ancestors 'none'")
        super().init_webapp()
