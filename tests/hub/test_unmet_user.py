"""The gateway refuses a program of a user that the Hub has not named, while teams have limits."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.extension import _teams_of
from jupyter_aliquot.gateway.hub_service.identity import HubIdentityProvider
from jupyter_aliquot.gateway.hub_service.user_cache import HubPeople
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.provisioner.errors import LimitError
from jupyter_aliquot.provisioner.resources import GpuShare


def services(people: HubPeople, **teams: GpuShare) -> Any:
    provider = HubIdentityProvider.__new__(HubIdentityProvider)
    provider.people = people
    return SimpleNamespace(
        server=SimpleNamespace(identity_provider=provider),
        settings=SimpleNamespace(gpu_caps=lambda: GpuCaps(teams=teams)),
        accounts=object(),
        find_user=people.named,
    )


def test_a_user_whom_the_hub_never_told_of_is_refused_while_teams_have_limits() -> None:
    people = HubPeople(logging.getLogger())
    assert _teams_of(services(people), "ada") == frozenset(), "no team has a limit"
    with pytest.raises(LimitError, match="Start your server on the Hub once"):
        _teams_of(services(people, vision=GpuShare(100)), "ada")
    people.meet(User("ada", "user", frozenset({"vision"})))
    assert _teams_of(services(people, vision=GpuShare(100)), "ada") == {"vision"}
