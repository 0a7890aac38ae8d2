"""Users whom a real Hub removes: the gateway finds them in the Hub's list, and nowhere else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
from hub_process import HubProcess
from jupyterhub.services.auth import HubAuth

from jupyter_aliquot.gateway.hub_service.removed_users import HubUserList, removed_among

HUB = {"with_lab": False}
LOG = logging.getLogger(__name__)
NAMES = ("alice", "bob", "eve")


def users_as(hub: HubProcess, token: str) -> HubUserList:
    return HubUserList(HubAuth(api_url=f"http://127.0.0.1:{hub.hub_port}/hub/api", api_token=token))


def test_a_user_whom_the_hub_deletes_is_found_by_a_service_that_lists_all_users(a_hub: HubProcess) -> None:
    a_hub.add_user("eve")
    for name in NAMES:
        a_hub.token_of(name)
    users = users_as(a_hub, a_hub.token)
    assert asyncio.run(removed_among(NAMES, users, LOG)) == frozenset()
    a_hub.api("users/eve", "DELETE")
    assert asyncio.run(removed_among(NAMES, users, LOG)) == {"eve"}


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
    assert asyncio.run(removed_among(kept, HubUserList(hub, 2), LOG)) == frozenset()
    for page in (2, 3, 200):
        assert asyncio.run(removed_among((*removed, *kept), HubUserList(hub, page), LOG)) == set(removed)


def test_a_token_that_lists_some_users_finds_none_removed(a_hub: HubProcess) -> None:
    users = users_as(a_hub, a_hub.token_of("ada", "list:users!group=vision", "read:users:name!user=ada"))
    assert asyncio.run(removed_among(("alice", "bob"), users, LOG)) == frozenset()


def test_no_user_counts_as_removed_while_the_hub_is_away(a_hub: HubProcess) -> None:
    away = HubUserList(HubAuth(api_url="http://127.0.0.1:9/hub/api", api_token=a_hub.token))
    assert asyncio.run(removed_among(NAMES, away, LOG)) == frozenset()
