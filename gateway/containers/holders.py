"""The settings of the pods that hold GPUs of a Kubernetes cluster for Aliquot."""

from __future__ import annotations

from traitlets import Dict, Enum, Float, Int, TraitError, Unicode
from traitlets.config import Configurable

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.kubernetes.holding.holders import (
    HolderSettings,
    KaiQueueing,
    KueueQueueing,
    PlainQueueing,
    Pool,
    Queueing,
)


class HolderPods(Configurable):
    """The holders, each a pod with one whole GPU, where `c.Aliquot.runtime` is kubernetes."""

    most = Int(0, help="The largest number of GPUs that are held; 0: the gateway holds none.").tag(config=True)
    guaranteed = Int(1, help="GPUs that are held always.").tag(config=True)
    idle_seconds = Float(600.0, help="A GPU that is not needed is given back after so long.").tag(config=True)
    grace_seconds = Int(
        120, help="How long a holder that the cluster ends keeps its GPU, for kernels to leave it."
    ).tag(config=True)
    queueing = Enum(
        ("plain", "kueue", "kai"), "plain", help="The cluster's queue that takes the holders: none, Kueue or KAI."
    ).tag(config=True)
    queue = Unicode("aliquot", help="Name of that queue.").tag(config=True)
    priority_class = Unicode("", help="PriorityClass of the holders; with Kueue its WorkloadPriorityClass.").tag(
        config=True
    )
    device_class = Unicode(
        "", help="DeviceClass of a DRA driver, whose ResourceClaims hold the GPUs; empty: pods that request them do."
    ).tag(config=True)
    node_selector = Dict(help="Labels of the nodes whose GPUs are held.").tag(config=True)

    def settings(self, image: str) -> HolderSettings | None:
        """Return the values; None where the gateway holds no GPU. Raises TraitError."""
        if not self.most:
            return None
        is_kueue = self.queueing == "kueue"
        if is_kueue and self.device_class:
            raise TraitError(
                f"c.HolderPods.device_class is {self.device_class!r}, but Kueue admits no pod with a ResourceClaim of "
                "its own. Use c.HolderPods.queueing = 'plain' or 'kai', or leave device_class empty"
            )
        told: dict[str, Queueing] = {
            "plain": PlainQueueing(),
            "kueue": KueueQueueing(self.queue, self.priority_class),
            "kai": KaiQueueing(self.queue),
        }
        try:
            pool = Pool(
                "gpus",
                image,
                self.guaranteed,
                self.most,
                self.grace_seconds,
                dict(self.node_selector),
                "" if is_kueue else self.priority_class,
                self.device_class,
            )
        except RequestError as error:
            raise TraitError(f"c.HolderPods: {error}") from error
        return HolderSettings(pool, told[self.queueing], self.idle_seconds)
