"""Small documents of a gateway that another replica reads: a ConfigMap each. Calls block.

It knows nothing of their contents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_aliquot.provisioner.containers.plan import LABEL_PREFIX

from .client import ClusterAwayError, ClusterClient, ClusterError, Collection, Object
from .objects import metadata, object_name
from .pods.owner import with_owner_now
from .record import GATEWAY_LABEL, MANAGED_BY_LABEL, MANAGER, ROLE_LABEL, label_value
from .settings import Cluster

_KEY_ANNOTATION = f"{LABEL_PREFIX}key"
_DATA = "document"


class Documents:
    """The documents of one kind, such as ``record``, each by its key. Methods raise ClusterError.

    ``leads`` returns whether no other replica can lead now: while one can, nothing is changed.
    """

    def __init__(
        self, client: ClusterClient, cluster: Cluster, kind: str, leads: Callable[[], bool] = lambda: True
    ) -> None:
        self._leads = leads
        self._client = client
        self._cluster = cluster
        self._kind = kind
        labels = {MANAGED_BY_LABEL: MANAGER, ROLE_LABEL: kind, GATEWAY_LABEL: label_value(cluster.gateway)}
        self._labels = labels
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        self._maps = Collection("/api/v1", "configmaps", cluster.namespace, selector)

    def write(self, key: str, text: str) -> None:
        """Replace a document."""
        name = self._name(key)
        change: dict[str, Any] = {"data": {_DATA: text}}
        try:
            self._call("PATCH", name, change, "application/merge-patch+json")
            return
        except ClusterError as error:
            if error.code != 404:
                raise
        self._cluster = with_owner_now(self._client, self._cluster)
        told = {"apiVersion": "v1", "kind": "ConfigMap", **change}
        self._call(
            "POST", "", {**told, "metadata": metadata(self._cluster, name, self._labels, {_KEY_ANNOTATION: key})}
        )

    def remove(self, key: str) -> None:
        """Remove a document. Idempotent."""
        try:
            self._call("DELETE", self._name(key), {})
        except ClusterError as error:
            if error.code != 404:
                raise

    def read(self) -> dict[str, str]:
        """Return all documents by their keys. A ConfigMap that has lost its key is none of them."""
        query = {"labelSelector": self._maps.selector}
        answer = self._client.blocking_call("GET", self._maps.path, query, None, "application/json")
        keyed = (
            ((one["metadata"].get("annotations") or {}).get(_KEY_ANNOTATION), one) for one in answer.get("items") or ()
        )
        return {key: str((one.get("data") or {}).get(_DATA, "")) for key, one in keyed if key is not None}

    def _name(self, key: str) -> str:
        return object_name(f"aliquot-{self._kind}", key)

    def _call(self, method: str, name: str, body: Object, kind: str = "application/json") -> None:
        if not self._leads():
            raise ClusterAwayError("another replica of the gateway may lead")
        path = f"{self._maps.path}/{name}".rstrip("/")
        self._client.blocking_call(method, path, {}, body, kind)
