"""The pods of one gateway's kernels in the cluster: made, watched, resized and deleted."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.provisioner.containers.plan import LABEL_PREFIX, ContainerLimits
from jupyter_aliquot.provisioner.errors import AliquotError, LaunchError, StateError
from jupyter_aliquot.provisioner.kubernetes.client import (
    ClusterAwayError,
    ClusterClient,
    ClusterError,
    Collection,
    Object,
)
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import KERNEL_CONTAINER, kernel_pod
from jupyter_aliquot.provisioner.kubernetes.protection import relay_secret
from jupyter_aliquot.provisioner.kubernetes.record import (
    GATEWAY_LABEL,
    KERNEL_LABEL,
    RECORD_ANNOTATION,
    KernelRecord,
    kernel_selector,
)
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster, PodPlan, RelayKeys
from jupyter_aliquot.provisioner.kubernetes.states import PodState, pod_state, refusal_text, warning_text
from jupyter_aliquot.provisioner.kubernetes.watch import ResourceWatch
from jupyter_aliquot.provisioner.relay.wire.files import RelayRequest

from .owner import with_owner

# The request of the kernel's relay, without its keys: a gateway on another machine starts one again.
RELAY_ANNOTATION = f"{LABEL_PREFIX}relay"
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 15.0
_LOOK_SECONDS = 0.2
_MOST_GONE = 1000

_Answer = TypeVar("_Answer")


class PodStore:
    """The pods of *cluster*'s gateway. *sleep* waits, and *chance* returns a number from 0 to 1."""

    def __init__(
        self,
        client: ClusterClient,
        cluster: Cluster,
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[], float],
        log: logging.Logger,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._leads = leads
        self._client = client
        self._cluster = cluster
        self._sleep = sleep
        self._log = log
        self._pods = Collection("/api/v1", "pods", cluster.namespace, kernel_selector(cluster.gateway))
        self._secrets = Collection("/api/v1", "secrets", cluster.namespace)
        self._watch = ResourceWatch(client, self._pods, sleep, chance, log)
        self._watch.listen(self._saw)
        self._gone: dict[str, PodState | None] = {}  # the last uids, with what the cluster told last of each pod
        self._disowned: set[str] = set()  # uids of own pods that came when another replica may have led
        self._sought: set[str] = set()  # uids of pods that the cluster is asked for
        self._change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Watch the pods for as long as the gateway runs."""
        await self._watch.run()

    async def close(self) -> None:
        """Give up what is not done yet."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    # ---- what is seen

    @property
    def problem(self) -> str:
        """Why pods cannot be seen now; empty if they can."""
        return "" if self._watch.is_current or not self._watch.lists else self._watch.problem

    def pod(self, name: str, uid: str) -> Object | None:
        """Return a pod as it was last seen."""
        found = self._watch.objects.get(name)
        return found if found is not None and found["metadata"]["uid"] == uid else None

    def is_gone(self, uid: str) -> bool:
        """Return whether the cluster told that a pod is no more. A pod that cannot be seen is not gone."""
        return uid in self._gone

    def last_state(self, uid: str) -> PodState | None:
        """Return the last state of a pod that is gone, which tells how the cluster took it; None: not known."""
        return self._gone.get(uid)

    def look_for(self, name: str, uid: str) -> None:
        """Ask the cluster itself for a pod that the watch does not tell: it may have gone between two lists."""
        if self._watch.is_current and uid not in self._sought:
            self._sought.add(uid)
            self._do(self._seek(name, uid), "aliquot-pod-look")

    async def _seek(self, name: str, uid: str) -> None:
        try:
            if await self.read(name, uid) is None:
                self._note_gone(uid)
                self._tell()
        except ClusterError as error:
            self._log.info("pod=%s unseen reason=%s", name, error)
        finally:
            self._sought.discard(uid)

    def next_change(self) -> asyncio.Future[None]:
        """Return a future that is done with the next change of any pod."""
        return self._change

    def _saw(self, before: Object | None, after: Object | None) -> None:
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            self._note_gone(before["metadata"]["uid"], pod_state(before))
        self._tell()

    def _note_gone(self, uid: str, last: PodState | None = None) -> None:
        """Keep the uid for a while: of an earlier one, the cluster is asked again."""
        self._gone[uid] = last
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def _tell(self) -> None:
        change, self._change = self._change, asyncio.get_running_loop().create_future()
        if not change.done():
            change.set_result(None)

    async def list(self) -> list[Object]:
        """Return all pods of the gateway's kernels, however long the API is away. Raises ClusterError."""

        async def listed() -> list[Object]:
            found, version = await self._client.list(self._pods)
            if not self._watch.lists:
                self._watch.take_list(found, version)  # it need not list them again
            return found

        def note(why: str) -> None:
            self._log.warning("pods=unseen reason=%s", why)

        return await self._patiently(listed, math.inf, note)

    async def read(self, name: str, uid: str) -> Object | None:
        """Return a pod as the cluster has it now; None: it is no more. Raises ClusterError."""
        found = await self._read(name)
        return found if found is not None and found["metadata"]["uid"] == uid else None

    async def warning(self, uid: str) -> str:
        """Return the cluster's last warning about a pod, in words; empty without one, or while it cannot be asked."""
        about = Collection("/api/v1", "events", self._cluster.namespace, fields=f"involvedObject.uid={uid}")
        try:
            events, _ = await self._client.list(about)
        except ClusterError as error:
            self._log.info("pod=%s events=unknown reason=%s", uid, error)
            return ""
        return warning_text(events)

    async def is_node_gone(self, node: str) -> bool:
        """Return whether the cluster has no such node any more; False while it cannot be asked."""
        try:
            found, _ = await self._client.list(Collection("/api/v1", "nodes", "", fields=f"metadata.name={node}"))
        except ClusterError as error:
            self._log.info("node=%s unseen reason=%s", node, error)
            return False
        return not found

    async def secret(self, name: str) -> Object:
        """Return the Secret of a kernel's pod. Raises ClusterError, and StateError where there is none."""
        try:
            return await self._client.read(self._secrets, name)
        except ClusterError as error:
            if error.code != 404:
                raise
            raise StateError(f"The Secret {name} cannot be read: {error}") from error

    async def with_secret(self, name: str, uid: str, until: float) -> tuple[Object, Object] | None:
        """Return a pod and its Secret; None: the pod is no more. Tried again as `submit` does.

        Raises ClusterError, and StateError where there is no Secret.
        """

        async def read() -> tuple[Object, Object] | None:
            pod = await self.read(name, uid)
            return None if pod is None else (pod, await self.secret(name))

        def note(why: str) -> None:
            self._log.warning("pod=%s unseen reason=%s", name, why)

        return await self._patiently(read, until, note)

    # ---- what is changed

    async def submit(
        self,
        record: KernelRecord,
        plan: PodPlan,
        keys: RelayKeys,
        relay: str,
        until: float,
        note: Callable[[str], None],
    ) -> Object:
        """Create a kernel's pod and its Secret, which goes with the pod, and return the pod.

        *relay*: the pod's annotation of its relay.

        While the API is away or busy it is tried again; *note* is called with the reason. Raises
        ClusterError and LaunchError.
        """
        cluster = await self._patiently(self._with_owner, until, note)
        told = kernel_pod(cluster, record, plan)
        told["metadata"]["annotations"][RELAY_ANNOTATION] = relay
        creating = asyncio.ensure_future(self._patiently(lambda: self._create(told), until, note))
        try:
            pod = await asyncio.shield(creating)
        except asyncio.CancelledError:
            self._do(self._undo(creating), "aliquot-pod-undo")  # the server may have created it by now
            raise
        try:
            secret = relay_secret(cluster, record, keys)
            owner = {"apiVersion": "v1", "kind": "Pod"} | {one: pod["metadata"][one] for one in ("name", "uid")}
            secret["metadata"]["ownerReferences"] = [owner]
            await self._patiently(lambda: self._create_secret(secret), until, note)
        except BaseException:
            self.delete_later(pod["metadata"]["name"], pod["metadata"]["uid"], 0)
            raise
        return pod

    async def _with_owner(self) -> Cluster:
        self._cluster = await with_owner(self._client, self._cluster)
        return self._cluster

    async def delete(self, name: str, uid: str, grace_seconds: int | None) -> None:
        """Delete a pod, and no other of its name; a missing one is no error. Raises ClusterError."""
        await self._delete_of(self._pods, name, uid, grace_seconds)

    async def _delete_of(self, collection: Collection, name: str, uid: str, grace_seconds: int | None = None) -> None:
        try:
            await self._client.delete(collection, name, uid, grace_seconds)
        except ClusterError as error:
            if error.code != 409:  # another object has the name by now
                raise

    def delete_later(self, name: str, uid: str, grace_seconds: int | None) -> None:
        """Delete a pod in the background, however long the API is away."""
        self._do(self._delete(name, uid, grace_seconds), "aliquot-pod-end")

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _undo(self, creating: asyncio.Future[Object]) -> None:
        with contextlib.suppress(AliquotError):
            metadata = (await creating)["metadata"]
            await self._delete(metadata["name"], metadata["uid"], 0)

    async def resize(self, name: str, uid: str, limits: ContainerLimits) -> None:
        """Change CPU and memory of a pod's kernel. Raises ClusterError."""
        pod = self.pod(name, uid)
        if pod is None:
            return
        self.check_lead()
        containers = copy.deepcopy(pod["spec"]["containers"])
        for one in containers:
            if one["name"] == KERNEL_CONTAINER:
                amounts = {} if limits.cpus is None else {"cpu": f"{round(limits.cpus * 1000)}m"}
                amounts |= {} if limits.memory is None else {"memory": str(int(limits.memory))}
                one["resources"] = {kind: {**one["resources"].get(kind, {}), **amounts} for kind in _KINDS}
        await self._client.patch(self._pods, name, {"spec": {"containers": containers}}, "resize")

    async def _delete(self, name: str, uid: str, grace_seconds: int | None) -> None:
        waits, told = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS), ""
        while True:
            try:
                await self.delete(name, uid, grace_seconds)
                return
            except ClusterError as error:
                # Also a refusal is tried again: a pod that stays keeps its GPU, and rights may be mended.
                if str(error) != told:
                    self._log.warning("pod=%s delete=later reason=%s", name, error)
                told = str(error)
                await self._sleep(max(error.retry_after or 0.0, waits.next_seconds()))

    async def _create(self, told: Object) -> Object:
        name = told["metadata"]["name"]
        while True:
            self.check_lead()
            try:
                made = await self._client.create(self._pods, told)
            except ClusterError as error:
                if error.code != 409 or error.reason != "AlreadyExists":
                    raise
            else:
                self._keep_or_disown(made)
                return made
            found = await self._read(name)
            self.check_lead()  # the calls may have lasted longer than the Lease: the pod may be its next holder's
            if found is None:
                continue
            before, now = found["metadata"], told["metadata"]
            is_same = (before.get("annotations") or {}).get(RECORD_ANNOTATION) == now["annotations"][RECORD_ANNOTATION]
            if is_same and before["uid"] not in self._disowned:
                return found  # the answer to an earlier try was lost
            if _is_anothers(found, told):
                raise LaunchError(f"The pod {name} is there already, and is no kernel of this gateway. Delete it")
            await self.delete(name, before["uid"], 0)  # what is left of the kernel's last run
            await self._sleep(_LOOK_SECONDS)

    def check_lead(self) -> None:
        """Refuse what another replica may do by now. Raises ClusterAwayError."""
        if not self._leads():
            raise ClusterAwayError("another replica of the gateway may lead")

    def _keep_or_disown(self, made: Object) -> None:
        """Delete a pod of this replica's own that came late, when another replica may lead."""
        try:
            self.check_lead()
        except ClusterAwayError:
            self._disowned.add(made["metadata"]["uid"])
            self.delete_later(made["metadata"]["name"], made["metadata"]["uid"], 0)
            raise

    async def _create_secret(self, told: Object) -> Object:
        name = told["metadata"]["name"]
        while True:
            self.check_lead()
            try:
                return await self._client.create(self._secrets, told)
            except ClusterError as error:
                if error.code != 409 or error.reason != "AlreadyExists":
                    raise
            found = await self._read(name, self._secrets)
            if found is None:
                continue
            if _is_of(found, told) and found.get("data") == told["data"]:
                return found  # the answer to an earlier try was lost
            self._check_secret(found, await self._read(name), told)
            self.check_lead()
            # It is immutable, and of the kernel's last run. By its uid no later one of the name is meant.
            await self._delete_of(self._secrets, name, found["metadata"]["uid"])

    def _check_secret(self, found: Object, pod: Object | None, told: Object) -> None:
        """Check that a Secret is left from an earlier run of the kernel. Raises LaunchError.

        *pod* is the one of the name now. A Secret of its, where this start's pod was another, is of
        another replica's start.
        """
        name = told["metadata"]["name"]
        if _is_anothers(found, told):
            raise LaunchError(f"The Secret {name} is there already, and is no kernel's of this gateway. Delete it")
        if pod is None or pod["metadata"]["uid"] != _owner_of(told):
            raise LaunchError(f"The pod {name} was replaced by another program while its kernel started")

    async def _read(self, name: str, collection: Collection | None = None) -> Object | None:
        try:
            return await self._client.read(collection or self._pods, name)
        except ClusterError as error:
            if error.code == 404:
                return None
            raise

    async def _patiently(
        self, call: Callable[[], Awaitable[_Answer]], until: float, note: Callable[[str], None]
    ) -> _Answer:
        waits = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            try:
                return await call()
            except ClusterError as error:
                seconds = max(error.retry_after or 0.0, waits.next_seconds())
                if not error.is_passing or time.monotonic() + seconds > until:
                    raise
                note(refusal_text(error))
                await self._sleep(seconds)


_KINDS = ("requests", "limits")


def _is_anothers(found: Object, told: Object) -> bool:
    """Return whether an object is of no start of this kernel by this gateway."""
    labels, ours = found["metadata"].get("labels") or {}, told["metadata"]["labels"]
    return any(labels.get(one) != ours[one] for one in (KERNEL_LABEL, GATEWAY_LABEL))


def _owner_of(secret: Object) -> str:
    """Return the uid of the pod with which a Secret goes; empty without one."""
    owners = secret["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("kind") == "Pod"), "")


def _is_of(found: Object, told: Object) -> bool:
    return not _is_anothers(found, told) and _owner_of(found) == _owner_of(told)


def relay_request(pod: Object, keys: RelayKeys) -> RelayRequest:
    """Return the request of a kernel's relay in its pod's annotation, with its keys. Raises StateError."""
    try:
        told = json.loads(pod["metadata"]["annotations"][RELAY_ANNOTATION])
        request = RelayRequest(**{**told, "key": keys.connection_key, "curve_secretkey": keys.curve_secretkey})
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"The pod {pod['metadata'].get('name')} has no readable relay: {error!r}") from error
    return replace(request, owner_pid=None, owner_start_time_ticks=None)


def has_sidecar(pod: Object) -> bool:
    """Return whether a pod's relay was told of the sidecar: one of an older version finds the kernel's own sockets."""
    try:
        return bool(json.loads(pod["metadata"]["annotations"][RELAY_ANNOTATION]).get("has_sidecar"))
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
