"""Identities by a real Hub's tokens: the rights of a token, and how soon a revoked token has none."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from http.client import HTTPConnection
from typing import Any

import pytest
from access_rows import ROLES, TABLE
from hub_process import PASSWORD, HubProcess
from hub_visitor import Visitor
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_aliquot.client import Client, NotAllowedError

RECHECK_SECONDS = 2
HUB = {"options": (f"--HubIdentityProvider.recheck_seconds={RECHECK_SECONDS}",)}
ACCESS = "access:services!service=aliquot"
ADMIN = "custom:aliquot:admin"
CLOSE_SECONDS = 90.0
NO_MORE = "JupyterHub no longer accepts this token"


def ask(a_hub: HubProcess, path: str, token: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"token {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{a_hub.gateway_url}/{path}", data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            text = answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if text and is_json else None
    except urllib.error.HTTPError as error:
        try:
            return error.code, json.loads(error.read())["message"]
        except (ValueError, KeyError):
            return error.code, ""


async def opened(a_hub: HubProcess, path: str, token: str) -> WebSocketClientConnection:
    url = a_hub.gateway_url.replace("http", "ws", 1)
    headers = {"Authorization": f"token {token}"} if token else {}
    return await websocket_connect(HTTPRequest(f"{url}/{path}", headers=headers, request_timeout=90))


async def closing(socket: WebSocketClientConnection) -> tuple[int | None, str]:
    async def read() -> None:
        while await socket.read_message() is not None:
            pass

    await asyncio.wait_for(read(), CLOSE_SECONDS)
    return socket.close_code, socket.close_reason or ""


def handshake(a_hub: HubProcess, path: str, token: str) -> int:
    async def shake() -> int:
        try:
            (await opened(a_hub, path, token)).close()
        except HTTPClientError as error:
            return error.code
        return 101

    return asyncio.run(shake())


def until_not(a_hub: HubProcess, path: str, token: str, status: int) -> tuple[int, Any]:
    """Ask until the answer is another one; the test's own limit ends it."""
    while (answer := ask(a_hub, path, token))[0] == status:
        pass
    return answer


@pytest.fixture(scope="module")
def alices_kernel(a_hub: HubProcess) -> str:
    status, kernel = ask(a_hub, "api/kernels", a_hub.token_of("alice", ACCESS), "POST", {"name": "python3"})
    assert status == 201, kernel
    return str(kernel["id"])


def test_a_user_is_the_hubs_with_its_groups_as_teams_and_a_role_by_the_tokens_scope(a_hub: HubProcess) -> None:
    want = {("alice",): ("user", ["vision"]), ("ada",): ("user", []), ("ada", ADMIN): ("admin", [])}
    for (name, *more), role_and_teams in want.items():
        _, me = ask(a_hub, "api/me", a_hub.token_of(name, ACCESS, *more))
        found = me["identity"]
        assert (found["username"], (found["role"], found["teams"])) == (name, role_and_teams)


def test_what_a_client_says_of_itself_names_nobody(a_hub: HubProcess) -> None:
    token = a_hub.token_of("bob", ACCESS)
    body = {"name": "python3", "env": {"KERNEL_USERNAME": "alice"}, "user": "alice"}
    _, started = ask(a_hub, "api/kernels?user=alice", token, "POST", body)
    alice = a_hub.token_of("alice", ACCESS)
    assert [ask(a_hub, f"api/kernels/{started['id']}", one)[0] for one in (token, alice)] == [200, 404]
    assert ask(a_hub, f"api/kernels/{started['id']}", token, "DELETE")[0] == 204


def test_a_token_without_the_scope_or_unknown_is_refused_in_words(a_hub: HubProcess) -> None:
    status, said = ask(a_hub, "aliquot/api/v1/status", a_hub.token_of("bob", "read:users:name!user"))
    assert (status, said.partition(":")[0]) == (403, "bob may not use the service 'aliquot'")
    status, said = ask(a_hub, "aliquot/api/v1/status", "a-token-of-nobody")
    assert (status, said.partition(":")[0]) == (403, "JupyterHub does not know this token")
    assert ask(a_hub, "aliquot/api/v1/status?token=" + a_hub.token_of("bob", ACCESS), "")[0] == 403


def test_the_table_of_paths_and_roles_holds_for_tokens_of_the_hub(a_hub: HubProcess, alices_kernel: str) -> None:
    """Check the table's rows that change nothing."""
    a_hub.add_user("carol")
    a_hub.api("groups/vision/users", "POST", {"users": ["carol"]})
    scopes = dict.fromkeys(["bob", "carol", "rita", "wanda", "alice"], (ACCESS,)) | {"ada": (ACCESS, ADMIN)}
    tokens = ["", *(a_hub.token_of(name, *more) for name, more in scopes.items())]
    for name, access in (("rita", "read"), ("wanda", "write")):
        path = f"aliquot/api/v1/kernels/{alices_kernel}/shares/users/{name}"
        assert ask(a_hub, path, tokens[5], "PUT", {"access": access})[0] == 200
    wrong, asked = [], 0
    for row in TABLE:
        if (
            row.method not in ("GET", "WEBSOCKET")
            or "{s}" in row.path
            or row.path.startswith(("api/c", "api/t", "api/n"))
        ):
            continue
        path = row.path.format(k=alices_kernel, n="00000000-0000-0000-0000-000000000000")
        for role, token, want in zip(ROLES, tokens, row.want, strict=True):
            if want == 302 or row.path == "api/events/subscribe":
                continue
            asked += 1
            got = handshake(a_hub, path, token) if row.method == "WEBSOCKET" else ask(a_hub, path, token)[0]
            if got != want and not (role == "no token" and got == 200 and want == 200):
                wrong.append((row.method, row.path, role, want, got))
    assert wrong == []
    assert asked > 100


def test_a_revoked_token_is_refused_and_its_websockets_end_with_the_reason(
    a_hub: HubProcess, alices_kernel: str
) -> None:
    made = a_hub.new_token("alice", ACCESS)

    async def scenario() -> None:
        sockets = [
            await opened(a_hub, path, made["token"])
            for path in (f"api/kernels/{alices_kernel}/channels", "aliquot/api/v1/events")
        ]
        await asyncio.to_thread(a_hub.revoke_token, "alice", made["id"])
        for socket in sockets:
            code, reason = await closing(socket)
            assert (code, reason.partition(":")[0]) == (1008, NO_MORE)

    asyncio.run(scenario())
    status, said = ask(a_hub, f"api/kernels/{alices_kernel}", made["token"])
    assert (status, "revoked" in said) == (403, True)
    assert handshake(a_hub, "aliquot/api/v1/events", made["token"]) == 403


def test_the_client_works_with_a_token_of_the_hub(a_hub: HubProcess, alices_kernel: str) -> None:
    with Client(a_hub.gateway_url, a_hub.token_of("alice", ACCESS)) as client:
        assert client.status()["user"]["name"] == "alice"
        assert client.run_code(alices_kernel, "print(6 * 7)").text == "42\n"
    with Client(a_hub.gateway_url, a_hub.token_of("bob", "read:users:name!user")) as other:
        with pytest.raises(NotAllowedError):
            other.status()
        with pytest.raises(NotAllowedError):
            next(iter(other.events()))


def test_who_guesses_tokens_is_told_when_to_come_again(a_hub: HubProcess) -> None:
    """Guess from an address of its own, so that the others' tokens are looked up meanwhile."""
    for number in range(300):
        connection = HTTPConnection("127.0.0.1", a_hub.port, timeout=90, source_address=("127.0.0.2", 0))
        try:
            headers = {"Authorization": f"token a-guess-{number}"}
            connection.request("GET", "/services/aliquot/aliquot/api/v1/status", headers=headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())["message"]
        finally:
            connection.close()
        if answer.status != 403:
            break
    assert (answer.status, said[:15]) == (429, "127.0.0.2 sent ")
    assert 1 <= int(answer.getheader("Retry-After") or 0) <= 60
    assert ask(a_hub, "api/kernels", a_hub.token_of("alice", ACCESS))[0] == 200


def test_an_expired_token_and_one_of_a_deleted_user_are_refused(a_hub: HubProcess) -> None:
    short = a_hub.token_of("alice", ACCESS, expires_in=RECHECK_SECONDS)
    assert until_not(a_hub, "api/kernels", short, 200)[0] == 403
    token = a_hub.token_of("eve", ACCESS)
    assert ask(a_hub, "api/kernels", token)[0] == 200
    a_hub.api("users/eve", "DELETE")
    assert until_not(a_hub, "api/kernels", token, 200)[0] == 403


def test_who_leaves_a_team_loses_what_was_shared_with_it(a_hub: HubProcess, alices_kernel: str) -> None:
    a_hub.add_user("dan")
    a_hub.api("groups/vision/users", "POST", {"users": ["dan"]})
    owner, token = a_hub.token_of("alice", ACCESS), a_hub.token_of("dan", ACCESS)
    share = f"aliquot/api/v1/kernels/{alices_kernel}/shares/teams/vision"
    assert ask(a_hub, share, owner, "PUT", {"access": "read"})[0] == 200

    async def scenario() -> None:
        socket = await opened(a_hub, f"api/kernels/{alices_kernel}/channels", token)
        await asyncio.to_thread(a_hub.api, "groups/vision/users", "DELETE", {"users": ["dan"]})
        code, reason = await closing(socket)
        assert (code, reason.partition(":")[0]) == (1013, "what you may do on this gateway has changed")

    asyncio.run(scenario())
    assert ask(a_hub, f"api/kernels/{alices_kernel}", token)[0] == 404
    assert ask(a_hub, share, owner, "DELETE")[0] == 200


def test_a_browser_logs_in_by_the_hub_and_its_cookie_opens_pages_and_no_websockets(a_hub: HubProcess) -> None:
    visitor = Visitor()
    page = visitor.log_in(f"{a_hub.gateway_url}/", "alice", PASSWORD)
    assert (page.status, page.url) == (200, f"{a_hub.gateway_url}/aliquot/api/v1/status")
    assert json.loads(page.text)["user"]["name"] == "alice"
    prefix = "/services/aliquot/"
    assert visitor.cookie("service-aliquot", prefix)
    cookies = "; ".join(f"{c.name}={c.value}" for c in visitor.cookies)
    request = HTTPRequest(
        f"{a_hub.gateway_url}/aliquot/api/v1/events".replace("http", "ws", 1), headers={"Cookie": cookies}
    )
    with pytest.raises(HTTPClientError, match="403"):
        asyncio.run(connected(request))
    kernels = f"{a_hub.gateway_url}/api/kernels"
    assert visitor.go(kernels, {}, Sec_Fetch_Mode="cors").status == 403
    assert visitor.go(kernels, {"_xsrf": "forged"}, Sec_Fetch_Mode="cors").status == 403
    assert visitor.go(f"{a_hub.gateway_url}/login?next=//evil.example/").url == page.url
    assert visitor.go(f"{a_hub.gateway_url}/login?next={prefix}api/kernels").url == kernels
    visitor.go(f"{a_hub.gateway_url}/logout")
    assert not visitor.cookie("service-aliquot", prefix)
    assert "/hub/login" in visitor.go(f"{a_hub.gateway_url}/login").url


def test_a_login_that_somebody_else_began_is_not_ended(a_hub: HubProcess) -> None:
    for query in ("code=stolen", "code=stolen&state=forged", "error=access_denied&error_description=%3Cb%3E"):
        page = Visitor().go(f"{a_hub.gateway_url}/oauth_callback?{query}")
        assert page.status in (400, 403)
        assert "<b>" not in page.text


async def connected(request: HTTPRequest) -> None:
    (await websocket_connect(request)).close()
