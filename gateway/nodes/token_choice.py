"""The choice of the checker of agents' tokens, by the gateway's settings."""

from __future__ import annotations

from pathlib import Path

from jupyter_aliquot.provisioner.errors import RequestError

from .tokens import NoTokens, TokenChecker, TokenFile


def choose_tokens(token_file: str, service_account: str) -> TokenChecker:
    """Return the checker. Raises RequestError for a cluster whose client is not installed."""
    if service_account:
        try:
            # A gateway outside of clusters has no use for the client, whose import takes memory and time.
            from .service_accounts import ClusterReviewer, ServiceAccountTokens
        except ImportError as error:
            raise RequestError(
                f"Requested agent_service_account, but {error.name} is not installed. Install "
                "jupyter-aliquot[kubernetes]"
            ) from error
        return ServiceAccountTokens(service_account, ClusterReviewer())
    return TokenFile(Path(token_file)) if token_file else NoTokens()
