"""The life of one pod on the node double: devices, volumes, containers in their order, status, end."""

from __future__ import annotations

import base64
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .claims import GROUP
from .cluster import MERGE, ApiClient, Refused
from .containers import Container, Facts, Image, Paths, command, environment, passes, start, wait_all
from .kubelet import Given, Kubelet, NotEnoughError

Object = dict[str, Any]

_PAUSE_SECONDS = 0.05
_BACK_OFF_SECONDS = 0.3
_ENDED = ("Succeeded", "Failed")
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class PodRun(threading.Thread):
    """One pod, from its binding until it is gone. ``folder`` is its own, with volumes and logs.

    Its containers are not started again, as with ``restartPolicy: Never``; its sidecars are.
    """

    def __init__(
        self,
        pod: Object,
        api: ApiClient,
        kubelet: Kubelet,
        folder: Path,
        ip: str,
        images: Callable[[str], Image],
        claim: Callable[[str], Path],
    ) -> None:
        metadata = pod["metadata"]
        super().__init__(name=f"pod-{metadata['name']}", daemon=True)
        self.pod = pod
        self.folder = folder
        self.facts = Facts(metadata["name"], metadata["namespace"], metadata["uid"], ip, pod["spec"]["nodeName"])
        self._api, self._kubelet, self._images, self._claim = api, kubelet, images, claim
        self._stopping = threading.Event()
        self._is_deleted = threading.Event()
        self._grace_seconds = 30.0
        self._is_forced = False
        self._verdict: tuple[str, str] | None = None  # reason and message of a pod that the node ends
        self._told: Object = {}
        self._containers = _containers(pod["spec"]["containers"])
        self._inits = _containers(pod["spec"].get("initContainers") or ())
        self._given: dict[str, Given] = {}
        self._volumes: dict[str, Path] = {}
        self._sources: dict[tuple[str, str], Object] = {}  # of volumes, by kind and name

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.facts.namespace}/pods/{self.facts.name}"

    def note(self, pod: Object) -> None:
        """Take the pod's newest form. A resize is done at once."""
        metadata = pod["metadata"]
        for told, container in zip(pod["spec"]["containers"], self._containers, strict=True):
            container.resources = told.get("resources") or {}
        if "deletionTimestamp" in metadata:
            self._grace_seconds = float(metadata.get("deletionGracePeriodSeconds") or 0)
            self._is_deleted.set()
            self._stopping.set()

    def note_gone(self) -> None:
        """End at once: the object was removed."""
        self._is_forced, self._grace_seconds = True, 0.0
        self._is_deleted.set()
        self._stopping.set()

    def evict(self, reason: str, message: str) -> None:
        """End the pod as the kubelet does when its node has not enough of something."""
        self._verdict = (reason, message)
        self._stopping.set()

    def kill(self, name: str) -> None:
        """Kill a container's processes. A sidecar starts again."""
        for one in (*self._inits, *self._containers):
            if one.name == name:
                one.end(signal.SIGKILL)

    def run(self) -> None:
        """Called by Thread.start."""
        try:
            if not self._is_over() and self._admit():
                self._live()
        finally:
            self._end()

    # ---- start

    def _admit(self) -> bool:
        try:
            for one in [*(self.pod["spec"].get("initContainers") or ()), *self.pod["spec"]["containers"]]:
                wanted = {
                    name: int(amount)
                    for name, amount in (one.get("resources", {}).get("limits") or {}).items()
                    if "/" in name
                }
                self._given[one["name"]] = self._kubelet.allocate(
                    self.facts.namespace, self.facts.name, one["name"], wanted
                )
                if claims := self._claims_of(one):
                    self._kubelet.claim(self.facts.namespace, self.facts.name, one["name"], claims)
        except NotEnoughError as error:
            self._verdict = ("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
        except Exception as error:
            self._verdict = ("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
        return self._verdict is None

    def _claims_of(self, container: Object) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """Return the devices of a container's claims, as they are allocated."""
        wanted = {one["name"] for one in (container.get("resources") or {}).get("claims") or ()}
        names = [one for one in self.pod["spec"].get("resourceClaims") or () if one["name"] in wanted]
        found = {}
        for name in (one["resourceClaimName"] for one in names):
            claim = self._api.call("GET", f"{GROUP}/namespaces/{self.facts.namespace}/resourceclaims/{name}")
            results = claim["status"]["allocation"]["devices"]["results"]
            found[name] = tuple((one["driver"], one["pool"], one["device"]) for one in results)
        return found

    def _live(self) -> None:
        self._report()
        if not self._mount():
            return
        for told, container in zip(self.pod["spec"].get("initContainers") or (), self._inits, strict=True):
            is_sidecar = told.get("restartPolicy") == "Always"
            if not self._run_until(told, container, is_sidecar):
                return
        for told, container in zip(self.pod["spec"]["containers"], self._containers, strict=True):
            if not self._pull(told, container):
                return
            self._start(told, container)
        self._watch()

    def _mount(self) -> bool:
        """Make the volumes; wait for what is not there yet. Return whether the pod goes on."""
        for volume in self.pod["spec"].get("volumes") or ():
            while (found := self._volume(volume)) is None:
                if self._stopping.wait(_PAUSE_SECONDS):
                    return False
            self._volumes[volume["name"]] = found
        return True

    def _volume(self, volume: Object) -> Path | None:
        folder = self.folder / "volumes" / volume["name"]
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        if "persistentVolumeClaim" in volume:
            return self._claim(volume["persistentVolumeClaim"]["claimName"])
        folder.mkdir(parents=True, exist_ok=True)
        kind = "secret" if "secret" in volume else "configMap" if "configMap" in volume else ""
        if not kind:
            return folder
        source = volume[kind]
        name = source["secretName"] if kind == "secret" else source["name"]
        found = self._read("secrets" if kind == "secret" else "configmaps", name)
        if found is None:
            return None
        data = found.get("data") or {}
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            value = data[item["key"]]
            text = base64.b64decode(value) if kind == "secret" else value.encode()
            (folder / item["path"]).write_bytes(self._with_folders(text))
        return folder

    def _read(self, plural: str, name: str) -> Object | None:
        """Return a Secret or ConfigMap, which a kubelet gets once for a pod; None: it is not there yet."""
        if (plural, name) not in self._sources:
            try:
                found = self._api.call("GET", f"/api/v1/namespaces/{self.facts.namespace}/{plural}/{name}")
            except Refused:
                return None
            self._sources[plural, name] = found
        return self._sources[plural, name]

    def _with_folders(self, text: bytes) -> bytes:
        """Return a file's text with the paths of the pod's empty folders as they are on the host."""
        empty = {one["name"] for one in self.pod["spec"]["volumes"] if "emptyDir" in one}
        for container in self.pod["spec"]["containers"]:
            for mount in container.get("volumeMounts") or ():
                if mount["name"] in empty and mount["mountPath"] != "/tmp":
                    folder = self.folder / "volumes" / mount["name"]
                    text = text.replace(mount["mountPath"].encode(), os.fsencode(folder))
        return text

    def _run_until(self, told: Object, container: Container, is_sidecar: bool) -> bool:
        """Run an init container to its end, or a sidecar to its start. Return whether the pod goes on."""
        if not self._pull(told, container):
            return False
        self._start(told, container)
        if is_sidecar and "startupProbe" not in told and container.is_running:
            return True
        while not self._stopping.wait(_PAUSE_SECONDS):
            if is_sidecar and (not container.is_running):
                self._restart(told, container)
            elif is_sidecar and self._has_started(told, container):
                self._report()
                return True
            elif not is_sidecar and container.exit_code is not None:
                self._report()
                return container.exit_code == 0
        return False

    def _pull(self, told: Object, container: Container) -> bool:
        """Wait for an image; return whether it came before the pod's end."""
        while image_error := self._images(told["image"]).pull_error:
            container.waiting = ("ErrImagePull", image_error)
            self._report()
            if self._stopping.wait(_BACK_OFF_SECONDS):
                return False
            back_off = f'Back-off pulling image "{told["image"]}": ErrImagePull: {image_error}'
            container.waiting = ("ImagePullBackOff", back_off)
            self._report()
            if self._stopping.wait(_BACK_OFF_SECONDS):
                return False
        return True

    def _start(self, told: Object, container: Container) -> None:
        image, paths = self._images(told["image"]), self._paths(told)
        env = environment(told, image, self._given[told["name"]].env, self.facts, paths)
        log = self.folder / f"{told['name']}.log"
        try:
            cwd = paths.folder(told.get("workingDir") or os.fspath(self.folder))
            container.process = start(command(told, image, paths), env, cwd, log)
        except OSError as error:
            container.waiting = ("CreateContainerError", str(error))
        container.is_ready = container.is_started = "startupProbe" not in told and "readinessProbe" not in told
        if told.get("restartPolicy") != "Always":
            self._report()  # a kubelet tells it beside its work: the next container waits for no answer of the server

    def _restart(self, told: Object, container: Container) -> None:
        container.restarts += 1
        container.is_ready = container.is_started = False
        if not self._stopping.wait(_BACK_OFF_SECONDS):
            self._start(told, container)

    def _has_started(self, told: Object, container: Container) -> bool:
        """Ask the probes; return whether the container has started."""
        probe = told.get("startupProbe")
        env = {**os.environ, **self._given[told["name"]].env}
        if not container.is_started and probe is not None:
            container.is_started = passes(probe, told, env, self.facts.ip)
        container.is_started = container.is_started or probe is None
        ready = told.get("readinessProbe")
        container.is_ready = container.is_started and (ready is None or passes(ready, told, env, self.facts.ip))
        return container.is_started

    def _paths(self, told: Object) -> Paths:
        mounts = {target: Path(source) for target, source in self._given[told["name"]].mounts}
        for mount in told.get("volumeMounts") or ():
            folder = self._volumes[mount["name"]] / mount.get("subPath", "")
            folder.mkdir(parents=True, exist_ok=True)
            mounts[mount["mountPath"]] = folder
        return Paths(mounts)

    # ---- while it runs, and its end

    def _watch(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            for told, container in zip(self.pod["spec"]["containers"], self._containers, strict=True):
                if container.is_running and not (container.is_ready and container.is_started):
                    self._has_started(told, container)
            for told, container in zip(self.pod["spec"].get("initContainers") or (), self._inits, strict=True):
                if told.get("restartPolicy") == "Always" and not container.is_running:
                    self._restart(told, container)
            self._report()
            if not any(one.is_running for one in self._containers):
                return

    def _end(self) -> None:
        """End what runs: the containers within the grace period, then the sidecars in reverse."""
        until = time.monotonic() + (0.0 if self._is_forced else self._grace_seconds)
        _stop(self._containers, until)
        sidecars = [one for one in self._inits if one.is_running]
        for one in reversed(sidecars):
            _stop([one], max(until, time.monotonic() + 2.0) if not self._is_forced else until)
        while not self._is_forced and not self._report(is_final=True):
            time.sleep(_PAUSE_SECONDS)
        self._kubelet.free(self.facts.namespace, self.facts.name)
        self._is_deleted.wait()
        self._remove()

    def _remove(self) -> None:
        """Remove the object of a deleted pod. An ended pod keeps it until then."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.facts.uid}}
        while not self._is_forced:
            try:
                self._api.call("DELETE", self._path, options)
                return
            except Refused as error:
                if error.code in (404, 409):
                    return
            time.sleep(_PAUSE_SECONDS)

    # ---- status

    def _is_over(self) -> bool:
        return (self.pod.get("status") or {}).get("phase") in _ENDED

    def _phase(self, is_final: bool) -> str:
        if self._verdict is not None:
            return "Failed"
        if is_final:
            return "Succeeded" if all(one.exit_code == 0 for one in self._containers) else "Failed"
        # An ended container's pod runs on until its sidecars have ended, too.
        return "Running" if any(one.process is not None for one in self._containers) else "Pending"

    def _report(self, is_final: bool = False) -> bool:
        """Patch the status where it changed; return whether the server has it."""
        has_inits = all(
            one.is_started if told.get("restartPolicy") == "Always" else one.exit_code == 0
            for told, one in zip(self.pod["spec"].get("initContainers") or (), self._inits, strict=True)
        )
        is_ready = not is_final and all(
            one.is_ready and one.is_running for one in [*self._containers, *self._sidecars()]
        )
        words = (True, has_inits, is_ready, is_ready)
        status: Object = {
            "phase": self._phase(is_final),
            "hostIP": self.facts.ip,
            "podIP": self.facts.ip,
            "podIPs": [{"ip": self.facts.ip}],
            "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [one.status() for one in self._containers],
            "initContainerStatuses": [one.status() for one in self._inits],
        }
        if self._verdict is not None:
            status |= {"reason": self._verdict[0], "message": self._verdict[1]}
        mine = [{"type": name, "status": str(word)} for name, word in zip(_CONDITIONS, words, strict=True)]
        if (status, mine) == self._told:
            return True
        try:
            found = (self._api.call("GET", self._path).get("status") or {}).get("conditions") or []
            others = [one for one in found if one["type"] not in _CONDITIONS]
            self._api.call(
                "PATCH", f"{self._path}/status", {"status": {**status, "conditions": [*others, *mine]}}, MERGE
            )
        except Refused as error:
            return error.code == 404
        self._told = (status, mine)
        return True

    def _sidecars(self) -> list[Container]:
        told = self.pod["spec"].get("initContainers") or ()
        return [one for spec, one in zip(told, self._inits, strict=True) if spec.get("restartPolicy") == "Always"]


def _containers(told: Sequence[Object]) -> list[Container]:
    return [Container(one["name"], image=one["image"], resources=one.get("resources") or {}) for one in told]


def _stop(containers: list[Container], until: float) -> None:
    for one in containers:
        one.end(signal.SIGTERM)
    if not wait_all(containers, until):
        for one in containers:
            one.end(signal.SIGKILL)
        wait_all(containers, time.monotonic() + 30.0)
    for one in containers:
        one.end(signal.SIGKILL)  # what its first process left
