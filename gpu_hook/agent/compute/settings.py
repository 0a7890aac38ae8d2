"""The agent's options for compute, and their values. Read once, like the other settings."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND

from .controllers import CONTROLLERS
from .policy.policy import Policy

CAPS = ("none", "opportunistic", "all")
LEAST_PERIOD, MOST_PERIOD = 5, 1000  # milliseconds


@dataclass(frozen=True)
class ComputeSettings:
    """The compute options.

    ``slowdown_target`` and ``floor`` are parts of time; ``cap`` names the classes whose share is a
    limit, too.
    """

    control: str = "measured"
    cap: str = "none"
    slowdown_target: float = Policy.slowdown_target
    floor: float = 0.001
    period: int = 20 * MILLISECOND

    def caps(self, is_production: bool) -> bool:
        """Return whether a kernel of this class gets no more than its share, even alone."""
        return self.cap == "all" or (self.cap == "opportunistic" and not is_production)


def add_compute_arguments(parser: argparse.ArgumentParser) -> None:
    default = ComputeSettings()
    parser.add_argument(
        "--compute-control",
        choices=tuple(CONTROLLERS),
        default=default.control,
        help="what decides how much each kernel runs on a shared device; none leaves it to the driver's time slices "
        f"(default {default.control})",
    )
    parser.add_argument(
        "--compute-cap",
        choices=CAPS,
        default=default.cap,
        help=(
            "whose share of a device is a hard limit, even where no other kernel wants the rest; opportunistic: of "
            "low-priority kernels (default none)"
        ),
    )
    _add_advanced(parser, default)


def _add_advanced(parser: argparse.ArgumentParser, default: ComputeSettings) -> None:
    advanced = parser.add_argument_group("advanced: GPU time")
    advanced.add_argument(
        "--slowdown-target",
        type=_percent(0.1, 50),
        default=default.slowdown_target,
        metavar="PERCENT",
        help="how much slower normal-priority work may become for low-priority work "
        f"(default {100 * default.slowdown_target:g})",
    )
    advanced.add_argument(
        "--compute-floor",
        type=_percent(0, 50),
        default=default.floor,
        metavar="PERCENT",
        help="of a device, for low-priority kernels while normal-priority work never pauses: so that no "
        f"kernel starves (default {100 * default.floor:g})",
    )
    advanced.add_argument(
        "--compute-period",
        type=_milliseconds,
        default=default.period,
        metavar="MILLISECONDS",
        help=f"how often a shared device that is in use is looked at (default {default.period // MILLISECOND})",
    )


def read_compute_settings(options: argparse.Namespace) -> ComputeSettings:
    return ComputeSettings(
        options.compute_control,
        options.compute_cap,
        options.slowdown_target,
        options.compute_floor,
        options.compute_period,
    )


def _percent(least: float, most: float) -> _Percent:
    return _Percent(least, most)


class _Percent:
    """Parses a percentage. Called by argparse; the value is a part of 1."""

    def __init__(self, least: float, most: float) -> None:
        self._range = least, most

    def __call__(self, text: str) -> float:
        least, most = self._range
        try:
            value = float(text.removesuffix("%"))
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use {least:g} to {most:g} percent")
        return value / 100


def _milliseconds(text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not LEAST_PERIOD <= value <= MOST_PERIOD:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use {LEAST_PERIOD} to {MOST_PERIOD} milliseconds")
    return int(value * MILLISECOND)
