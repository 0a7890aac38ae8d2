"""The options by which an agent becomes a kubelet's device plugin. Pure."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass
from pathlib import Path

KERNEL_RESOURCE, GPU_RESOURCE = "aliquot.dev/kernel", "nvidia.com/gpu"
_RESOURCE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SLOTS, _MOST_SLOTS = 64, 256


@dataclass(frozen=True)
class KubeletSettings:
    """The kubelet of this node, and what the agent offers to it.

    ``folder`` is the kubelet's own, usually /var/lib/kubelet. ``slots`` is the largest number of
    kernel pods on the node. ``has_cdi``: the container runtime takes names of CDI devices. ``holds_softgpu``:
    a software GPU is used while a holder holds it alone, as a real one is. ``claims_driver``: holders hold
    GPUs by ResourceClaims of this DRA driver; empty: by ``gpu_resource``.
    """

    folder: Path
    slots: int = _SLOTS
    resource: str = KERNEL_RESOURCE
    gpu_resource: str = GPU_RESOURCE
    has_cdi: bool = False
    holds_softgpu: bool = False
    claims_driver: str = ""

    @property
    def plugins(self) -> Path:
        """Return the folder of the device plugins' sockets."""
        return self.folder / "device-plugins"

    @property
    def registration_socket(self) -> Path:
        return self.plugins / "kubelet.sock"

    @property
    def endpoint(self) -> str:
        """Return the name of our socket in that folder: another resource has another one."""
        return f"{self.resource.replace('/', '-')}.sock"

    @property
    def pod_resources_socket(self) -> Path:
        return self.folder / "pod-resources" / "kubelet.sock"


def add_kubelet_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options, for the agent's own command line and for ``aliquot agent``."""
    group = parser.add_argument_group("kernels in pods")
    group.add_argument(
        "--kubelet",
        type=Path,
        metavar="DIR",
        help="be a device plugin of the kubelet with this folder (usually /var/lib/kubelet), for kernels in pods",
    )
    group.add_argument(
        "--kernel-slots",
        type=_slots,
        default=_SLOTS,
        metavar="N",
        help=f"kernel pods that this node may have, with --kubelet (default {_SLOTS})",
    )
    group.add_argument(
        "--kernel-resource",
        type=_resource,
        default=KERNEL_RESOURCE,
        metavar="NAME",
        help=f"resource that kernel pods request, with --kubelet (default {KERNEL_RESOURCE})",
    )
    _add_holders_arguments(group)


def _add_holders_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--gpu-resource",
        type=_resource,
        default=GPU_RESOURCE,
        metavar="NAME",
        help=f"resource by which holder pods hold GPUs, with --kubelet (default {GPU_RESOURCE})",
    )
    group.add_argument(
        "--gpu-claims",
        default="",
        metavar="DRIVER",
        help="DRA driver by whose ResourceClaims holder pods hold GPUs, in place of --gpu-resource, such as "
        "gpu.nvidia.com",
    )
    group.add_argument(
        "--hold-softgpu",
        action="store_true",
        help="use a software GPU only while a holder pod holds it, with --kubelet (default: always)",
    )


def read_kubelet_arguments(options: argparse.Namespace) -> KubeletSettings | None:
    """Return the kubelet to serve; None for none."""
    if options.kubelet is None:
        return None
    return KubeletSettings(
        folder=Path(os.path.abspath(options.kubelet)),
        slots=options.kernel_slots,
        resource=options.kernel_resource,
        gpu_resource=options.gpu_resource,
        # Specs that the agent writes are of use only to a runtime that reads them.
        has_cdi=options.cdi_dir is not None,
        holds_softgpu=options.hold_softgpu,
        claims_driver=options.gpu_claims,
    )


def _slots(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_SLOTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use a whole number from 1 to {_MOST_SLOTS}")
    return int(text)


def _resource(text: str) -> str:
    if not _RESOURCE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no resource's name. Write it like {KERNEL_RESOURCE}")
    return text
