"""The GPUs on which simulated jobs run: only counted, or the devices of nodes."""

from __future__ import annotations

from typing import Protocol

from jupyter_aliquot.gateway.planning.jobs import Job
from jupyter_aliquot.gateway.planning.node import Demand
from jupyter_aliquot.gateway.planning.node_pool import NodePool, Placed


class Pool(Protocol):
    """The GPUs of a cluster."""

    @property
    def milli(self) -> int:
        """Thousandths of a device, free or not."""
        ...

    @property
    def free_milli(self) -> int:
        """Free thousandths of a device."""
        ...

    def start(self, job: Job) -> bool:
        """Take GPUs for the job; return False if it fits nowhere."""
        ...

    def stop(self, job: Job) -> None:
        """Give its GPUs back."""
        ...

    def could_hold(self, job: Job) -> bool:
        """Return whether the job fits while no other runs."""
        ...


class CountedGpus:
    """GPUs without nodes: a job fits if enough are free in total."""

    def __init__(self, milli: int) -> None:
        self.milli = self.free_milli = milli

    def start(self, job: Job) -> bool:
        if job.milli > self.free_milli:
            return False
        self.free_milli -= job.milli
        return True

    def stop(self, job: Job) -> None:
        self.free_milli += job.milli

    def could_hold(self, job: Job) -> bool:
        return job.milli <= self.milli


class PlacedGpus:
    """The devices of nodes: a job gets parts of them as the pool's rule chooses."""

    def __init__(self, nodes: NodePool) -> None:
        self._nodes = nodes
        self._placed: dict[str, Placed] = {}

    @property
    def milli(self) -> int:
        return self._nodes.milli

    @property
    def free_milli(self) -> int:
        return self._nodes.free_milli

    def start(self, job: Job) -> bool:
        placed = self._nodes.place(Demand(job.milli))
        if placed is not None:
            self._placed[job.name] = placed
        return placed is not None

    def stop(self, job: Job) -> None:
        self._nodes.give_back(self._placed.pop(job.name))

    def could_hold(self, job: Job) -> bool:
        """Return whether it fits the empty cluster. Called before any job runs."""
        placed = self._nodes.place(Demand(job.milli))
        if placed is not None:
            self._nodes.give_back(placed)
        return placed is not None
