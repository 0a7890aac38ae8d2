"""The settings of kernels' pods: what is refused, and the values that pods are made of."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.containers.pods import KernelPods
from jupyter_aliquot.provisioner.kubernetes.settings import Volume


def settings(**told: Any) -> KernelPods:
    return KernelPods(config=Config({"KernelPods": told}))


@pytest.mark.parametrize(
    ("told", "want"),
    [
        ({}, "none is named. Set it"),
        ({"relay_image": "relay:1", "uid": 0}, "no user that kernels may run as"),
        ({"relay_image": "relay:1", "namespace": "No Namespace"}, "c.KernelPods: The namespace 'No Namespace'"),
        ({"relay_image": "relay:1", "volumes": [{"emptyDir": {}}]}, "has no name"),
        (
            {"relay_image": "relay:1", "volumes": [{"name": "a", "nfs": {"path": ["/{userid}"]}}]},
            "'/{userid}' has the field {userid}, which no pod of a kernel fills in. Use {username}",
        ),
        (
            {
                "relay_image": "relay:1",
                "volumes": [{"name": "a", "emptyDir": {}}],
                "volume_mounts": [{"name": "a", "mountPath": "/a", "subPath": "{pvc_name}"}],
            },
            "has the field {pvc_name}",
        ),
        ({"relay_image": "relay:1", "volume_mounts": [{"name": "home", "mountPath": "here"}]}, "is no mount"),
        ({"relay_image": "relay:1", "volume_mounts": [{"name": "home", "mountPath": "/home"}]}, "no volume 'home'"),
    ],
)
def test_wrong_settings_are_refused_with_what_to_do(told: dict[str, Any], want: str) -> None:
    with pytest.raises(TraitError, match=want):
        settings(**told).settings("g")


def test_volumes_and_owner_are_as_a_pod_has_them() -> None:
    found = settings(
        relay_image="relay:1",
        deployment="gateway",
        volumes=[{"name": "home", "persistentVolumeClaim": {"claimName": "home-{username}"}}],
        volume_mounts=[{"name": "home", "mountPath": "/home/jovyan", "subPath": "a", "readOnly": True}],
    ).settings("g")

    claim = {"persistentVolumeClaim": {"claimName": "home-{username}"}}
    assert found.volumes == (Volume("home", claim, "/home/jovyan", True, "a"),)
    assert found.cluster.deployment == "gateway"
    assert (found.cluster.gateway, found.uid("ann"), found.gid("ann")) == ("g", 1000, 100)
