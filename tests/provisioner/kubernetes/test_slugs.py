"""Names of users in Kubernetes: as KubeSpawner makes them, so that a kernel mounts its owner's volumes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies
from kubespawner.slugs import escape_slug, safe_slug

from jupyter_aliquot.provisioner.kubernetes.slugs import expanded, slug

NAMES = ("ann", "Ann", "a-nn", "a--nn", "-", "1st", "zo\u00eb@example.org", "zo-c3-ab", "x" * 70, "", "a_b.c", "9" * 40)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_kubespawners(name: str) -> None:
    assert slug(name, "safe") == safe_slug(name)
    assert slug(name, "escape") == escape_slug(name)


@given(strategies.text(strategies.characters(exclude_categories=["Cs"])))
def test_any_name_is_kubespawners(name: str) -> None:
    assert (slug(name, "safe"), slug(name, "escape")) == (safe_slug(name), escape_slug(name))


def test_the_fields_of_a_template_are_the_users() -> None:
    told = expanded("claim-{username} {user_server} {unescaped_username} {other}", "Ann", "escape")
    assert told == "claim--41nn -41nn Ann {other}"
