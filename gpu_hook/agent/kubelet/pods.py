"""Ask the kubelet which pod has which device: our slots, and the GPUs that holders hold."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import grpc

from .messages import POD_RESOURCES_SERVICE, Empty, ListPodResourcesResponse, PodResources
from .wire import WireError, decode, encode

log = logging.getLogger(__name__)

# The gateway names holders so. The kubelet tells names and no labels.
HOLDER_PREFIX = "aliquot-holder-"
_CALL_SECONDS = 5.0
# A pod is in the kubelet's answer before its containers start; a kubelet that restarts takes longer.
_PAUSES_SECONDS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
_LARGEST_ANSWER = 64 << 20


class PodsUnknownError(Exception):
    """The kubelet does not say which pods have which devices."""


class PodLister(Protocol):
    """The source of the kubelet's answer."""

    async def list(self) -> tuple[PodResources, ...]:
        """Return the resources of all pods of the node. Raises PodsUnknownError."""


class PodResourcesClient:
    """The kubelet's PodResources service, at a socket of this node."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def list(self) -> tuple[PodResources, ...]:
        """Return the resources of all pods of the node. Raises PodsUnknownError."""
        options = [("grpc.max_receive_message_length", _LARGEST_ANSWER)]
        try:
            async with grpc.aio.insecure_channel(f"unix:{os.fspath(self._socket)}", options=options) as channel:
                call: Any = channel.unary_unary(
                    f"/{POD_RESOURCES_SERVICE}/List",
                    request_serializer=encode,
                    response_deserializer=partial(decode, ListPodResourcesResponse),
                )
                answer: ListPodResourcesResponse = await call(Empty(), timeout=_CALL_SECONDS)
        except (grpc.RpcError, WireError) as error:
            raise PodsUnknownError(f"the kubelet does not answer at {self._socket}: {_told(error)}") from error
        return answer.pod_resources


def devices_by_pod(pods: Iterable[PodResources], resource: str) -> dict[str, str]:
    """Return the pods, as ``NAMESPACE/NAME``, by the devices of this resource that they have."""
    return {
        device: f"{pod.namespace}/{pod.name}"
        for pod in pods
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == resource
        for device in devices.device_ids
    }


def held_gpus(pods: Iterable[PodResources], resource: str) -> dict[str, str]:
    """Return the holders, as ``NAMESPACE/NAME``, by the UUIDs of the GPUs that they hold."""
    holders = (pod for pod in pods if pod.name.startswith(HOLDER_PREFIX))
    return devices_by_pod(holders, resource)


def claimed_gpus(pods: Iterable[PodResources], driver: str, minors: Mapping[str, int]) -> dict[str, str]:
    """Return the holders, as ``NAMESPACE/NAME``, by the UUIDs of the GPUs that their ResourceClaims hold.

    *minors* has the numbers of the devices by UUID: NVIDIA's DRA driver names a GPU after its number.
    """
    uuids = {f"gpu-{minor}": uuid for uuid, minor in minors.items()}
    return {
        uuids[device.device_name]: f"{pod.namespace}/{pod.name}"
        for pod in pods
        if pod.name.startswith(HOLDER_PREFIX)
        for container in pod.containers
        for claim in container.dynamic_resources
        for device in claim.claim_resources
        if device.driver_name == driver and device.device_name in uuids
    }


class SlotOwners:
    """The pods that have our slots, as the kubelet last told."""

    def __init__(self, lister: PodLister, resource: str) -> None:
        self._lister = lister
        self._resource = resource
        self._pods: dict[str, str] = {}
        # Slots whose pod was asked for after the slot was given: an older answer names an earlier pod.
        self._confirmed: set[str] = set()

    @property
    def pods(self) -> Mapping[str, str]:
        """Return the known pods by their slots."""
        return dict(self._pods)

    def note(self, pods: Iterable[PodResources]) -> None:
        """Take an answer of the kubelet, which is whole."""
        self._pods = devices_by_pod(pods, self._resource)

    def forget(self, slot: str) -> None:
        """Forget a slot's pod: the kubelet gives the slot to another."""
        self._pods.pop(slot, None)
        self._confirmed.discard(slot)

    async def pod_of(self, slot: str) -> str:
        """Return the pod with this slot. Raises PodsUnknownError."""
        told = f"the kubelet names no pod with the slot {slot}"
        for pause in _PAUSES_SECONDS:
            if slot in self._confirmed and slot in self._pods:
                return self._pods[slot]
            await asyncio.sleep(pause)
            try:
                self.note(await self._lister.list())
                self._confirmed |= self._pods.keys() & {slot}
            except PodsUnknownError as error:
                told = str(error)
        if slot in self._confirmed and slot in self._pods:
            return self._pods[slot]
        raise PodsUnknownError(told)


def _told(error: Exception) -> str:
    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else None
    return str(details or error)
