"""The tokens of agents in a cluster: their ServiceAccount's, which Kubernetes checks (TokenReview).

A token is for this gateway alone, by its audience, and for the one node that its pod runs on.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from jupyter_aliquot.provisioner.errors import EngineError
from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, find_configuration

from .tokens import TokenExpiredError, TokenRefusedError, TokenUnknownError

AUDIENCE = "aliquot-gateway"
_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_NODE = "authentication.kubernetes.io/node-name"
_LONGEST_TOKEN = 16_384
# The words of the API server about a token whose time is over, or has not come yet by its clock.
_EXPIRED = "token has expired"
_EARLY = ("token is not valid yet", "token is issued in the future")
# The gateway's clock may be behind that of the API server.
_SKEW_SECONDS = 60.0


class Reviewer(Protocol):
    """The API server, as far as reviews need it."""

    async def post(self, path: str, told: dict[str, Any]) -> dict[str, Any]:
        """Create an object that is answered, and not kept. Raises EngineError."""


@dataclass(frozen=True)
class ServiceAccountTokens:
    """The checker of tokens of one account, ``NAMESPACE/NAME``. The API server is asked at each check."""

    account: str
    reviewer: Reviewer
    now: Callable[[], float] = time.time

    async def allowed_nodes(self, token: str) -> frozenset[str] | None:
        """Return the node of the token's pod. Raises TokenRefusedError and TokenUnknownError.

        A projected token runs out while its pod runs: kubelet puts another into the pod's file.
        """
        if not token or len(token) > _LONGEST_TOKEN:
            raise TokenRefusedError("The token is no ServiceAccount's. Give the agent its projected token")
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            answer = await self.reviewer.post(_PATH, review)
        except EngineError as error:
            raise TokenUnknownError(f"Kubernetes cannot be asked about an agent's token: {error}") from error
        status = answer.get("status") or {}
        if status.get("authenticated") is not True:
            self._check_time(token, str(status.get("error") or ""))
        return frozenset((self._node(status),))

    def _check_time(self, token: str, told: str) -> None:
        """Tell a refused token whose time is over, or has not come. Raises TokenExpiredError and TokenUnknownError.

        The API server's clock decides, and its words tell. The time in the token tells of one that the
        server forgot meanwhile.
        """
        if any(early in told for early in _EARLY):
            raise TokenUnknownError(
                f"Kubernetes takes the agent's token later: {told}. The clocks of its API servers differ, or that of "
                "one was set back. Check their time synchronization"
            )
        if _EXPIRED in told or _expiry(token) <= self.now() + _SKEW_SECONDS:
            raise TokenExpiredError("The agent's token has expired. Let the kubelet renew it in the pod's volume")

    def _node(self, status: dict[str, Any]) -> str:
        if status.get("authenticated") is not True:
            told = str(status.get("error") or "no reason given")
            raise TokenRefusedError(f"Kubernetes does not know the agent's token: {told}. Restart the agent's pod")
        if AUDIENCE not in (status.get("audiences") or ()):
            # A server that knows no audiences takes tokens that were made for others.
            raise TokenRefusedError(f"The agent's token is not for the audience {AUDIENCE!r}. Set it in its volume")
        user = status.get("user") or {}
        namespace, _, name = self.account.partition("/")
        if user.get("username") != f"system:serviceaccount:{namespace}:{name}":
            raise TokenRefusedError(
                f"The token is {user.get('username')!r}'s, but agents are {self.account}. Name that account in "
                "c.Aliquot.agent_service_account"
            )
        nodes = (user.get("extra") or {}).get(_NODE) or []
        if len(nodes) != 1:
            raise TokenRefusedError("The agent's token names no node. Give it a projected token of its pod")
        return str(nodes[0])


def _expiry(token: str) -> float:
    """Return the time in the token, which nothing here verifies; infinity for none."""
    try:
        claims = token.split(".")[1]
        told = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return float(told["exp"])
    except (LookupError, TypeError, ValueError, RecursionError, OverflowError):
        return float("inf")


class ClusterReviewer:
    """The API server of the pod that this runs in, or of the user's kubeconfig. It is found at the first review."""

    def __init__(self) -> None:
        self._client: ClusterClient | None = None

    async def post(self, path: str, told: dict[str, Any]) -> dict[str, Any]:
        """Create an object that is answered, and not kept. Raises EngineError."""
        if self._client is None:
            self._client = ClusterClient(await asyncio.to_thread(find_configuration))
        return await self._client.post(path, told)
