"""Sharing on a server with one user: no other user could open the kernel, so the server refuses."""

from __future__ import annotations

import pytest

from .conftest import Ask
from .test_contract import check

PATH = "/aliquot/api/v1/kernels/{kernel_id}/shares/{kind}/{name}"


@pytest.fixture
def users() -> dict[str, dict[str, str]]:
    return {}


@pytest.mark.parametrize(("kind", "want"), [("users", "user 'bob'"), ("teams", "team 'bob'")])
async def test_a_server_with_one_user_refuses_to_share_and_says_why(
    ask: Ask, jp_auth_header: dict[str, str], kind: str, want: str
) -> None:
    kernel = (await ask("me", "POST", "api/kernels", body={"name": "python3"}, headers=jp_auth_header)).json["id"]
    shares = f"aliquot/api/v1/kernels/{kernel}/shares"
    answer = await ask("me", "PUT", f"{shares}/{kind}/bob", body={"access": "read"}, headers=jp_auth_header)
    assert answer.status == 409
    assert f"Requested to share a kernel with {want}, but this server has one user" in answer.json["message"]
    check(answer, PATH, "put")
    assert (await ask("me", "GET", shares, headers=jp_auth_header)).json == {"shares": []}
