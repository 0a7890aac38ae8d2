"""The Secret of a kernel's relay. Pure."""

from __future__ import annotations

import base64

from .kernel_pod import kernel_pod_name
from .objects import Manifest, metadata
from .record import KernelRecord, kernel_labels
from .settings import Cluster, RelayKeys


def relay_secret(cluster: Cluster, record: KernelRecord, keys: RelayKeys) -> Manifest:
    """Return the Secret that the relay's sidecar mounts; the kernel's container does not."""
    data = {
        "token": keys.token.encode(),
        "connection-key": keys.connection_key.encode(),
        "tls.crt": keys.certificate,
        "tls.key": keys.private_key,
    }
    if keys.curve_secretkey:
        data["curve-key"] = keys.curve_secretkey.encode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(cluster, kernel_pod_name(record.kernel_id), kernel_labels(record)),
        "type": "Opaque",
        # A kubelet does not ask again for an immutable Secret.
        "immutable": True,
        "data": {name: base64.b64encode(value).decode("ascii") for name, value in data.items()},
    }
