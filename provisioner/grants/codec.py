"""Write a Grant and a Request as JSON, and read them again.

The agent answers in this form, and a provisioner keeps its record in it. Unreadable JSON raises
AgentProtocolError; the module decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_aliquot.gpu_hook.client.client import KernelGrant
from jupyter_aliquot.provisioner.errors import AgentProtocolError, RequestError
from jupyter_aliquot.provisioner.resources import (
    Bytes,
    GpuShare,
    Grant,
    HostPart,
    Quota,
    Request,
    WorkloadClass,
)

PROVISIONER_NAME = "aliquot"
RESIDENCY_MODES = ("vmm", "managed", "off")
_MOST_CPUS = 100_000.0
_MOST_MEMORY = Bytes(100_000 << 30)  # a kernelspec's name has at most five digits of GiB
NO_FOLDER = "none"  # in the place of folders' names: the kernel sees no shared folder


def request_record(request: Request) -> dict[str, Any]:
    """Return the request's part of ``reserve`` and of a grant."""
    return {
        "hundredths": request.gpus.hundredths,
        "memory_limit": None if request.memory_limit is None else int(request.memory_limit),
        "workload_class": request.workload_class.value,
        "residency": request.residency,
    }


def read_request(record: Mapping[str, Any]) -> Request:
    """Return the request in a record, the inverse of request_record. Raises RequestError."""
    try:
        limit = record.get("memory_limit")
        return Request(
            gpus=GpuShare(int(record["hundredths"])),
            memory_limit=None if limit is None else Bytes(limit),
            workload_class=WorkloadClass(record.get("workload_class", WorkloadClass.PRODUCTION.value)),
            residency=_residency(str(record.get("residency") or "")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"the request cannot be read: {error!r} in {dict(record)!r}") from error


def parse_request(gpus: str, memory_limit: str = "", priority: str = "", residency: str = "") -> Request:
    """Return the request that a kernelspec's provisioner stanza writes as text.

    Raises RequestError.
    """
    try:
        share = GpuShare.parse(gpus)
        if share.hundredths == 0:
            raise ValueError(
                "Requested 0 GPUs, but a size is 0.01 or more, and a kernel without a GPU has no size. "
                "Use the plain kernelspec instead"
            )
        limit = Bytes.parse(memory_limit) if memory_limit else None
        if limit is not None and limit <= 0:
            raise ValueError(
                f"Requested {memory_limit!r} as memory limit, which is not above 0. Leave it out for the size's part"
            )
        workload_class = WorkloadClass.of_priority(priority) if priority else WorkloadClass.PRODUCTION
        return Request(share, limit, workload_class, _residency(residency))
    except ValueError as error:
        raise RequestError(str(error)) from error


def _residency(mode: str) -> str:
    if mode and mode not in RESIDENCY_MODES:
        raise ValueError(f"The residency {mode!r} does not exist. Use one of {', '.join(RESIDENCY_MODES)}")
    return mode


def stanza_request(metadata: Mapping[str, Any]) -> Request | None:
    """Return the request in a kernelspec's metadata; None for a kernelspec without a size.

    Raises RequestError.
    """
    gpus, *rest = _stanza_texts(metadata, "gpus", "memory_limit", "priority", "residency")
    return parse_request(gpus, *rest) if gpus else None


def stanza_host_part(metadata: Mapping[str, Any]) -> HostPart:
    """Return the part of the host that a kernelspec's metadata request. Raises RequestError."""
    return parse_host_part(*_stanza_texts(metadata, "cpus", "ram", "folders"))


def parse_host_part(cpus: str = "", ram: str = "", folders: str = "") -> HostPart:
    """Return the part of the host that a provisioner stanza writes as text. Raises RequestError.

    *folders* are names with commas between them, or ``none``.
    """
    try:
        number = float(cpus) if cpus else None
        if number is not None and not 0.01 <= number < _MOST_CPUS:
            raise ValueError(f"Requested {cpus} CPUs. Choose 0.01 or more")
        memory = Bytes.parse(ram) if ram else None
        if memory is not None and memory <= 0:
            raise ValueError(
                f"Requested {ram!r} as host memory, which is not above 0. Leave it out for the size's part"
            )
        if memory is not None and memory >= _MOST_MEMORY:
            raise ValueError(f"Requested {ram[:40]!r} as host memory. Choose less than {_MOST_MEMORY}")
    except ValueError as error:
        raise RequestError(f"cpus and ram of the kernelspec cannot be read: {error}") from error
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in folders.split(",")))))
    return HostPart(number, memory, (() if names == (NO_FOLDER,) else names) if names else None)


def _stanza_texts(metadata: Mapping[str, Any], *names: str) -> list[str]:
    """Return these fields of a kernelspec's stanza as text, empty for those it lacks. Raises RequestError."""
    stanza = metadata.get("kernel_provisioner")
    if not isinstance(stanza, Mapping) or stanza.get("provisioner_name") != PROVISIONER_NAME:
        return [""] * len(names)
    config = stanza.get("config", {})
    if not isinstance(config, Mapping):
        raise RequestError(
            f"kernel_provisioner in kernel.json has config = {config!r}, which is not an object. Write an object"
        )
    given = (config.get(name) for name in names)
    return ["" if value is None else str(value) for value in given]


def agent_grant(answer: KernelGrant, residency: str = "") -> Grant:
    """Return the agent's answer as a Grant.

    ``residency`` is the requested one, which the agent does not repeat.
    """
    return Grant(
        kernel_id=answer.kernel_id,
        owner=answer.owner,
        request=Request(
            gpus=GpuShare(answer.hundredths),
            memory_limit=None if answer.memory_limit is None else Bytes(answer.memory_limit),
            workload_class=WorkloadClass(answer.workload_class),
            residency=residency,
        ),
        node=answer.node,
        quotas=tuple(
            Quota(
                device.uuid,
                device.index,
                GpuShare(device.hundredths),
                Bytes(device.quota_bytes),
                None if device.guarantee_bytes is None else Bytes(device.guarantee_bytes),
            )
            for device in answer.devices
        ),
        kernel_dir=answer.kernel_dir,
        env=tuple(sorted(answer.env)),
        generation=answer.generation,
    )


def grant_record(grant: Grant) -> dict[str, Any]:
    """Return a JSON-safe record of the grant, in the agent's own form."""
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
                "guarantee_bytes": None if quota.guarantee is None else int(quota.guarantee),
            }
            for quota in grant.quotas
        ],
        "kernel_dir": grant.kernel_dir,
        "env": dict(grant.env),
    }


def read_grant(record: Mapping[str, Any]) -> Grant:
    """Return the grant in a record, the inverse of grant_record. Raises AgentProtocolError."""
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
                    guarantee=None if device.get("guarantee_bytes") is None else Bytes(device["guarantee_bytes"]),
                )
                for device in record["devices"]
            ),
            kernel_dir=str(record["kernel_dir"]),
            env=tuple(sorted((str(name), str(value)) for name, value in record["env"].items())),
            generation=int(record["generation"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RequestError) as error:
        raise AgentProtocolError(f"a grant cannot be read: {error!r}; agent and gateway of one version?") from error
