"""The token with which a user's server asks the gateway: it opens the gateway alone.

With the server's own token one could use that server, terminals included. Whatever answers at the
gateway's address gets the token that is sent there, so it is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .scopes import access_scope, availability_service, server_scopes
from .settings import HubConfigError

# On the spawner: the token of this start of the server with its gateway, and the token for that.
_MADE = "_aliquot_gateway_token"


def gateway_token(service_of: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return the function of a spawner that makes the token for its gateway.

    The Hub calls it at each start of a server, and some spawners more than once.
    """

    def token_for(spawner: Any) -> str:
        start = (spawner.api_token, service_of(spawner))
        made_for, made = getattr(spawner, _MADE, (None, ""))
        if made_for != start:
            made = _make_token(spawner, start[1])
            setattr(spawner, _MADE, (start, made))
        return str(made)

    return token_for


def remove_token(services: Iterable[str]) -> Callable[[Any], Any]:
    """Return the function that extends the post-stop hook that is set.

    It removes the tokens of a server that has stopped. A server that the spawner resumes keeps them,
    as it keeps its own.
    """
    names = tuple(services)

    def make(found: Any) -> Any:
        def removed(spawner: Any) -> Any:
            for service in () if spawner.will_resume else names:
                _remove(spawner, service)
            return found(spawner) if callable(found) else None

        return removed

    return make


def availability_token(db: Any, service: str, seconds: int) -> str:
    """Make a token of the spawn page's that opens this gateway alone, and expires after this time.

    Raises HubConfigError.
    """
    from jupyterhub.orm import Service  # type: ignore[import-untyped]  # it carries no types

    page = Service.find(db, availability_service(service))
    if page is None:
        raise HubConfigError(
            f"this Hub has no service {availability_service(service)!r}: c.JupyterHub.services was set after "
            "configure(). Call configure() last"
        )
    note = "The spawn page, which asks the gateway for its free GPUs"
    return str(page.new_api_token(scopes=[access_scope(service)], note=note, expires_in=seconds))


def _make_token(spawner: Any, service: str) -> str:
    """Make a token of the server's user, in the place of the one of the server's last start.

    Its scopes are those of the server's token that the gateway looks at: the Hub granted them if the
    user holds them. It does not belong to the server's OAuth client: the Hub lets the tokens of a
    client use the client's server.
    """
    from jupyterhub.orm import APIToken

    _remove(spawner, service)
    servers = APIToken.find(spawner.db, spawner.api_token)
    scopes = [scope for scope in server_scopes(service) if servers is not None and scope in servers.scopes]
    return str(spawner.user.new_api_token(scopes=scopes, note=_note(spawner, service)))


def _remove(spawner: Any, service: str) -> None:
    from jupyterhub.orm import APIToken

    made = spawner.db.query(APIToken).filter_by(user_id=spawner.user.id, note=_note(spawner, service))
    for token in made:
        spawner.db.delete(token)
    spawner.db.commit()


def _note(spawner: Any, service: str) -> str:
    """Return what the Hub's page of tokens shows, which also finds the token again."""
    return f"The gateway {service}, for the server {spawner.user.name}/{spawner.name}"
