"""Our messages of the kubelet's services are those that protoc makes of the services' definitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from node_double.kubelet import stubs

from jupyter_aliquot.gpu_hook.agent.kubelet import messages as ours
from jupyter_aliquot.gpu_hook.agent.kubelet.wire import WireError, decode, encode

TEXTS = st.text(max_size=200)
WORDS = st.dictionaries(TEXTS, TEXTS, max_size=4)


def listed(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=4).map(tuple)


RESPONSES = st.builds(
    ours.ContainerAllocateResponse,
    envs=WORDS,
    mounts=listed(st.builds(ours.Mount, TEXTS, TEXTS, st.booleans())),
    devices=listed(st.builds(ours.DeviceSpec, TEXTS, TEXTS, TEXTS)),
    annotations=WORDS,
    cdi_devices=listed(st.builds(ours.CdiDevice, TEXTS)),
)


@given(RESPONSES)
def test_allocation_is_read_by_protobuf_as_it_was_meant(want: ours.ContainerAllocateResponse) -> None:
    theirs = stubs()[0].AllocateResponse.FromString(encode(ours.AllocateResponse((want,)))).container_responses[0]

    assert dict(theirs.envs) == want.envs
    assert [(one.container_path, one.host_path, one.read_only) for one in theirs.mounts] == [
        (one.container_path, one.host_path, one.read_only) for one in want.mounts
    ]
    assert [(one.container_path, one.host_path, one.permissions) for one in theirs.devices] == [
        (one.container_path, one.host_path, one.permissions) for one in want.devices
    ]
    assert dict(theirs.annotations) == want.annotations
    assert [one.name for one in theirs.cdi_devices] == [one.name for one in want.cdi_devices]


@given(RESPONSES)
def test_what_is_encoded_is_decoded_to_the_same(want: ours.ContainerAllocateResponse) -> None:
    assert decode(ours.ContainerAllocateResponse, encode(want)) == want


@given(listed(TEXTS), st.text(max_size=300), st.integers(-(1 << 63), (1 << 63) - 1))
def test_protobufs_answer_is_read_and_other_fields_are_skipped(devices: tuple[str, ...], name: str, cpu: int) -> None:
    answer = stubs()[2].ListPodResourcesResponse()
    container = answer.pod_resources.add(name=name, namespace="notebooks").containers.add(name="kernel", cpu_ids=[cpu])
    container.devices.add(resource_name="aliquot.dev/kernel", device_ids=devices)

    want = ours.ContainerResources("kernel", (ours.ContainerDevices("aliquot.dev/kernel", devices),))
    found = decode(ours.ListPodResourcesResponse, answer.SerializeToString())
    assert found == ours.ListPodResourcesResponse((ours.PodResources(name, "notebooks", (want,)),))


def test_registration_and_devices_are_read_by_protobuf() -> None:
    messages = stubs()[0]
    request = messages.RegisterRequest.FromString(
        encode(ours.RegisterRequest("v1beta1", "a.sock", "aliquot.dev/kernel"))
    )
    listing = ours.ListAndWatchResponse((ours.Device("slot-0", "Healthy"), ours.Device("slot-1", "Unhealthy")))
    devices = messages.ListAndWatchResponse.FromString(encode(listing)).devices

    assert (request.version, request.endpoint, request.resource_name) == ("v1beta1", "a.sock", "aliquot.dev/kernel")
    assert [(one.ID, one.health) for one in devices] == [("slot-0", "Healthy"), ("slot-1", "Unhealthy")]


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_an_error_of_ours(data: bytes) -> None:
    try:
        decode(ours.ListPodResourcesResponse, data)
    except WireError:
        return


@pytest.mark.parametrize("data", [b"\x0a\x05abc", b"\x0a", b"\xff" * 11, b"\x0b", b"\x08\x01", b"\x0a\x02\x0a\xff"])
def test_broken_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(ours.ListPodResourcesResponse, data)
