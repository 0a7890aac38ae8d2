"""A Grant and a Request as JSON, and back: the form that the agent answers and that a provisioner's record keeps.

Refuses what it cannot read with AgentProtocolError; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import AgentProtocolError, RequestError
from .resources import Bytes, GpuShare, Grant, Quota, Request, WorkloadClass


def request_record(request: Request) -> dict[str, Any]:
    """The request's part of ``reserve`` and of a grant."""
    return {
        "hundredths": request.gpus.hundredths,
        "memory_limit": None if request.memory_limit is None else int(request.memory_limit),
        "workload_class": request.workload_class.value,
    }


def read_request(record: Mapping[str, Any]) -> Request:
    """The inverse of request_record. Raises RequestError."""
    try:
        limit = record.get("memory_limit")
        return Request(
            gpus=GpuShare(int(record["hundredths"])),
            memory_limit=None if limit is None else Bytes(limit),
            workload_class=WorkloadClass(record.get("workload_class", WorkloadClass.PRODUCTION.value)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"the request cannot be read: {error!r} in {dict(record)!r}") from error


def parse_request(gpus: str, memory_limit: str = "", workload_class: str = "") -> Request:
    """The request that a kernelspec's provisioner stanza writes as text. Raises RequestError."""
    try:
        share = GpuShare.parse(gpus)
        if share.hundredths == 0:
            raise ValueError("asked 0 GPUs; a share is 0.01 or more, and a kernel without a GPU has no size")
        limit = Bytes.parse(memory_limit) if memory_limit else None
        if limit is not None and limit <= 0:
            raise ValueError(f"asked {memory_limit!r} as memory limit; leave it out for the share's part")
        return Request(share, limit, WorkloadClass(workload_class or WorkloadClass.PRODUCTION.value))
    except ValueError as error:
        raise RequestError(str(error)) from error


def grant_record(grant: Grant) -> dict[str, Any]:
    """A JSON-safe record of the grant, in the agent's own form."""
    return {
        "kernel_id": grant.kernel_id,
        "owner": grant.owner,
        "generation": grant.generation,
        "node": grant.node,
        **request_record(grant.request),
        "devices": [
            {
                "uuid": quota.uuid,
                "index": quota.index,
                "hundredths": quota.share.hundredths,
                "quota_bytes": int(quota.memory),
            }
            for quota in grant.quotas
        ],
        "kernel_dir": grant.kernel_dir,
        "env": dict(grant.env),
    }


def read_grant(record: Mapping[str, Any]) -> Grant:
    """The inverse of grant_record. Raises AgentProtocolError."""
    try:
        return Grant(
            kernel_id=str(record["kernel_id"]),
            owner=str(record["owner"]),
            request=read_request(record),
            node=str(record["node"]),
            quotas=tuple(
                Quota(
                    uuid=str(device["uuid"]),
                    index=int(device["index"]),
                    share=GpuShare(int(device["hundredths"])),
                    memory=Bytes(device["quota_bytes"]),
                )
                for device in record["devices"]
            ),
            kernel_dir=str(record["kernel_dir"]),
            env=tuple(sorted((str(name), str(value)) for name, value in record["env"].items())),
            generation=int(record["generation"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RequestError) as error:
        raise AgentProtocolError(f"a grant cannot be read: {error!r}; agent and gateway of one version?") from error
