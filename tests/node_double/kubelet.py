"""The kubelet's part for device plugins: registration, allocation, and the answer of PodResources.

The messages are protoc's, so that the agent's own ones are read by another program than wrote them.
"""

from __future__ import annotations

import functools
import importlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

HERE = Path(__file__).parent
_PROTOS = ("device_plugin.proto", "pod_resources.proto")
_CALL_SECONDS = 20.0
_THREADS = 16


class NotEnoughError(Exception):
    """A container requests more of a resource than healthy devices are free."""


@dataclass(frozen=True)
class Given:
    """The answers of plugins for one container."""

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()  # path in the container, path on the host
    devices: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()


@functools.cache
def stubs() -> tuple[Any, Any, Any, Any]:
    """Return protoc's modules: messages and services of the plugins, then those of PodResources."""
    from grpc_tools import protoc

    out = tempfile.mkdtemp(prefix="aq-proto-")
    words = ["protoc", f"-I{HERE}", f"--python_out={out}", f"--grpc_python_out={out}", *_PROTOS]
    assert protoc.main(words) == 0
    sys.path.insert(0, out)
    try:
        names = ("device_plugin_pb2", "device_plugin_pb2_grpc", "pod_resources_pb2", "pod_resources_pb2_grpc")
        messages, services, pods, pod_services = (importlib.import_module(name) for name in names)
    finally:
        sys.path.remove(out)
    return messages, services, pods, pod_services


class Kubelet:
    """The services in a folder. ``changed`` is called when the devices are others."""

    def __init__(self, folder: Path, changed: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self.plugins, self.pods_folder = folder / "device-plugins", folder / "pod-resources"
        self.registrations: list[str] = []
        self._changed = changed
        self._guard = threading.Lock()
        # guarded by _guard: resource to device to its health; and to its plugin's socket
        self._devices: dict[str, dict[str, str]] = {}
        self._endpoints: dict[str, str] = {}
        self._stubs: dict[str, Any] = {}  # by socket, while its stream of devices is read: a kubelet connects once
        self._streams: list[Any] = []
        # guarded by _guard: (namespace, pod, container) to resource to devices
        self._given: dict[tuple[str, str, str], dict[str, tuple[str, ...]]] = {}
        # guarded by _guard: the same containers to claims to the devices of each: driver, pool, device
        self._claims: dict[tuple[str, str, str], dict[str, tuple[tuple[str, str, str], ...]]] = {}
        # Devices of plugins that are not there: of holders' GPUs
        self._servers: list[Any] = []

    def start(self) -> None:
        """Serve. Sockets of plugins are removed, as a kubelet does at its start."""
        messages, services, pods, pod_services = stubs()
        for folder in (self.plugins, self.pods_folder):
            folder.mkdir(parents=True, exist_ok=True)
        for old in self.plugins.glob("*.sock"):
            old.unlink()
        with self._guard:
            self._endpoints.clear()
            for devices in self._devices.values():
                devices.update(dict.fromkeys(devices, "Unhealthy"))
        registration = _registration(self, messages, services)
        lister = _lister(self, pods, pod_services)
        for add, servicer, path in (
            (services.add_RegistrationServicer_to_server, registration, self.plugins / "kubelet.sock"),
            (pod_services.add_PodResourcesListerServicer_to_server, lister, self.pods_folder / "kubelet.sock"),
        ):
            path.unlink(missing_ok=True)
            server = grpc.server(ThreadPoolExecutor(_THREADS))
            add(servicer, server)
            server.add_insecure_port(f"unix:{path}")
            server.start()
            self._servers.append(server)

    def stop(self) -> None:
        for server in self._servers:
            server.stop(0).wait()
        self._servers.clear()

    def restart(self) -> None:
        """End and begin. What pods have been given stays: a kubelet keeps it in a file."""
        self.stop()
        self.start()
        self._changed()

    def end_streams(self) -> None:
        """Stop reading the plugins' devices, as a kubelet does after an error, and go on with the rest."""
        with self._guard:
            ended, self._streams = self._streams, []
        for stream in ended:
            stream.cancel()

    def offer(self, resource: str, devices: tuple[str, ...]) -> None:
        """Offer devices of a plugin that the double stands in for, such as NVIDIA's."""
        with self._guard:
            self._devices[resource] = dict.fromkeys(devices, "Healthy")
            self._endpoints.pop(resource, None)
        self._changed()

    def amounts(self) -> dict[str, tuple[int, int]]:
        """Return the known and the healthy devices by resource."""
        with self._guard:
            return {
                resource: (len(devices), sum(health == "Healthy" for health in devices.values()))
                for resource, devices in self._devices.items()
            }

    def given(self) -> dict[tuple[str, str, str], dict[str, tuple[str, ...]]]:
        """Return the devices by container and resource."""
        with self._guard:
            return {container: dict(devices) for container, devices in self._given.items()}

    def allocate(self, namespace: str, pod: str, container: str, wanted: Mapping[str, int]) -> Given:
        """Give a container its devices, and return its plugins' answers. Raises NotEnoughError."""
        env: dict[str, str] = {}
        mounts: list[tuple[str, str]] = []
        files: list[str] = []
        names: list[str] = []
        for resource, amount in wanted.items():
            chosen = self._choose((namespace, pod, container), resource, amount)
            with self._guard:
                endpoint = self._endpoints.get(resource)
            if endpoint is None:
                continue
            answer = self._ask(endpoint, chosen)
            env.update(answer.envs)
            mounts += [(mount.container_path, mount.host_path) for mount in answer.mounts]
            files += [device.host_path for device in answer.devices]
            names += [device.name for device in answer.cdi_devices]
        return Given(env, tuple(mounts), tuple(files), tuple(names))

    def claim(
        self, namespace: str, pod: str, container: str, claims: Mapping[str, tuple[tuple[str, str, str], ...]]
    ) -> None:
        """Note the devices that a container has by ResourceClaims, as after a DRA driver has prepared them."""
        with self._guard:
            self._given.setdefault((namespace, pod, container), {})
            self._claims[namespace, pod, container] = dict(claims)

    def claimed(self, container: tuple[str, str, str]) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """Return a container's devices by its claims."""
        with self._guard:
            return dict(self._claims.get(container, {}))

    def free(self, namespace: str, pod: str) -> None:
        """Take the devices of a pod that is gone."""
        with self._guard:
            for container in [one for one in self._given if one[:2] == (namespace, pod)]:
                del self._given[container]
                self._claims.pop(container, None)

    def register(self, resource: str, endpoint: str) -> None:
        """Take a plugin. Called by its request."""
        with self._guard:
            self.registrations.append(resource)
            self._endpoints[resource] = endpoint
        threading.Thread(target=self._watch, args=(resource, endpoint), daemon=True).start()

    def _choose(self, container: tuple[str, str, str], resource: str, amount: int) -> tuple[str, ...]:
        with self._guard:
            known = self._given.setdefault(container, {})
            if resource in known:
                return known[resource]
            taken = {device for given in self._given.values() for device in given.get(resource, ())}
            found = [name for name, health in self._devices.get(resource, {}).items() if health == "Healthy"]
            free = [name for name in found if name not in taken][:amount]
            if len(free) < amount:
                del self._given[container]
                told = f"requested number of devices unavailable for {resource}. Requested: {amount}, Available: "
                raise NotEnoughError(f"{told}{len(free)}")
            known[resource] = tuple(free)
            return known[resource]

    def _ask(self, endpoint: str, devices: tuple[str, ...]) -> Any:
        messages, services, _, _ = stubs()
        request = messages.AllocateRequest(
            container_requests=[messages.ContainerAllocateRequest(devices_ids=list(devices))]
        )
        with self._guard:
            known = self._stubs.get(endpoint)
        if known is not None:
            return known.Allocate(request, timeout=_CALL_SECONDS).container_responses[0]
        with self._channel(endpoint) as channel:
            answer = services.DevicePluginStub(channel).Allocate(request, timeout=_CALL_SECONDS)
        return answer.container_responses[0]

    def _watch(self, resource: str, endpoint: str) -> None:
        """Read a plugin's devices until it, or another registration, ends it."""
        messages, services, _, _ = stubs()
        try:
            with self._channel(endpoint) as channel:
                plugin = services.DevicePluginStub(channel)
                plugin.GetDevicePluginOptions(messages.Empty(), timeout=_CALL_SECONDS)
                self._read(resource, endpoint, plugin)
        except grpc.RpcError:
            pass
        with self._guard:
            devices = self._devices.get(resource, {})
            devices.update(dict.fromkeys(devices, "Unhealthy"))
        self._changed()

    def _read(self, resource: str, endpoint: str, plugin: Any) -> None:
        messages, _, _, _ = stubs()
        stream = plugin.ListAndWatch(messages.Empty())
        with self._guard:
            self._streams.append(stream)
            self._stubs[endpoint] = plugin
        try:
            for answer in stream:
                with self._guard:
                    self._devices[resource] = {device.ID: device.health for device in answer.devices}
                self._changed()
        finally:
            with self._guard:
                if self._stubs.get(endpoint) is plugin:
                    del self._stubs[endpoint]

    @contextmanager
    def _channel(self, endpoint: str) -> Iterator[Any]:
        with grpc.insecure_channel(f"unix:{self.plugins / endpoint}") as channel:
            yield channel


def _registration(kubelet: Kubelet, messages: Any, services: Any) -> Any:
    class Registration(services.RegistrationServicer):  # type: ignore[misc]
        def Register(self, request: Any, context: Any) -> Any:
            if request.version != "v1beta1":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unsupported device plugin version {request.version}")
            kubelet.register(request.resource_name, request.endpoint)
            return messages.Empty()

    return Registration()


def _lister(kubelet: Kubelet, pods: Any, services: Any) -> Any:
    class Lister(services.PodResourcesListerServicer):  # type: ignore[misc]
        def List(self, request: Any, context: Any) -> Any:
            answer = pods.ListPodResourcesResponse()
            for (namespace, pod, container), given in kubelet.given().items():
                told = answer.pod_resources.add(name=pod, namespace=namespace).containers.add(name=container)
                for resource, devices in given.items():
                    told.devices.add(resource_name=resource, device_ids=devices)
                for name, claimed in kubelet.claimed((namespace, pod, container)).items():
                    claim = told.dynamic_resources.add(claim_name=name, claim_namespace=namespace)
                    for driver, pool, device in claimed:
                        claim.claim_resources.add(driver_name=driver, pool_name=pool, device_name=device)
            return answer

    return Lister()
