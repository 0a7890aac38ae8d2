"""Every constant of our compute controller, with its unit and its reason.

The administrator sets a few of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND

NEVER = 1 << 62  # nanoseconds: 146 years


@dataclass(frozen=True)
class Policy:
    """Times are nanoseconds unless a name says otherwise; rates are parts of time."""

    # The limits of production's delay: on average, and in single steps, which users would notice. We
    # promise 5 % at p50 and at p99, and a step's length and a launch's are only estimated.
    slowdown_target: float = 0.0375
    noticed_delay: float = 0.03  # of one step
    # Share of the steps that may be delayed by more than that, by the forecast, which takes long
    # launches for usual ones: half of what p99 hides, or one step each three seconds where that is
    # more. A delay of milliseconds that comes more often is noticed among short steps.
    rare_steps: float = 0.005
    rare_span: int = 3 * SECOND
    most_rare_steps: float = 0.05

    # Samples. 20 ms: some steps per budget of attribution, 0.1 % of a core. A pause of two of them
    # is idleness.
    period: int = 20 * MILLISECOND
    quiet_period: int = 100 * MILLISECOND
    idle_after: int = 40 * MILLISECOND
    open_after: int = 25 * MILLISECOND  # in a pause that is longer than any usual one
    # or so many times the work in flight: the longer that is, the surer the forecast has to be
    open_after_units: int = 4
    margin: int = 10 * MILLISECOND  # allowances reach so far beyond the next sample, in case the agent is late

    # AIMD of the permitted delay. At most one cut each `cut_pause`, since its effect shows after
    # it. TCP always halves; here a little over the target is often chance, and half the delay would
    # be half the harvest.
    least_rate: float = 0.002
    # of the target: forecasts predict more delay than occurs; the measured delay decides
    most_rate: float = 5.0
    rise: float = 0.02  # of the target, each period: from the floor to the target in a second
    cut: float = 0.5
    trim: float = 0.9
    far_over: float = 1.5  # times the target
    cut_pause: int = 200 * MILLISECOND
    slowdown_span: int = 1 * SECOND  # over which the slowdown is averaged

    # Opportunistic work beside production that never pauses, so that no kernel starves.
    floor: float = 0.001
    most_beside: int = 20 * MILLISECOND  # of work at once

    # Batches. Short ones bound the delay; below 250 µs the hook's polling shows.
    least_batch: int = 250_000
    most_batch: int = 1000_000
    batches_in_pause: int = 20  # or shorter ones
    poll: int = 400_000  # after which the hook notices that a batch ended
    most_in_flight: int = 16
    # of work that kernels of the same class keep in flight at most
    in_flight_time: int = 20 * MILLISECOND

    # When a kernel cannot be held back: over twice the target at the floor for so long, or a launch
    # longer than the target permits each `bound_span`.
    patience: int = 3 * SECOND
    bound_span: int = 10 * SECOND

    # Solo windows: at most this part of the opportunistic kernels' time.
    solo_cost: float = 0.015
    solo_length: int = 30 * MILLISECOND
    solo_longest: int = 200 * MILLISECOND
    solo_drain: int = 100 * MILLISECOND  # for the opportunistic work in flight to end
    baseline_age: int = 60 * SECOND

    def rare(self, step: int) -> float:
        """Return the share of steps of this length that may be delayed noticeably."""
        return max(self.rare_steps, min(self.most_rare_steps, step / self.rare_span))

    def floor_interval(self, length: int) -> int:
        """Return the time between two pieces of work of this length at the floor.

        Without a floor, such work never runs.
        """
        return int(min(length / self.floor, NEVER)) if self.floor > 0 else NEVER
