"""The relay of a pod's kernel starts while the pod does: a failure of either leaves nothing of both."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_double.store import Failure
from jupyter_client.manager import AsyncKernelManager

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.kubernetes.pods.plans import relay_annotation
from jupyter_aliquot.provisioner.launch_spec import LaunchSpec
from jupyter_aliquot.provisioner.relay.client.kernel_relay import KernelRelay, RelayOptions
from jupyter_aliquot.provisioner.relay.wire.files import read_relay_fields
from jupyter_aliquot.provisioner.runtime.base import Launch

from .conftest import until
from .test_pod_runtime import SECRETS, Place, Scene, play

__all__ = ["play"]

OPTIONS = RelayOptions(gateway="g", has_sidecar=True, facts={"owner": "zoë", "teams": ["ml"]})


@pytest.fixture
def a_runtime() -> Iterator[RuntimeDir]:
    folder = Path(tempfile.mkdtemp(prefix="aqb-"))  # short: paths of sockets are
    yield RuntimeDir(folder)
    shutil.rmtree(folder, ignore_errors=True)


def begin(runtime: RuntimeDir, manager: AsyncKernelManager) -> KernelRelay:
    return KernelRelay.begin(manager, runtime, "k1", OPTIONS, logging.getLogger("test"))


def test_a_relay_that_starts_is_the_one_that_was_told(a_runtime: RuntimeDir) -> None:
    async def scene() -> None:
        manager = AsyncKernelManager()
        relay = begin(a_runtime, manager)
        expected, told = relay.record, json.loads(relay_annotation(_launch(relay)))
        assert not relay.is_alive()
        assert manager.transport == "ipc", "the kernel's connection file is written meanwhile"
        await relay.until_there(manager)
        await relay.until_there(manager)
        assert relay.is_alive()
        assert dict(relay.record.front) == dict(expected.front)
        assert dict(relay.record.facts) == dict(expected.facts)
        fields = read_relay_fields(relay.record.folder)
        assert told["prefix"] == fields["prefix"], "a later gateway's relay answers by it"
        assert told == {**fields["request"], "key": "", "facts": dict(relay.record.facts)}
        assert told == json.loads(relay_annotation(replace(_launch(relay), relay_request=None)))
        await relay.stop()
        assert not relay.record.folder.exists()

    asyncio.run(scene())


def test_a_relay_that_is_stopped_while_it_starts_leaves_nothing(a_runtime: RuntimeDir) -> None:
    async def scene() -> None:
        relay = begin(a_runtime, AsyncKernelManager())
        await relay.stop()
        assert not relay.record.folder.exists()

    asyncio.run(scene())


def test_a_relay_that_does_not_start_is_told(a_runtime: RuntimeDir) -> None:
    async def scene() -> None:
        manager = AsyncKernelManager()
        first = begin(a_runtime, manager)
        await first.until_there(manager)
        second = begin(a_runtime, manager)
        with pytest.raises(LaunchError, match="did not start: kernel k1 has a relay already"):
            await second.until_there(manager)
        await second.stop()
        assert first.is_alive(), "it is not the other's"
        await first.stop()

    asyncio.run(scene())


def test_no_pod_is_left_without_its_relay(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        async def fail() -> None:
            assert place.is_there()
            raise LaunchError("the relay did not start")

        with pytest.raises(LaunchError, match="the relay did not start"):
            await place.runtime.create(replace(place.launch(), until_relay=fail))
        await until(lambda: not place.is_there())
        assert place.double.store.list(SECRETS, "default")[0] == []

    play(scene)


def test_a_refused_pod_does_not_wait_for_its_relay(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        def refuse(resource: str, _told: dict[str, Any]) -> None:
            if resource == "pods":
                raise Failure(403, "Forbidden", "exceeded quota: rq")

        place.double.store.admission.append(refuse)
        with pytest.raises(LaunchError, match="quota has no room"):
            await place.runtime.create(replace(place.launch(), until_relay=asyncio.Event().wait))
        assert not place.is_there()

    play(scene)


def _launch(relay: KernelRelay) -> Launch:
    return Launch(LaunchSpec("k1", ("python",), ()), relay=relay.record, relay_request=relay.request)
