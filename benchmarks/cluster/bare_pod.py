"""The first cell of a kernel in a bare pod on the node double: what a kernel costs without Aliquot."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from api_double.server import ApiDouble
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from node_double.cluster import ApiClient

_PODS = "/api/v1/namespaces/default/pods"
_SECONDS = 60.0


def first_cell_of_a_bare_pod(double: ApiDouble, folder: Path) -> float:
    """Return the seconds from the request for the pod to the result of its first cell; the pod is deleted.

    The request is one of HTTP, as that of any program that has no part in the cluster.
    """
    api = ApiClient(double.url)
    name = f"bare-{uuid.uuid4().hex[:8]}"
    file, _ = write_connection_file(str(folder / f"{name}.json"), ip="127.0.0.1", key=uuid.uuid4().hex.encode())
    container = {
        "name": "kernel",
        "image": "box:1",
        "command": ["python", "-m", "ipykernel_launcher", "-f", file],
        "workingDir": str(folder),
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    client = BlockingKernelClient(connection_file=file)
    client.load_connection_file()
    began = time.perf_counter()
    api.call("POST", _PODS, {"metadata": {"name": name}, "spec": spec})
    client.start_channels()
    # The request waits in the client until the kernel listens.
    reply = client.execute("", user_expressions={"answer": "6 * 7"}, reply=True, timeout=_SECONDS)
    took = time.perf_counter() - began
    client.stop_channels()
    api.call("DELETE", f"{_PODS}/{name}", {"gracePeriodSeconds": 0})
    if reply["content"]["user_expressions"]["answer"]["data"]["text/plain"] != "42":
        raise SystemExit(f"the cell of the bare pod failed: {reply['content']}")
    return took
