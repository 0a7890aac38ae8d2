"""A plugin of pytest: the kernels of another project's suite run as pods.

It does a gateway's part, and decides the grant and the image of each kernel. The suites choose their own
kernel managers, in whose place no gateway can stand.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
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
from jupyter_aliquot.provisioner.resources import Grant

NODE_VARIABLE = "ALIQUOT_TEST_NODE"  # the runtime folder of the node's agent
_SETTINGS = PodSettings(Cluster("default", "suite", "relay:1"), start_seconds=60.0, grace_seconds=1)
_runtimes: dict[asyncio.AbstractEventLoop, PodRuntime] = {}
_clients: dict[str, AgentClient] = {}  # by kernel: each holds its reservation
_pre_launch, _cleanup = AliquotProvisioner.pre_launch, AliquotProvisioner.cleanup


def _runtime(manager: KernelManager) -> PodRuntime | None:
    """Return the pods of the loop that runs. Managers that block have one of their own."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    if loop not in _runtimes:
        folder = RuntimeDir(Path(os.environ["ALIQUOT_RUNTIME_DIR"]))
        _runtimes[loop] = PodRuntime(_SETTINGS, folder, logging.getLogger("pods"))
    return _runtimes[loop]


async def _grant(kernel_id: str) -> Grant:
    client = await AgentClient.connect(Path(os.environ[NODE_VARIABLE]), seconds=60)
    _clients[kernel_id] = client
    pod = f"{_SETTINGS.cluster.namespace}/{kernel_pod_name(kernel_id)}"
    asked: dict[str, Any] = {"owner": "ada", "hundredths": 1, "memory_limit": None}
    return agent_grant(await client.reserve(kernel_id, attributes={POD_ATTRIBUTE: pod}, **asked))


async def _launch_as_pod(self: AliquotProvisioner, **kwargs: Any) -> dict[str, Any]:
    if self.grant is None:
        kwargs |= {"grant": await _grant(self.kernel_id), "container": ContainerPlan("box:1")}
    return await _pre_launch(self, **kwargs)


async def _clean_up(self: AliquotProvisioner, restart: bool = False) -> None:
    await _cleanup(self, restart)
    client = None if restart else _clients.pop(self.kernel_id, None)
    if client is not None:
        await client.release(self.kernel_id)
        await client.close()


AliquotProvisioner.pre_launch = _launch_as_pod  # type: ignore[method-assign]
AliquotProvisioner.cleanup = _clean_up  # type: ignore[method-assign]
KernelManager.container_runtime = property(_runtime)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _pods_end_with_their_loop(jp_asyncio_loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    yield
    runtime = _runtimes.pop(jp_asyncio_loop, None)
    if runtime is not None:
        jp_asyncio_loop.run_until_complete(runtime.stop())
