"""The scopes that the Hub must grant so that the gateway can distinguish users.

Pure names and lists.
"""

from __future__ import annotations

# A token with this scope makes its user an administrator of the gateway.
ADMIN_SCOPE = "custom:aliquot:admin"
ADMIN_ROLE = "aliquot-admin"
CUSTOM_SCOPES = {
    ADMIN_SCOPE: {"description": "See, use and end all users' GPU kernels, as an administrator of the Aliquot gateway"}
}
# The default scopes of a server's token: the Hub's own role "server".
SERVER_SCOPES = ("users:activity!user", "access:servers!server")
USER_SCOPES = ("self",)
# Only for a gateway that ends kernels some time after their user's server has gone.
SERVICE_ROLE = "aliquot-gateway"
# Every gateway: what removed users shared must not count for new ones of their names.
USERS_ROLE = "aliquot-users"
USERS_SCOPES = ("list:users",)
# The names of services tell which of the servers' options name another gateway.
SERVICE_SCOPES = ("list:users", "read:servers", "list:services")


def access_scope(service: str) -> str:
    """Return the scope that a token needs to reach the gateway."""
    return f"access:services!service={service}"


def server_scopes(*services: str) -> tuple[str, ...]:
    """Return the scopes of a server's token beyond the Hub's own.

    The Hub drops those that its user lacks.
    """
    return (*(access_scope(service) for service in services), ADMIN_SCOPE)


def availability_service(service: str) -> str:
    """Return the name of the service of the Hub as which the spawn page asks a gateway."""
    return f"{service}-availability"


def availability_role(service: str) -> str:
    """Return the role that lets the spawn page ask this gateway, and no other."""
    return f"aliquot-{service}-availability"
