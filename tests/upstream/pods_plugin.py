"""A plugin of pytest: the kernels of another project's suite run as pods.

It does a gateway's part, and decides the grant and the image of each kernel. The suites choose their own
kernel managers, in whose place no gateway can stand.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.containers.plan import ContainerPlan
from jupyter_aliquot.provisioner.grants.codec import agent_grant
from jupyter_aliquot.provisioner.grants.reservation import POD_ATTRIBUTE
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod_name
from jupyter_aliquot.provisioner.kubernetes.pods.runtime import PodRuntime
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster, PodSettings
from jupyter_aliquot.provisioner.provisioner import AliquotProvisioner
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess
from jupyter_aliquot.provisioner.runtime.base import Launch

NODE_VARIABLE = "ALIQUOT_TEST_NODE"  # the runtime folder of the node's agent
_SETTINGS = PodSettings(Cluster("default", "suite", "relay:1"), start_seconds=60.0, grace_seconds=1)
_pre_launch, _cleanup = AliquotProvisioner.pre_launch, AliquotProvisioner.cleanup


class Pods:
    """The pods and grants of all kernels of the suite, in one event loop as a gateway's.

    A blocking manager runs its calls in loops of its threads, and calls about one kernel in several of them.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._runtime: PodRuntime | None = None
        self._clients: dict[str, AgentClient] = {}  # by kernel: each holds its reservation
        threading.Thread(target=self._loop.run_forever, name="pods", daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        """Return a method of the runtime. Its coroutines run in the loop of all pods."""
        if self._runtime is None:
            folder = RuntimeDir(Path(os.environ["ALIQUOT_RUNTIME_DIR"]))
            self._runtime = PodRuntime(_SETTINGS, folder, logging.getLogger("pods"))
        found = getattr(self._runtime, name)
        return self._of_the_loop(found) if inspect.iscoroutinefunction(found) else found

    def _of_the_loop(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*words: Any, **named: Any) -> Any:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(method(*words, **named), self._loop))

        return call

    async def create(self, launch: Launch) -> KernelProcess:
        """Start a kernel. Its relay starts in the loop of its manager, which waits here for the pod."""
        managers = asyncio.get_running_loop()

        async def wait_there() -> None:
            await launch.until_relay()

        async def until_relay() -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(wait_there(), managers))

        created = self.__getattr__("create")(replace(launch, until_relay=until_relay))
        return await created  # type: ignore[no-any-return]

    async def grant(self, kernel_id: str) -> Grant:
        """Reserve a share of the node's GPU for a kernel."""
        return await self._of_the_loop(self._reserve)(kernel_id)  # type: ignore[no-any-return]

    async def release(self, kernel_id: str) -> None:
        """Give back what a kernel has, if anything."""
        await self._of_the_loop(self._release)(kernel_id)

    async def _reserve(self, kernel_id: str) -> Grant:
        client = await AgentClient.connect(Path(os.environ[NODE_VARIABLE]), seconds=60)
        self._clients[kernel_id] = client
        pod = f"{_SETTINGS.cluster.namespace}/{kernel_pod_name(kernel_id)}"
        asked: dict[str, Any] = {"owner": "ada", "hundredths": 1, "memory_limit": None}
        return agent_grant(await client.reserve(kernel_id, attributes={POD_ATTRIBUTE: pod}, **asked))

    async def _release(self, kernel_id: str) -> None:
        client = self._clients.pop(kernel_id, None)
        if client is not None:
            await client.release(kernel_id)
            await client.close()

    def close(self) -> None:
        """End the watch and the tunnels."""
        if self._runtime is not None:
            asyncio.run_coroutine_threadsafe(self._runtime.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)


_pods = Pods()


async def _launch_as_pod(self: AliquotProvisioner, **kwargs: Any) -> dict[str, Any]:
    if self.grant is None:
        kwargs |= {"grant": await _pods.grant(self.kernel_id), "container": ContainerPlan("box:1")}
    return await _pre_launch(self, **kwargs)


async def _clean_up(self: AliquotProvisioner, restart: bool = False) -> None:
    await _cleanup(self, restart)
    if not restart:
        await _pods.release(self.kernel_id)


AliquotProvisioner.pre_launch = _launch_as_pod  # type: ignore[method-assign]
AliquotProvisioner.cleanup = _clean_up  # type: ignore[method-assign]
KernelManager.container_runtime = _pods  # type: ignore[attr-defined]


def pytest_sessionfinish() -> None:
    """Called by pytest at its end."""
    _pods.close()
