"""The messages of the kubelet's device-plugin API (v1beta1) and PodResources API (v1).

Only the fields that Aliquot writes or reads are declared. Names and numbers are Kubernetes'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .wire import flag, messages, text, texts, words

DEVICE_PLUGIN_VERSION = "v1beta1"
REGISTRATION_SERVICE = "v1beta1.Registration"
DEVICE_PLUGIN_SERVICE = "v1beta1.DevicePlugin"
POD_RESOURCES_SERVICE = "v1.PodResourcesLister"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


@dataclass(frozen=True)
class Empty:
    """A message without fields."""


@dataclass(frozen=True)
class DevicePluginOptions:
    """The optional calls that the plugin wants; none."""

    pre_start_required: bool = flag(1)
    get_preferred_allocation_available: bool = flag(2)


@dataclass(frozen=True)
class RegisterRequest:
    """The plugin to the kubelet. ``endpoint`` is the name of its socket in the kubelet's folder.

    Its field of options is left out: it would be the same as DevicePluginOptions, without any.
    """

    version: str = text(1)
    endpoint: str = text(2)
    resource_name: str = text(3)


@dataclass(frozen=True)
class Device:
    """One unit of the resource: here, a slot for a kernel pod."""

    id: str = text(1)
    health: str = text(2)


@dataclass(frozen=True)
class ListAndWatchResponse:
    """All devices; the kubelet replaces its list by it."""

    devices: tuple[Device, ...] = messages(1, Device)


@dataclass(frozen=True)
class ContainerAllocateRequest:
    """The devices that the kubelet chose for one container."""

    device_ids: tuple[str, ...] = texts(1)


@dataclass(frozen=True)
class AllocateRequest:
    """The kubelet's request before it creates the containers."""

    container_requests: tuple[ContainerAllocateRequest, ...] = messages(1, ContainerAllocateRequest)


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host in the container."""

    container_path: str = text(1)
    host_path: str = text(2)
    read_only: bool = flag(3)


@dataclass(frozen=True)
class DeviceSpec:
    """A device file of the host in the container. ``permissions``: of r, w and m."""

    container_path: str = text(1)
    host_path: str = text(2)
    permissions: str = text(3)


@dataclass(frozen=True)
class CdiDevice:
    """A device by its fully qualified CDI name."""

    name: str = text(1)


@dataclass(frozen=True)
class ContainerAllocateResponse:
    """The parts of the host that one container gets."""

    envs: Mapping[str, str] = words(1)
    mounts: tuple[Mount, ...] = messages(2, Mount)
    devices: tuple[DeviceSpec, ...] = messages(3, DeviceSpec)
    annotations: Mapping[str, str] = words(4)
    cdi_devices: tuple[CdiDevice, ...] = messages(5, CdiDevice)


@dataclass(frozen=True)
class AllocateResponse:
    """One response for each container request, in their order."""

    container_responses: tuple[ContainerAllocateResponse, ...] = messages(1, ContainerAllocateResponse)


@dataclass(frozen=True)
class ContainerDevices:
    """The devices of one resource that a container has."""

    resource_name: str = text(1)
    device_ids: tuple[str, ...] = texts(2)


@dataclass(frozen=True)
class ClaimResource:
    """One device of a ResourceClaim (DRA), by its driver's name for it."""

    driver_name: str = text(2)
    pool_name: str = text(3)
    device_name: str = text(4)


@dataclass(frozen=True)
class DynamicResource:
    """The devices of one ResourceClaim that a container has."""

    claim_name: str = text(2)
    claim_namespace: str = text(3)
    claim_resources: tuple[ClaimResource, ...] = messages(4, ClaimResource)


@dataclass(frozen=True)
class ContainerResources:
    """The resources of one container."""

    name: str = text(1)
    devices: tuple[ContainerDevices, ...] = messages(2, ContainerDevices)
    dynamic_resources: tuple[DynamicResource, ...] = messages(5, DynamicResource)


@dataclass(frozen=True)
class PodResources:
    """The resources of one pod."""

    name: str = text(1)
    namespace: str = text(2)
    containers: tuple[ContainerResources, ...] = messages(3, ContainerResources)


@dataclass(frozen=True)
class ListPodResourcesResponse:
    """The resources of all pods of the node."""

    pod_resources: tuple[PodResources, ...] = messages(1, PodResources)
