"""The holders of a pool's GPUs in a cluster: created for kernels that wait, and ended when their GPUs are idle.

A holder that the cluster ends has its GPU emptied first. What is to be done is decided in
`provisioner.kubernetes.holding.reconcile`; this module sees the pods, and does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gateway.scheduling.foreseeing.more_gpus import waiting_gpus
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.kubernetes.client import (
    ClusterAwayError,
    ClusterClient,
    ClusterError,
    Collection,
    Object,
)
from jupyter_aliquot.provisioner.kubernetes.holding.claims import CLAIMS_PREFIX, holder_claim
from jupyter_aliquot.provisioner.kubernetes.holding.holders import HolderSettings, holder_pod, holder_selector
from jupyter_aliquot.provisioner.kubernetes.holding.reconcile import (
    End,
    Holder,
    HolderPhase,
    PoolState,
    Steps,
    read_holders,
    reconcile,
    spare_holders,
)
from jupyter_aliquot.provisioner.kubernetes.pods.owner import with_owner
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster
from jupyter_aliquot.provisioner.kubernetes.states import refusal_text
from jupyter_aliquot.provisioner.kubernetes.watch import ResourceWatch
from jupyter_aliquot.provisioner.resources import Grant

from .vacating import GoingGpu, HolderEnds, Vacating

_LOOK_SECONDS = 1.0
_UNTOLD_SECONDS = 10.0
_UNTOLD_DEVICE_SECONDS = 120.0


class HolderKeeper:
    """The holders of one gateway. *devices* returns those of all nodes."""

    def __init__(
        self,
        client: Callable[[], ClusterClient],
        cluster: Cluster,
        settings: HolderSettings,
        devices: Callable[[], tuple[DeviceStatus, ...]],
        vacating: Vacating,
        clock: Clock,
        log: logging.Logger,
        lead: Lead = ALONE,
    ) -> None:
        self._lead = lead
        self._make_client = client
        self._cluster = cluster
        self._settings = settings
        self._devices = devices
        self._vacating = vacating
        self._clock = clock
        self._log = log
        self._spare_since: dict[str, float] = {}
        self._untold_since: dict[str, float] = {}
        self._ends = HolderEnds(clock)
        selector = holder_selector(cluster, settings.pool)
        self._pods = Collection("/api/v1", "pods", cluster.namespace, selector)
        self._untold = _Untold(self._pods, clock)
        self._seen: set[str] = set()  # names of holders
        self._names: set[str] = set()  # of the GPUs that the cluster gave
        self._claimed: set[str] = set()  # holders that have their claims
        self._is_prepared = False
        self._problem = ""
        self._keeping: asyncio.Task[None] | None = None
        # The devices whose holders are to end, by UUID. Read by admission.
        self.leaving_devices: frozenset[str] = frozenset()

    def start(
        self,
        seen: Callable[[], AdmissionSnapshot],
        plan_again: Callable[[], None],
        stuck: Callable[[Mapping[str, str]], None] = lambda kernels: None,
    ) -> None:
        """Keep the holders until `stop`.

        *seen* returns the queue and the grants. *stuck* gets, again and again, the kernels that cannot leave a GPU
        which the cluster takes back, each with why.
        """
        self._keeping = asyncio.create_task(self._keep(seen, plan_again, stuck), name="aliquot-holders")

    async def stop(self) -> None:
        """Leave the holders as they are. Idempotent."""
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            await end_task(keeping)

    async def _keep(
        self,
        seen: Callable[[], AdmissionSnapshot],
        plan_again: Callable[[], None],
        stuck: Callable[[Mapping[str, str]], None],
    ) -> None:
        client = self._make_client()
        watch = ResourceWatch(client, self._pods, asyncio.sleep, random.random, self._log)
        watch.listen(self._untold.forget_told)
        watching = asyncio.create_task(watch.run(), name="aliquot-holders-watch")
        try:
            while True:
                try:
                    await self._untold.ask(client, watch.objects)
                    await self._vacate(watch, seen, stuck)
                    before = self.leaving_devices
                    steps = self._look(watch, seen())
                    if self.leaving_devices != before:
                        plan_again()
                    await self._do(client, steps)
                    await self._claim(client, watch)
                    self._problem = ""
                except ClusterError as error:
                    if str(error) != self._problem:
                        self._log.warning("holders=later reason=%s", refusal_text(error))
                    self._problem = str(error)
                except Exception:
                    self._log.exception("holders=failed; they are looked at again")
                await self._clock.sleep(_LOOK_SECONDS)
        finally:
            await end_task(watching)
            with contextlib.suppress(Exception):
                await client.close()

    def claims_of(self, grant: Grant) -> tuple[str, ...]:
        """Return the ResourceClaims of a grant's GPUs: those of their holders. Empty where no claims hold GPUs."""
        if not self._settings.pool.device_class:
            return ()
        uuids = {quota.uuid for quota in grant.quotas}
        return tuple(sorted(name for name, device in self._held().items() if device.uuid in uuids))

    async def _vacate(
        self,
        watch: ResourceWatch,
        seen: Callable[[], AdmissionSnapshot],
        stuck: Callable[[Mapping[str, str]], None],
    ) -> None:
        """Have the GPUs emptied whose holders are to end."""
        held, pods, snapshot = self._held(), tuple(watch.objects.values()), seen()
        ends = self._ends.look(pods, is_current=watch.is_current)
        if not self._lead.is_current():
            return
        now = self._clock.now()
        going = [GoingGpu(uuid, node, now) for uuid, node in taken_devices(self._devices(), snapshot).items()]
        leaving = [pod for pod in pods if pod["metadata"]["uid"] in ends and pod["metadata"]["name"] in held]
        going += [
            GoingGpu(
                held[pod["metadata"]["name"]].uuid,
                str(pod["spec"].get("nodeName") or ""),
                ends[pod["metadata"]["uid"]],
            )
            for pod in leaving
        ]
        await self._vacating.look(going)
        keeps_pods = not self._settings.pool.device_class
        stuck(self._vacating.stuck(snapshot.holdings, keeps_pods=keeps_pods))

    def _held(self) -> dict[str, DeviceStatus]:
        """Return the devices by the names of the holders that hold them."""
        return {one.holder.partition("/")[2]: one for one in self._devices() if one.holder}

    def _is_used(self, device: DeviceStatus, used: Container[str], is_leaving: bool) -> bool:
        """Return whether a kernel is on a device; of one that goes, whether anything of one is.

        A claim is in use for as long as a kernel's pod refers to it, wherever its memory is.
        """
        if device.reserved_kernels or (is_leaving and not self._vacating.is_empty(device.uuid)):
            return True
        return device.uuid in used if not is_leaving or self._settings.pool.device_class else False

    def _look(self, watch: ResourceWatch, snapshot: AdmissionSnapshot) -> Steps:
        """Return what is to be done now."""
        now = self._clock.now()
        held, used = self._held(), used_devices(snapshot)
        pods = {**self._untold.pods, **watch.objects}
        going = {name for name, pod in pods.items() if pod["metadata"].get("deletionTimestamp")}
        use = {name: self._is_used(device, used, name in going) for name, device in held.items()}
        holders = self._shut(read_holders(pods.values(), use), held, snapshot)
        pool = self._settings.pool
        self._names |= {device.name for device in held.values()}
        waiting = waiting_gpus(snapshot, now, pool.most, self._names)
        state = PoolState(pool, holders, waiting, now, self._spare_since, watch.is_current)
        self._spare_since = {one.uid: self._spare_since.get(one.uid, now) for one in spare_holders(state)}
        leaving = {one.name for one in holders if one.phase in (HolderPhase.LEAVING, HolderPhase.OVER)}
        # One that is gone had its GPU until a moment ago; its agent has not been told by the kubelet yet.
        self._seen = (self._seen | set(pods)) & {*held, *pods}
        leaving |= self._seen - set(pods)
        uuids = frozenset(device.uuid for name, device in held.items() if name in leaving)
        uuids |= taken_devices(self._devices(), snapshot).keys()
        if uuids != self.leaving_devices:
            self._log.info("holders=leaving devices=%s", sorted(uuids))
            self.leaving_devices = uuids
        return reconcile(state, self._settings.idle_seconds)

    def _shut(
        self, holders: tuple[Holder, ...], held: Mapping[str, DeviceStatus], snapshot: AdmissionSnapshot
    ) -> tuple[Holder, ...]:
        """Return the holders with those marked that take no kernel. An agent has some time to tell a new one's GPU."""
        now, ledger = self._clock.now(), snapshot.ledger
        untold = {one.uid for one in holders if one.phase is HolderPhase.HOLDING and one.name not in held}
        self._untold_since = {uid: self._untold_since.get(uid, now) for uid in untold}
        closed = {
            one.uuid
            for node in ledger.nodes
            for one in node.devices
            if one.uuid in ledger.cordons or ledger.cordon_of(node) is not None
        }

        def is_shut(one: Holder) -> bool:
            device = held.get(one.name)
            if device is None:
                return now - self._untold_since.get(one.uid, now) >= _UNTOLD_DEVICE_SECONDS
            return device.lost or device.uuid in closed

        return tuple(replace(one, is_shut=is_shut(one)) for one in holders)

    async def _do(self, client: ClusterClient, steps: Steps) -> None:
        """Do the steps. Raises ClusterError, for each that another replica may do in this one's place, too."""
        for end in steps.end:
            self._check_lead()
            await self._end(client, end)
        if steps.create or not self._is_prepared:
            self._cluster = await with_owner(client, self._cluster)
            self._check_lead()
            await self._prepare(client)
        for _ in range(steps.create):
            self._check_lead()
            holder_id = uuid.uuid4().hex[:8]
            pod = holder_pod(self._cluster, self._settings.pool, holder_id, self._settings.queueing)
            await self._untold.create(client, pod)
            self._log.info("holder=%s created", pod["metadata"]["name"])

    def _check_lead(self) -> None:
        if not self._lead.is_current():
            raise ClusterAwayError("another replica of the gateway may lead")

    async def _claim(self, client: ClusterClient, watch: ResourceWatch) -> None:
        """Create the claims of holders that wait for them. Raises ClusterError.

        A claim goes with its pod, whose uid it needs: an answer that was lost, or a gateway that ended in between,
        leaves a pod that waits without one.
        """
        device_class = self._settings.pool.device_class
        # One that a silent watch has not told waits for its claim, too. It has no uid before the server's answer.
        pods = {**self._untold.pods, **watch.objects}
        self._claimed &= set(pods)
        for name, pod in pods.items() if device_class else ():
            told, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
            if not told["uid"] or phase != "Pending" or "deletionTimestamp" in told or name in self._claimed:
                continue
            self._check_lead()
            claims = Collection(CLAIMS_PREFIX, "resourceclaims", self._cluster.namespace)
            try:
                await client.create(claims, holder_claim(self._cluster, pod, device_class))
            except ClusterError as error:
                if error.code != HTTPStatus.CONFLICT:
                    raise
            self._claimed.add(name)

    async def _prepare(self, client: ClusterClient) -> None:
        """Create what the pool needs beside its holders, or set it anew. Raises ClusterError."""
        for told in self._settings.queueing.pool_objects(self._cluster, self._settings.pool):
            kind = Collection(f"/apis/{told['apiVersion']}", f"{told['kind'].lower()}s", self._cluster.namespace)
            try:
                await client.create(kind, told)
            except ClusterError as error:
                if error.code != HTTPStatus.CONFLICT:
                    raise
                # It is there, maybe of other settings.
                await client.patch(kind, told["metadata"]["name"], {"spec": told["spec"]})
        self._is_prepared = True

    async def _end(self, client: ClusterClient, end: End) -> None:
        await client.delete(self._pods, end.holder.name, end.holder.uid, 0 if end.at_once else None)
        self._log.info("holder=%s ended phase=%s", end.holder.name, end.holder.phase.value)


class _Untold:
    """The holders that were created, and that the watch has not told yet: a silent watch makes no second one.

    One that stays untold is asked for. An answer that was lost may have been of a pod that is there.
    """

    def __init__(self, collection: Collection, clock: Clock) -> None:
        self._collection = collection
        self._clock = clock
        self.pods: dict[str, Object] = {}  # by name
        self._asked: dict[str, float] = {}

    async def create(self, client: ClusterClient, pod: Object) -> None:
        """Create a holder. Raises ClusterError."""
        name = pod["metadata"]["name"]
        self._take({**pod, "metadata": {**pod["metadata"], "uid": ""}})
        try:
            self._take(await client.create(self._collection, pod))
        except ClusterError as error:
            if not error.is_passing or error.code == HTTPStatus.TOO_MANY_REQUESTS:
                self._forget(name)
            raise

    async def ask(self, client: ClusterClient, told: Container[str]) -> None:
        """Read those that are untold for long. One that cannot be read stays."""
        now = self._clock.now()
        for name in [one for one, asked in self._asked.items() if now - asked >= _UNTOLD_SECONDS]:
            try:
                if name not in told:
                    self._take(await client.read(self._collection, name))
                    continue
            except ClusterError as error:
                if error.code != HTTPStatus.NOT_FOUND:
                    self._asked[name] = now
                    continue
            self._forget(name)

    def forget_told(self, before: Object | None, after: Object | None) -> None:
        """Called by the watch."""
        for one in (before, after):
            if one is not None:
                self._forget(one["metadata"]["name"])

    def _take(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        self.pods[name], self._asked[name] = pod, self._clock.now()

    def _forget(self, name: str) -> None:
        self.pods.pop(name, None)
        self._asked.pop(name, None)


def used_devices(snapshot: AdmissionSnapshot) -> frozenset[str]:
    """Return the devices that kernels have, resident or swapped out."""
    return frozenset(quota.uuid for held in snapshot.holdings for quota in held.grant.quotas)


def taken_devices(devices: Iterable[DeviceStatus], snapshot: AdmissionSnapshot) -> dict[str, str]:
    """Return the devices, each with its node, that kernels have though their holders are gone.

    A holder that is killed has no grace period: the cluster may have given its GPU to another pod.
    """
    taken = {one.uuid for one in devices if one.lost and not one.holder}
    return {
        quota.uuid: held.grant.node for held in snapshot.holdings for quota in held.grant.quotas if quota.uuid in taken
    }
