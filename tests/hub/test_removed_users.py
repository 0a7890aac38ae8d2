"""Users that a real Hub removes: the gateway finds them in the Hub's list, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
from hub_process import HubProcess
from jupyterhub.services.auth import HubAuth

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.hub_service.environment import HubService
from jupyter_aliquot.gateway.hub_service.identity import HubIdentityProvider
from jupyter_aliquot.gateway.hub_service.removed_users import HubUserList, RemovedUsers, missing_among

HUB = {"with_lab": False}
LOG = logging.getLogger(__name__)
NAMES = ("alice", "bob", "eve")
MINUTE, HOUR = 60.0, 3600.0
SHARING = tuple(f"sharing{number}" for number in range(4))


def users_as(hub: HubProcess, token: str) -> HubUserList:
    return HubUserList(HubAuth(api_url=f"http://127.0.0.1:{hub.hub_port}/hub/api", api_token=token))


def test_a_user_whom_the_hub_deletes_is_found_by_a_service_that_lists_all_users(a_hub: HubProcess) -> None:
    a_hub.add_user("eve")
    for name in NAMES:
        a_hub.token_of(name)
    users = users_as(a_hub, a_hub.token)
    assert asyncio.run(missing_among(NAMES, users, LOG)) == frozenset()
    a_hub.api("users/eve", "DELETE")
    assert asyncio.run(missing_among(NAMES, users, LOG)) == {"eve"}


class _Meanwhile(HubAuth):
    """The Hub's client, beside which *act* happens when the list of users has come to *name*."""

    def __init__(self, name: str, act: Callable[[], object], **settings: str) -> None:
        super().__init__(**settings)
        self._name = name
        self._act: Callable[[], object] | None = act

    async def _api_request(self, method: str, url: str, **options: Any) -> Any:
        answer = await super()._api_request(method, url, **options)
        if self._act is not None and "users?" in url and self._name in [user["name"] for user in answer["items"]]:
            act, self._act = self._act, None
            act()
        return answer


def test_a_user_is_kept_whose_page_begins_earlier_because_others_were_removed(a_hub: HubProcess) -> None:
    removed, kept = ("user0", "user1"), tuple(f"user{number}" for number in range(2, 6))
    for name in (*removed, *kept):
        a_hub.add_user(name)

    def remove() -> None:
        for name in removed:
            a_hub.api(f"users/{name}", "DELETE")

    api = f"http://127.0.0.1:{a_hub.hub_port}/hub/api"
    hub = _Meanwhile("user1", remove, api_url=api, api_token=a_hub.token)
    assert asyncio.run(missing_among(kept, HubUserList(hub, 2), LOG)) == frozenset()
    for page in (2, 3, 200):
        assert asyncio.run(missing_among((*removed, *kept), HubUserList(hub, page), LOG)) == set(removed)


def test_a_token_that_lists_some_users_finds_none_removed(a_hub: HubProcess) -> None:
    users = users_as(a_hub, a_hub.token_of("ada", "list:users!group=vision", "read:users:name!user=ada"))
    assert asyncio.run(missing_among(("alice", "bob"), users, LOG)) is None


class Hands(SystemClock):
    """A clock that the test advances, in seconds."""

    seconds = 1e9

    def wall(self) -> float:
        return self.seconds


class Looks:
    """A gateway's looks at the Hub's list, beside which the test adds and removes users."""

    def __init__(self, hub: HubProcess, folder: Path) -> None:
        self.hub = hub
        self.folder = folder
        self.clock = Hands()
        self.restart()

    def restart(self) -> None:
        self._removed = RemovedUsers(self.clock, LOG)
        self._removed.keep_in(self.folder / "missing.json")

    def add(self, *names: str) -> None:
        for name in names:
            self.hub.api(f"users/{name}", "POST")

    def remove(self, *names: str) -> None:
        for name in names:
            self.hub.api(f"users/{name}", "DELETE")

    def look(self, names: Collection[str], after: float = 0.0, api: str = "") -> frozenset[str]:
        self.clock.seconds += after
        api = api or f"http://127.0.0.1:{self.hub.hub_port}/hub/api"
        users = HubUserList(HubAuth(api_url=api, api_token=self.hub.token))
        return asyncio.run(self._removed.among(names, users))


@pytest.fixture
def looks(a_hub: HubProcess, tmp_path: Path) -> Iterator[Looks]:
    """A gateway's looks at a Hub that has the users SHARING."""
    looks = Looks(a_hub, tmp_path)
    looks.add(*SHARING)
    yield looks
    for name in SHARING:
        with contextlib.suppress(HTTPError):
            looks.remove(name)


def test_a_user_is_removed_once_the_hub_has_not_listed_the_name_for_some_looks(looks: Looks) -> None:
    looks.remove(SHARING[0])
    assert looks.look(SHARING) == looks.look(SHARING, 10 * MINUTE) == frozenset()
    assert looks.look(SHARING, 10 * MINUTE) == {SHARING[0]}


def test_the_users_of_a_hub_that_lost_its_database_have_a_day_to_come_back(looks: Looks) -> None:
    looks.remove(*SHARING[1:])
    assert looks.look(SHARING) == looks.look(SHARING, 23 * HOUR) == frozenset()
    looks.add(*SHARING[1:])
    assert looks.look(SHARING, 10 * MINUTE) == frozenset()
    looks.remove(SHARING[1])
    assert looks.look(SHARING, HOUR) == frozenset(), "missing anew, since now"
    looks.remove(*SHARING[2:])
    assert looks.look(SHARING, HOUR) == frozenset(), "three of four, two of them since now"
    assert looks.look(SHARING, 24 * HOUR) == set(SHARING[1:])


def test_a_gateway_that_was_restarted_goes_on_waiting(looks: Looks) -> None:
    looks.remove(SHARING[0])
    assert looks.look(SHARING) == frozenset()
    looks.restart()
    assert looks.look(SHARING, 20 * MINUTE) == {SHARING[0]}
    assert looks.look(SHARING) == frozenset(), "told once; a new user of the name is another one"


def test_no_user_counts_as_removed_while_the_hub_is_away(looks: Looks) -> None:
    looks.remove(SHARING[0])
    assert looks.look(SHARING) == frozenset()
    assert looks.look(SHARING, HOUR, api="http://127.0.0.1:9/hub/api") == frozenset()
    looks.add(SHARING[0])
    assert looks.look(SHARING) == frozenset()


def provider_of(hub: HubProcess, folder: Path) -> HubIdentityProvider:
    """Return the identity of a gateway that has met the users SHARING."""
    api_url = f"http://127.0.0.1:{hub.hub_port}/hub/api"
    scopes, client, back = frozenset({"access:services"}), "service-aliquot", "/services/aliquot/oauth_callback"
    service = HubService(
        "aliquot", "/services/aliquot/", "127.0.0.1", 8890, False, api_url, hub.token, scopes, client, back
    )
    provider = HubIdentityProvider(hub=service, log=LOG)
    provider.remember_in(folder)
    for name in SHARING:
        provider.people.meet(User(name, "user"))
    return provider


def test_a_gateway_knows_a_user_until_the_name_counts_as_removed(looks: Looks) -> None:
    looks.remove(SHARING[0])
    first = provider_of(looks.hub, looks.folder)
    assert asyncio.run(first.removed_users(SHARING)) == frozenset()
    assert first.knows(SHARING[0])
    [file] = [path for path in looks.folder.iterdir() if "missing" in path.name]
    assert list(json.loads(file.read_text())) == [SHARING[0]]
    file.write_text(json.dumps({SHARING[0]: 0.0}))  # long ago
    later = provider_of(looks.hub, looks.folder)
    assert asyncio.run(later.removed_users(SHARING)) == {SHARING[0]}
    assert [later.knows(name) for name in SHARING[:2]] == [False, True]
