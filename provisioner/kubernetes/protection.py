"""The Secret of a kernel's relay, and the NetworkPolicy of all kernel pods. Pure."""

from __future__ import annotations

import base64

from .kernel_pod import kernel_pod_name
from .objects import Manifest, metadata, object_name
from .record import (
    GATEWAY_LABEL,
    KERNEL_ROLE,
    MANAGED_BY_LABEL,
    MANAGER,
    ROLE_LABEL,
    KernelRecord,
    kernel_labels,
    label_value,
)
from .settings import Cluster, RelayKeys


def relay_secret(cluster: Cluster, record: KernelRecord, keys: RelayKeys) -> Manifest:
    """Return the Secret that the relay's sidecar mounts; the kernel's container does not."""
    data = {
        "token": keys.token.encode(),
        "connection-key": keys.connection_key.encode(),
        "tls.crt": keys.certificate,
        "tls.key": keys.private_key,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(cluster, kernel_pod_name(record.kernel_id), kernel_labels(record)),
        "type": "Opaque",
        # A kubelet does not ask again for an immutable Secret.
        "immutable": True,
        "data": {name: base64.b64encode(value).decode("ascii") for name, value in data.items()},
    }


def kernel_network_policy(cluster: Cluster) -> Manifest:
    """Return the policy by which the gateway's pods alone reach kernel pods, at the relay's port."""
    gateway = label_value(cluster.gateway)
    kernels = {MANAGED_BY_LABEL: MANAGER, ROLE_LABEL: KERNEL_ROLE, GATEWAY_LABEL: gateway}
    gateways = {"podSelector": {"matchLabels": dict(cluster.gateway_labels)}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(
            cluster,
            object_name("aliquot-kernels", cluster.gateway),
            {MANAGED_BY_LABEL: MANAGER, GATEWAY_LABEL: gateway},
        ),
        "spec": {
            "podSelector": {"matchLabels": kernels},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [gateways], "ports": [{"protocol": "TCP", "port": cluster.relay_port}]}],
        },
    }
