"""What the Hub has to grant so that the gateway can tell people apart. Pure names and lists."""

from __future__ import annotations

# Who has it in a token is an administrator of the gateway.
ADMIN_SCOPE = "custom:aliquot:admin"
ADMIN_ROLE = "aliquot-admin"
CUSTOM_SCOPES = {
    ADMIN_SCOPE: {"description": "See, use and end everybody's GPU kernels, as an administrator of the Aliquot gateway"}
}
# What a server's token has where nobody chose otherwise: the Hub's own role "server".
SERVER_SCOPES = ("users:activity!user", "access:servers!server")
USER_SCOPES = ("self",)
# Only for a gateway that ends kernels some time after their user's server has gone.
SERVICE_ROLE = "aliquot-gateway"
SERVICE_SCOPES = ("list:users", "read:servers")


def access_scope(service: str) -> str:
    """What a token must have to reach the gateway at all."""
    return f"access:services!service={service}"


def server_scopes(service: str) -> tuple[str, ...]:
    """What the token of a user's server needs beyond the Hub's own; the Hub leaves out what its user does not have."""
    return (access_scope(service), ADMIN_SCOPE)
