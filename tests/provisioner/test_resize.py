"""A kernel's grant changes while it runs: for its restarts, and for programs that adopt it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.grants.codec import grant_record
from jupyter_aliquot.provisioner.relay.client.control import read_relay_record
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Quota


@pytest.fixture
def manager(a_node: Any, kernelspecs: Any) -> Iterator[KernelManager]:
    manager = KernelManager(kernel_name="light.gpu-0.5", kernel_spec_manager=kernelspecs)
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


def test_a_resized_kernel_keeps_its_new_grant_at_a_restart_and_for_who_adopts_it(manager: KernelManager) -> None:
    provisioner: Any = manager.provisioner
    old = provisioner.grant
    request = replace(old.request, gpus=GpuShare(25))
    quotas = tuple(Quota(q.uuid, q.index, GpuShare(25), Bytes(q.memory // 2)) for q in old.quotas)
    new = replace(old, request=request, quotas=quotas, generation=old.generation + 1)
    assert asyncio.run(provisioner.resize(new)) == ""
    manager.restart_kernel(now=True)
    assert provisioner.grant == new
    assert read_relay_record(provisioner._relay.record.folder).facts["grant"] == grant_record(new)
    info = asyncio.run(provisioner.get_provisioner_info())
    assert info["grant"] == grant_record(new)


def test_a_grant_of_another_kernel_is_refused(manager: KernelManager) -> None:
    provisioner: Any = manager.provisioner
    old = provisioner.grant
    with pytest.raises(RequestError, match="it holds no such grant"):
        asyncio.run(provisioner.resize(replace(old, kernel_id="another")))
    assert provisioner.grant == old
