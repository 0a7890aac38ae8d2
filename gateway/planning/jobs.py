"""A job as a queue order sees it, and its progress. Values and arithmetic; no clock, no I/O.

A job is anything that wants GPUs for some time: a kernel, or a training job of a trace. GPU amounts
are thousandths of a device (``milli``), as in Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DEVICE = 1000  # thousandths of one device


@dataclass(frozen=True)
class Job:
    """A request for GPUs and the work that it has to do.

    Args:
        name: unique in its trace.
        milli: GPUs in thousandths of a device: 250 is a quarter of one, 2500 two and a half.
        submit: time of submission, seconds.
        seconds: running time on its GPUs, if nothing interrupts it.
        team: the team whose quota it uses.
        start_overhead: seconds that a start takes before the work goes on.
    """

    name: str
    milli: int
    submit: float
    seconds: float
    team: str = ""
    start_overhead: float = 0.0

    @property
    def gpus(self) -> float:
        """GPUs, as a number of devices."""
        return self.milli / DEVICE

    @property
    def whole_devices(self) -> int:
        """Devices that it takes whole."""
        return self.milli // DEVICE

    @property
    def shared_part(self) -> int:
        """Thousandths of the one device that it shares; 0 for none."""
        return self.milli % DEVICE


@dataclass(eq=False)
class Progress:
    """A job that was submitted and has not ended. The owner of the clock alone writes it.

    ``attained`` is its running time in seconds, ``left`` what remains of its work. ``level`` is its
    queue in a multi-level order. ``order`` is its place by submission.
    """

    job: Job
    order: int
    left: float = field(init=False)
    attained: float = 0.0
    level: int = 0
    is_running: bool = False
    # When it last started or stopped to run; its submission before that.
    changed_at: float = field(init=False)
    first_start: float | None = None
    # Of the job; kept here since an order reads them at each event.
    gpus: float = field(init=False)
    milli: int = field(init=False)

    def __post_init__(self) -> None:
        self.gpus, self.milli = self.job.gpus, self.job.milli
        self.left = self.job.seconds
        self.changed_at = self.job.submit

    @property
    def attained_service(self) -> float:
        """GPU-seconds used."""
        return self.attained * self.gpus
