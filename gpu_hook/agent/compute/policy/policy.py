"""Every constant of our compute controller, with its unit and its reason. The administrator sets a few of them."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND

NEVER = 1 << 62  # nanoseconds: 146 years


@dataclass(frozen=True)
class Policy:
    """Times are nanoseconds unless a name says otherwise; rates are parts of time."""

    # What production may lose: wanted on average, and what people would notice in single steps.
    slowdown_target: float = 0.025
    noticed_delay: float = 0.03  # of one step; 5 % is the promise at p99, and a step's length is only estimated
    rare_steps: float = 0.005  # part of the steps that may be delayed by more than that: half of what p99 hides

    # Looks. 20 ms: some steps per budget of attribution, 0.1 % of a core. A pause of two of them is idleness.
    period: int = 20 * MILLISECOND
    quiet_period: int = 100 * MILLISECOND
    idle_after: int = 40 * MILLISECOND
    open_after: int = 25 * MILLISECOND  # in a pause longer than any usual one
    open_after_units: int = 4  # or so many times what would be in flight: the longer it is, the surer it has to be
    margin: int = 10 * MILLISECOND  # allowances reach so far beyond the next look, for an agent that comes late

    # AIMD of the delay that is allowed. A cut at most each `cut_pause`, for its effect shows after it. TCP halves
    # always; a little over the target is often chance, and half the delay would be half the harvest.
    least_rate: float = 0.002
    most_rate: float = 5.0  # of the target: forecasts see more delay than there is; what is measured decides
    rise: float = 0.02  # of the target, each period: from the floor to the target in a second
    cut: float = 0.5
    trim: float = 0.9
    far_over: float = 1.5  # times the target
    cut_pause: int = 200 * MILLISECOND
    slowdown_span: int = 1 * SECOND  # over which slow-down is averaged

    # Opportunistic work beside production that never pauses: so that nobody starves.
    floor: float = 0.001
    most_beside: int = 5 * MILLISECOND  # of work at once

    # Bursts. Short ones bound the delay; below 250 µs the hook's polling shows.
    least_burst: int = 250_000
    most_burst: int = 1000_000
    bursts_in_pause: int = 20  # or shorter ones
    poll: int = 400_000  # after which the hook sees that a burst ended
    most_in_flight: int = 16
    in_flight_time: int = 20 * MILLISECOND  # of work that equals keep in flight at most

    # What cannot be held: over twice the target at the floor for so long, or a launch longer than the target permits
    # each `bound_span`.
    patience: int = 3 * SECOND
    bound_span: int = 10 * SECOND

    # Solo windows: at most this part of what opportunistic kernels get.
    solo_cost: float = 0.015
    solo_length: int = 30 * MILLISECOND
    solo_longest: int = 200 * MILLISECOND
    solo_drain: int = 100 * MILLISECOND  # for the opportunistic work in flight to end
    baseline_age: int = 60 * SECOND

    def floor_interval(self, length: int) -> int:
        """How far apart pieces of work of this length are at the floor; without a floor they never come."""
        return int(min(length / self.floor, NEVER)) if self.floor > 0 else NEVER
