"""Names of users in Kubernetes: as KubeSpawner makes them, so that a kernel mounts its owner's volumes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies
from traitlets.config import Config

from jupyter_aliquot.provisioner.kubernetes.slugs import FIELDS, SCHEMES, expanded, unknown_fields

NAMES = (
    *("ann", "Ann", "a-nn", "a--nn", "-", "1st", "zo\u00eb@example.org", "zo-c3-ab", "a_b.c", "9" * 40),
    *("ada.byron.of.lovelace@cs.example.org", *("x" * length for length in (46, 47, 48, 49, 63, 64, 70))),
)


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give KubeSpawner no cluster: it looks for one when it is made."""
    import kubespawner.spawner  # takes half a second, which no other worker needs

    monkeypatch.setattr(kubespawner.spawner, "load_config", lambda *args, **kwargs: None)
    monkeypatch.setattr(kubespawner.spawner, "shared_client", lambda *args, **kwargs: None)


def of_kubespawner(template: str, name: str, scheme: str) -> str:
    """Expand a template with KubeSpawner itself, for the default server of a user."""
    import kubespawner

    user = SimpleNamespace(name=name, id=1, url=f"/user/{name}/")
    hub = SimpleNamespace(base_url="/hub/", public_host="", url="http://hub/hub/", api_url="http://hub/hub/api")
    config = Config({"KubeSpawner": {"slug_scheme": scheme}})
    spawner = kubespawner.KubeSpawner(config=config, user=user, hub=hub, _mock=True)
    return str(spawner._expand_user_properties(template))


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_field_of_a_template_is_kubespawners(name: str, field: str, scheme: str) -> None:
    template = f"claim-{{{field}}}-a"
    assert expanded(template, name, scheme) == of_kubespawner(template, name, scheme)


@pytest.mark.usefixtures("no_cluster")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(strategies.text(strategies.characters(exclude_categories=["Cs"]), min_size=1), strategies.sampled_from(SCHEMES))
@example("-", "safe")  # KubeSpawner leaves out what a template would end with
def test_any_name_is_kubespawners(name: str, scheme: str) -> None:
    template = "{username} {user_server} {unescaped_username}"
    assert expanded(template, name, scheme) == of_kubespawner(template, name, scheme)


def test_fields_that_no_pod_fills_in_are_known() -> None:
    assert unknown_fields("{pvc_name} claim-{username} {userid}") == ("pvc_name", "userid")
    assert unknown_fields("claim-{user_server}-{unescaped_username}") == ()
