"""A node for tests: a kubelet in a folder that runs the pods bound to it as processes.

It talks to any API server by HTTP, to device plugins by gRPC. A test cuts its cable, restarts its
kubelet, evicts a pod.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from .cluster import MERGE, ApiClient, Refused, follow
from .containers import Image
from .kubelet import Kubelet
from .pod import PodRun

Object = dict[str, Any]

_BEAT_SECONDS = 0.5
_END_SECONDS = 30.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class NodeDouble:
    """The node ``name``. ``images`` are those that it can pull; others cannot be pulled.

    ``claims`` are the folders of PersistentVolumeClaims. ``kubelet.folder`` is for ``aliquot agent --kubelet``.
    """

    def __init__(
        self,
        url: str,
        name: str,
        images: Mapping[str, Image],
        claims: Mapping[str, Path] | None = None,
        token: str = "",
    ) -> None:
        self.name = name
        self.images = dict(images)
        self.claims = dict(claims or {})
        # Short: plugins' sockets are below it.
        self.folder = Path(tempfile.mkdtemp(prefix="aqn-"))
        self.api = ApiClient(url, token)
        self.kubelet = Kubelet(self.folder / "kubelet", self._devices_changed)
        self.runs: dict[str, PodRun] = {}  # by uid
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._changed = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> NodeDouble:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        self._join()
        self.kubelet.start()
        path = f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}"
        for target, words in ((follow, (self.api, path, self._told, self._ended)), (self._beat, ())):
            thread = threading.Thread(target=target, args=words, daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """End the node and all its pods' processes."""
        self._ended.set()
        self._changed.set()
        with self._guard:
            runs = list(self.runs.values())
        for run in runs:
            run.note_gone()
        for run in runs:
            run.join(_END_SECONDS)
        self.kubelet.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def cut(self) -> None:
        """Cut the node from the API server: its pods run on, and no news of them leaves it."""
        self.api.is_cut = True

    def mend(self) -> None:
        self.api.is_cut = False
        self._changed.set()

    def run_of(self, pod: str) -> PodRun:
        """Return the run of the newest pod with this name. Raises LookupError."""
        with self._guard:
            found = [run for run in self.runs.values() if run.facts.name == pod]
        if not found:
            raise LookupError(pod)
        return found[-1]

    def logs(self) -> str:
        """Return what all containers wrote, for a test that fails."""
        files = sorted(self.folder.glob("pods/*/*.log"))
        return "\n".join(f"== {file.parent.name} {file.name}\n{file.read_text(errors='replace')}" for file in files)

    # ---- pods

    def _told(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        with self._guard:
            run = self.runs.get(uid)
            if kind == "DELETED":
                if run is not None:
                    run.note_gone()
                return
            if run is None and not self._ended.is_set():
                run = self._make(pod)
                self.runs[uid] = run
                run.note(pod)
                run.start()
            elif run is not None:
                run.note(pod)

    def _make(self, pod: Object) -> PodRun:
        metadata = pod["metadata"]
        # Short: sockets are below it.
        folder = self.folder / "pods" / f"{metadata['name'][:24]}-{metadata['uid'][:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        chance = random.Random(metadata["uid"])
        ip = f"127.{chance.randint(10, 250)}.{chance.randint(0, 250)}.{chance.randint(2, 250)}"
        return PodRun(pod, self.api, self.kubelet, folder, ip, self._image, self._claim)

    def _image(self, name: str) -> Image:
        missing = f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": not found'
        return self.images.get(name) or Image(pull_error=missing)

    def _claim(self, name: str) -> Path:
        folder = self.claims.get(name) or self.folder / "claims" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # ---- the node's own objects

    def _join(self) -> None:
        node = {"metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name}}, "spec": {}}
        lease = {"metadata": {"name": self.name, "namespace": "kube-node-lease"}, "spec": {"holderIdentity": self.name}}
        for path, told in (
            ("/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}}),
            ("/api/v1/nodes", node),
            (LEASES, lease),
        ):
            try:
                self.api.call("POST", path, told)
            except Refused as error:
                if error.code != 409:
                    raise
        self._report()

    def _devices_changed(self) -> None:
        self._changed.set()

    def _beat(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(_BEAT_SECONDS)
            self._changed.clear()
            if not self._ended.is_set():
                self._report()

    def _report(self) -> None:
        """Tell the server what the node has, and that it lives."""
        amounts = self.kubelet.amounts()
        fixed = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        status = {
            "capacity": {**fixed, **{name: str(known) for name, (known, _) in amounts.items()}},
            "allocatable": {**fixed, **{name: str(healthy) for name, (_, healthy) in amounts.items()}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        }
        try:
            self.api.call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}, MERGE)
            self.api.call("PATCH", f"{LEASES}/{self.name}", {"spec": {"renewTime": now()}}, MERGE)
        except Refused:
            return


def now() -> str:
    """Return the time as the API writes times with fractions of a second."""
    return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}"
