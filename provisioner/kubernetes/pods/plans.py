"""From a kernel's start to the values of its pod: pure, but for the record of a relay that runs already."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_aliquot.provisioner.containers.plan import ContainerPlan, Pull
from jupyter_aliquot.provisioner.containers.spec import command_line
from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import CONNECTION_FILE, granted_environment
from jupyter_aliquot.provisioner.kubernetes.record import KernelRecord
from jupyter_aliquot.provisioner.kubernetes.settings import PodPlan, PodSettings, Volume
from jupyter_aliquot.provisioner.kubernetes.slugs import expanded
from jupyter_aliquot.provisioner.launch_spec import LIBRARIES
from jupyter_aliquot.provisioner.relay.wire.files import (
    UNSENT_BYTES,
    RelayRecord,
    UnreadableRecordError,
    UnsentBytes,
    read_relay_fields,
)
from jupyter_aliquot.provisioner.resources import Grant
from jupyter_aliquot.provisioner.runtime.base import Launch

_PULLS = {Pull.MISSING: "IfNotPresent", Pull.ALWAYS: "Always", Pull.NEVER: "Never"}


def pod_record(launch: Launch, gateway: str, created: float) -> KernelRecord:
    """Return the record of a start, for the kernel's pod. Raises LaunchError for a kernel without a grant."""
    grant, relay = launch.grant, launch.relay
    if grant is None or relay is None:
        raise LaunchError(
            f"Requested to start the kernel {launch.spec.kernel_id} as a pod, but it has no GPU: a grant tells the "
            "node of a kernel's pod. Choose a kernel with a size, such as python3.gpu-0.25"
        )
    facts = relay.facts
    return KernelRecord(
        kernel_id=launch.spec.kernel_id,
        owner=str(facts.get("owner") or grant.owner),
        gateway=gateway,
        request=grant.request,
        label=str(facts.get("label") or ""),
        kernelspec=str(facts.get("kernelspec") or ""),
        teams=frozenset(map(str, facts.get("teams") or ())),
        created=created,
        grant=grant,
    )


def pod_plan(launch: Launch, plan: ContainerPlan, grant: Grant, settings: PodSettings) -> PodPlan:
    """Return the plan of a kernel's pod.

    Raises LaunchError for folders of the gateway's machine, and for output without a bound.
    """
    if plan.mounts:
        raise LaunchError(
            f"Requested a pod with the folder {plan.mounts[0].source}, but folders of the gateway's machine are on no "
            "other node. Use c.KernelPods.volumes in place of c.SharedFolders"
        )
    relay = launch.relay
    own = "" if relay is None else str(relay.kernel_connection_file)
    words = command_line(launch.spec.argv, launch.spec.program, grant)
    argv = tuple(word.replace(own, CONNECTION_FILE) if own else word for word in words)
    uid, _, gid = plan.user.partition(":")
    home = expanded(settings.home, grant.owner, settings.slug_scheme)
    env = dict(plan.env)
    env.update(granted_environment(grant, plan.cuda_compat, env.get(LIBRARIES)))
    return PodPlan(
        image=plan.image,
        argv=argv,
        node=grant.node,
        uid=int(uid or settings.uid(grant.owner)),
        gid=int(gid or settings.gid(grant.owner)),
        fs_gid=settings.fs_gid(grant.owner),
        groups=settings.groups,
        env=tuple({"HOME": home, **env}.items()),
        cwd=plan.workdir or home,
        cpus=plan.limits.cpus,
        memory=plan.limits.memory,
        volumes=tuple(_expanded(volume, grant.owner, settings.slug_scheme) for volume in settings.volumes),
        grace_seconds=settings.grace_seconds,
        pull_policy=_PULLS[plan.pull],
        claims=settings.claims_of(grant),
        output_bytes=_output_bytes(relay),
    )


def relay_annotation(launch: Launch) -> str:
    """Return the request of a kernel's relay without its keys, for its pod. Raises LaunchError."""
    relay = launch.relay
    assert relay is not None  # pod_record refuses a start without one
    try:
        if launch.relay_request is not None:
            told = dict(vars(launch.relay_request))  # asdict copies each value, which takes milliseconds
        else:
            fields: dict[str, Any] = read_relay_fields(relay.folder)
            # The kernel's answers bear its prefix.
            told = {**fields["request"], "prefix": fields.get("prefix", "")}
        told |= {"key": "", "curve_secretkey": "", "facts": dict(relay.facts)}
        return json.dumps(told, separators=(",", ":"))
    except (OSError, UnreadableRecordError, KeyError, TypeError) as error:
        raise LaunchError(f"The relay of kernel {relay.kernel_id} has no readable record: {error!r}") from error


def _output_bytes(relay: RelayRecord | None) -> int:
    """Return the bound of a kernel's output that waits, as its relay was told. Raises LaunchError for none."""
    told = None if relay is None else relay.facts.get("unsent_bytes")
    bound = UnsentBytes(**told).kernel if isinstance(told, Mapping) else UNSENT_BYTES
    if not bound:
        raise LaunchError(
            "Requested a pod whose output may wait without a bound (c.Limits.unsent_output_bytes = 0), but it waits on "
            f"the disk of the pod's node. Set a bound, such as {UNSENT_BYTES}"
        )
    return bound


def _expanded(volume: Volume, owner: str, scheme: str) -> Volume:
    def fill(told: Any) -> Any:
        if isinstance(told, str):
            return expanded(told, owner, scheme)
        if isinstance(told, Mapping):
            return {key: fill(value) for key, value in told.items()}
        return [fill(one) for one in told] if isinstance(told, list) else told

    paths = {"mount_path": fill(volume.mount_path), "sub_path": fill(volume.sub_path)}
    return replace(volume, name=fill(volume.name), source=fill(volume.source), **paths)
