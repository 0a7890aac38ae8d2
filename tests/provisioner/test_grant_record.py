from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.grants.codec import (
    grant_record,
    parse_request,
    read_grant,
    read_request,
    request_record,
    stanza_request,
)
from jupyter_aliquot.provisioner.grants.gateway_client import error_record, read_error
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request, WorkloadClass

LOW = Request(GpuShare(250), Bytes(8 << 30), WorkloadClass.OPPORTUNISTIC)
GRANT = Grant(
    kernel_id="k1",
    owner="ada",
    request=LOW,
    node="n",
    quotas=(Quota("GPU-0", 0, GpuShare(100), Bytes(3 << 30)), Quota("GPU-1", 1, GpuShare(50), Bytes(1 << 30))),
    kernel_dir="/run/aliquot/kernels/k1",
    env=(("A", "1"), ("B", "2")),
    generation=3,
)


def test_a_grant_survives_json() -> None:
    assert read_grant(json.loads(json.dumps(grant_record(GRANT)))) == GRANT


@pytest.mark.parametrize("request_", [LOW, Request(GpuShare(25))])
def test_a_request_survives_json(request_: Request) -> None:
    assert read_request(json.loads(json.dumps(request_record(request_)))) == request_


@pytest.mark.parametrize("broken", [{}, {"kernel_id": "k1"}, {**grant_record(GRANT), "devices": [{}]}])
def test_a_broken_grant_is_a_protocol_error(broken: dict[str, Any]) -> None:
    with pytest.raises(errors.AgentProtocolError, match="cannot be read"):
        read_grant(broken)


@pytest.mark.parametrize(
    ("texts", "want_message"),
    [
        (("0",), "Requested 0 GPUs"),
        (("-1",), "0.01 or more"),
        (("0.125",), "steps of 0.01"),
        (("lots",), "which is not a number"),
        (("0.5", "much"), "not an amount of memory"),
        (("0.5", "0"), "as memory limit"),
        (("0.5", "", "urgent"), "urgent"),
    ],
)
def test_a_bad_stanza_says_what_is_wrong(texts: tuple[str, ...], want_message: str) -> None:
    with pytest.raises(errors.RequestError, match=want_message):
        parse_request(*texts)


@pytest.mark.parametrize("config", [None, [1], "0.5", {"gpus": 0}])
def test_a_stanza_of_another_shape_is_refused(config: Any) -> None:
    with pytest.raises(errors.RequestError):
        stanza_request({"kernel_provisioner": {"provisioner_name": "aliquot", "config": config}})


def test_only_our_own_stanza_with_a_size_is_a_request() -> None:
    config = {"gpus": "0.25", "memory_limit": "8GiB"}
    want_request = Request(GpuShare(25), Bytes(8 << 30))
    assert stanza_request({"kernel_provisioner": {"provisioner_name": "aliquot", "config": config}}) == want_request
    numbers = {"gpus": 0.25, "memory_limit": 8 << 30}
    assert stanza_request({"kernel_provisioner": {"provisioner_name": "aliquot", "config": numbers}}) == want_request
    assert stanza_request({}) is None
    assert stanza_request({"kernel_provisioner": {"provisioner_name": "other", "config": config}}) is None
    assert stanza_request({"kernel_provisioner": {"provisioner_name": "aliquot"}}) is None


@pytest.mark.parametrize(
    "error",
    [
        errors.RequestError("a"),
        errors.NeverFitsError("b"),
        errors.GrantError("c"),
        errors.QueueTimeoutError("d"),
        errors.WithdrawnError("e"),
        errors.LimitError("f"),
        errors.AgentUnavailableError("g"),
        errors.DeviceLostError("h"),
        errors.AgentError("i"),
    ],
)
def test_an_error_survives_the_local_socket(error: errors.AliquotError) -> None:
    read = read_error(json.loads(json.dumps(error_record(error))))
    assert (type(read), str(read)) == (type(error), str(error))


def test_a_narrower_error_goes_over_the_socket_as_the_nearest_that_has_a_code() -> None:
    assert error_record(errors.SizeNameError("x"))["code"] == "bad_request"
    assert error_record(errors.AgentProtocolError("x"))["code"] == "internal"
