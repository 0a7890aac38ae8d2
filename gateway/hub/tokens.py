"""The token with which a user's server asks the gateway: it opens the gateway alone.

With the server's own token one could use that server, terminals included. Whatever answers at the
gateway's address gets the token that is sent there, so it is another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .scopes import server_scopes

# On the spawner: the token of this start of the server, and the one for the gateway.
_MADE = "_aliquot_gateway_token"


def gateway_token(service: str) -> Callable[[Any], str]:
    """Return the function of a spawner that makes the token for the gateway.

    The Hub calls it at each start of a server, and some spawners more than once.
    """

    def token_for(spawner: Any) -> str:
        started, made = getattr(spawner, _MADE, ("", ""))
        if not made or started != spawner.api_token:
            made = _make_token(spawner, service)
            setattr(spawner, _MADE, (spawner.api_token, made))
        return made

    return token_for


def remove_token(service: str) -> Callable[[Any], Any]:
    """Return the function that extends the post-stop hook that is set.

    It removes the token of a server that has stopped. A server that the spawner resumes keeps its
    tokens, as it keeps its own.
    """

    def make(found: Any) -> Any:
        def removed(spawner: Any) -> Any:
            if not spawner.will_resume:
                _remove(spawner, service)
            return found(spawner) if callable(found) else None

        return removed

    return make


def _make_token(spawner: Any, service: str) -> str:
    """Make a token of the server's user, in the place of the one of the server's last start.

    Its scopes are those of the server's token that the gateway looks at: the Hub granted them if the
    user holds them. It does not belong to the server's OAuth client: the Hub lets the tokens of a
    client use the client's server.
    """
    from jupyterhub.orm import APIToken  # type: ignore[import-untyped]  # it carries no types

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
