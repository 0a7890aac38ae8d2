"""The permissions that a gateway needs in its cluster, each with its reason. Pure.

`deploy/kubernetes/base/rbac.yaml` grants these and no others, and the README beside it lists them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Permission:
    """Verbs on a resource. ``resource`` has a subresource behind a slash; ``name``: on that object alone."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    reason: str
    is_of_the_namespace: bool = True
    name: str = ""


PERMISSIONS = (
    Permission("", "pods", ("create", "delete"), "Start and end kernels and holders."),
    Permission("", "pods", ("get", "list", "watch"), "Find them again, and see their states."),
    Permission("", "pods/resize", ("patch",), "Let CPU and RAM follow a kernel's size."),
    Permission("", "secrets", ("create", "delete"), "Give each kernel's pod its keys."),
    Permission("", "secrets", ("get",), "Reach running kernels after a restart. None are listed."),
    Permission(
        "",
        "configmaps",
        ("create", "delete", "list", "patch"),
        "Tell the next replica of queued kernels and sessions.",
    ),
    Permission("coordination.k8s.io", "leases", ("create", "get", "update"), "Let one replica lead."),
    Permission("", "events", ("list",), "Tell waiting users what the scheduler and the kubelet say."),
    Permission(
        "apps", "deployments", ("get",), "Own the objects, so that the cluster removes them.", name="aliquot-gateway"
    ),
    Permission(
        "networking.k8s.io", "networkpolicies", ("list",), "See policies that close its ports (`aliquot doctor`)."
    ),
    Permission("", "nodes", ("list",), "See nodes that are gone, or whose agent offers nothing.", False),
    Permission("", "namespaces", ("get",), "Check the level of Pod Security (`aliquot doctor`).", False, "aliquot"),
    Permission("authentication.k8s.io", "tokenreviews", ("create",), "Check the tokens of agents that dial in.", False),
)
