"""Agents prove themselves by their ServiceAccount's tokens, which the API server reviews."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from api_double.server import ApiDouble

from jupyter_aliquot.gateway.nodes.service_accounts import AUDIENCE, ServiceAccountTokens
from jupyter_aliquot.gateway.nodes.tokens import TokenExpiredError, TokenRefusedError, TokenUnknownError
from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient

ACCOUNT = "aliquot-nodes/aliquot-agent"
USER = "system:serviceaccount:aliquot-nodes:aliquot-agent"
NODE = "authentication.kubernetes.io/node-name"


def status(**changes: Any) -> dict[str, Any]:
    user = {"username": USER, "extra": {NODE: ["gpu-3"]}}
    return {"authenticated": True, "audiences": [AUDIENCE], "user": user, **changes}


def a_token(expiry: int) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry, "sub": USER}).encode()).decode().rstrip("=")
    return f"head.{claims}.signature"


async def test_token_of_an_agents_pod_is_good_for_its_node_alone(a_double: ApiDouble, a_client: ClusterClient) -> None:
    a_double.reviews.tokens = {"a-token": status()}

    assert await ServiceAccountTokens(ACCOUNT, a_client).allowed_nodes("a-token") == {"gpu-3"}
    await a_client.close()


@pytest.mark.parametrize(
    ("token", "told", "want"),
    [
        ("another", status(), "token lookup failed"),
        ("", status(), "no ServiceAccount's"),
        ("x" * 20_000, status(), "no ServiceAccount's"),
        ("a-token", status(audiences=["https://kubernetes.default.svc"]), "audience"),
        ("a-token", status(audiences=[]), "audience"),
        ("a-token", status(user={"username": "system:serviceaccount:team:notebook"}), "team:notebook"),
        ("a-token", status(user={"username": USER, "extra": {}}), "names no node"),
        ("a-token", status(user={"username": USER, "extra": {NODE: ["a", "b"]}}), "names no node"),
        ("a-token", status(authenticated="true"), "does not know"),
    ],
)
async def test_other_tokens_are_refused_with_what_to_do(
    a_double: ApiDouble, a_client: ClusterClient, token: str, told: dict[str, Any], want: str
) -> None:
    a_double.reviews.tokens = {"a-token": told}
    with pytest.raises(TokenRefusedError, match=want):
        await ServiceAccountTokens(ACCOUNT, a_client).allowed_nodes(token)
    await a_client.close()


EXPIRED = "[invalid bearer token, service account token has expired]"


@pytest.mark.parametrize("error", ["", EXPIRED])
@pytest.mark.parametrize(("skew", "is_late"), [(0, True), (-50, True), (-900, False), (900, True)])
async def test_a_gateway_whose_clock_differs_takes_no_expired_token_for_one_that_was_taken_back(
    a_double: ApiDouble, a_client: ClusterClient, error: str, skew: float, is_late: bool
) -> None:
    """The token ran out a second ago by the API server's clock; *skew* is the gateway's from that."""
    a_double.reviews.tokens = {a_token(1_000): {"authenticated": False, "error": error}} if error else {}
    with pytest.raises(TokenRefusedError) as refused:
        await ServiceAccountTokens(ACCOUNT, a_client, lambda: 1_001.0 + skew).allowed_nodes(a_token(1_000))
    assert isinstance(refused.value, TokenExpiredError) is (is_late or bool(error))
    await a_client.close()


@pytest.mark.parametrize("word", ["is not valid yet", "is issued in the future"])
async def test_a_token_of_the_future_is_taken_later_and_ends_no_connection(
    a_double: ApiDouble, a_client: ClusterClient, word: str
) -> None:
    told = {"authenticated": False, "error": f"[invalid bearer token, service account token {word}]"}
    a_double.reviews.tokens = {a_token(2_000): told}
    with pytest.raises(TokenUnknownError, match=f"token {word}.*Check their time synchronization"):
        await ServiceAccountTokens(ACCOUNT, a_client, lambda: 1_000.0).allowed_nodes(a_token(2_000))
    await a_client.close()


@pytest.mark.parametrize(("now", "want"), [(1_000.0, TokenExpiredError), (900.0, TokenRefusedError)])
async def test_projected_token_that_ran_out_is_told_from_one_that_was_taken_back(
    a_double: ApiDouble, a_client: ClusterClient, now: float, want: type[TokenRefusedError]
) -> None:
    with pytest.raises(TokenRefusedError) as refused:
        await ServiceAccountTokens(ACCOUNT, a_client, lambda: now).allowed_nodes(a_token(1_000))
    assert type(refused.value) is want
    await a_client.close()


async def test_server_that_is_away_makes_no_token_wrong(a_double: ApiDouble, a_client: ClusterClient) -> None:
    a_double.go_away()
    with pytest.raises(TokenUnknownError, match="cannot be asked"):
        await ServiceAccountTokens(ACCOUNT, a_client).allowed_nodes("a-token")
    await a_client.close()
