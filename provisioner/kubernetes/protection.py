"""The Secret of a kernel's relay. Pure."""

from __future__ import annotations

import base64
import json

from .kernel_pod import CONNECTION_KEY, CONNECTION_PATH, kernel_pod_name
from .objects import Manifest, metadata
from .record import KernelRecord, kernel_labels
from .settings import Cluster, RelayKeys

SCHEME = "hmac-sha256"
# The numbers of shell, iopub, stdin, heartbeat and control in a connection file over ipc.
_PORTS = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "hb_port": 4, "control_port": 5}


def connection_file(key: str) -> str:
    """Return the connection file of the kernel in a pod. ipykernel writes none that says the same."""
    place = {"transport": "ipc", "ip": f"{CONNECTION_PATH}/s", "kernel_name": ""}
    return json.dumps({**_PORTS, **place, "key": key, "signature_scheme": SCHEME})


def relay_secret(cluster: Cluster, record: KernelRecord, keys: RelayKeys) -> Manifest:
    """Return the Secret that the relay's sidecar mounts; the kernel's container gets its connection file alone."""
    data = {
        "token": keys.token.encode(),
        "connection-key": keys.connection_key.encode(),
        CONNECTION_KEY: connection_file(keys.connection_key).encode(),
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
