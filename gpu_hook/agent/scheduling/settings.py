"""The agent's options for leases, and their values. Read once, like the other settings."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_aliquot.gpu_hook.agent.ledger.journal import RESIDENCY_MODES
from jupyter_aliquot.gpu_hook.placement.automatic import AUTO_MOST, Asked
from jupyter_aliquot.gpu_hook.placement.overcommit import MOST_RATIO

from .views import Policy

AUTO = "auto"
Ratio = float | str  # a number, or AUTO
# Options of one release ago, and their names now.
_RENAMED = {"--oversubscribe": "--overcommit", "--oversubscribe-opportunistic": "--overcommit-low"}


@dataclass(frozen=True)
class HostBudget:
    """Host memory for copies of swapped kernels: bytes, or a part of the machine's."""

    fraction: float = 0.5
    amount: int | None = None

    def __str__(self) -> str:
        return f"{self.fraction:.4%}".rstrip("0%").rstrip(".") + "%" if self.amount is None else str(self.amount)

    def bytes(self, machine_bytes: int) -> int:
        return int(machine_bytes * self.fraction) if self.amount is None else self.amount


@dataclass(frozen=True)
class LeaseSettings:
    """The lease options.

    ``ratio`` and ``low_ratio`` are the overcommit, by priority; ``low_ratio`` None: as for normal
    priority. ``residency`` is for a kernel that requests no mode.
    """

    ratio: Ratio = AUTO
    low_ratio: float | None = None
    host: HostBudget = field(default_factory=HostBudget)
    residency: str = "vmm"
    checkpoint_after_seconds: float | None = None
    policy: Policy = field(default_factory=Policy)

    @property
    def overcommit(self) -> Asked:
        return Asked(None if self.ratio == AUTO else float(self.ratio), self.low_ratio)


def add_lease_arguments(parser: argparse.ArgumentParser, parse_bytes: Callable[[str], int]) -> None:
    """Add the lease options. ``parse_bytes`` reads an amount of memory as the other options do."""

    def budget(text: str) -> HostBudget:
        if not text.endswith("%"):
            return HostBudget(amount=parse_bytes(text))
        return HostBudget(fraction=_number(text[:-1], 0, 100, text) / 100)

    parser.add_argument(
        "--overcommit",
        type=_ratio,
        default=LeaseSettings.ratio,
        metavar="auto|RATIO",
        help="how many times what a device has may be reserved of it; kernels then take turns. 1: not more; auto, the "
        f"default: as far as host memory can hold the copies, {AUTO_MOST:g} at most",
    )
    parser.add_argument(
        "--overcommit-low",
        type=_number_ratio,
        metavar="RATIO",
        help="the same for low-priority kernels, together with the others (default: as --overcommit)",
    )
    _add_renamed(parser)
    parser.add_argument(
        "--swap-memory",
        type=budget,
        default=HostBudget(),
        metavar="BYTES|PERCENT",
        help="host memory for copies of swapped kernels, as 64GiB or 40%% of the machine's (default 50%%)",
    )
    parser.add_argument(
        "--residency",
        choices=RESIDENCY_MODES,
        default=LeaseSettings.residency,
        help="how memory may leave the devices, of kernels that ask for nothing else (default vmm)",
    )
    _add_policy(parser)


def _add_renamed(parser: argparse.ArgumentParser) -> None:
    for before, now in _RENAMED.items():
        parser.add_argument(
            before,
            type=_number_ratio,
            dest=now.removeprefix("--").replace("-", "_"),
            default=argparse.SUPPRESS,
            action=_Renamed,
            help=argparse.SUPPRESS,
        )


def read_lease_settings(options: argparse.Namespace) -> LeaseSettings:
    return LeaseSettings(
        ratio=options.overcommit,
        low_ratio=options.overcommit_low,
        host=options.swap_memory,
        residency=options.residency,
        checkpoint_after_seconds=options.checkpoint_after,
        policy=Policy(
            hold_seconds=options.lease_hold,
            quantum_seconds=options.lease_quantum,
            patience_seconds=options.lease_patience,
            answer_seconds=options.lease_answer,
            silent_seconds=options.lease_silence,
        ),
    )


def _add_policy(parser: argparse.ArgumentParser) -> None:
    advanced = parser.add_argument_group("advanced: turns on a GPU")
    advanced.add_argument(
        "--checkpoint-after",
        type=_seconds,
        metavar="SECONDS",
        help="checkpoint kernels swapped out for so long, contexts and all; experimental (default: never)",
    )
    times = {
        "hold": (
            Policy.hold_seconds,
            "a kernel that was swapped in stays so long; a low-priority one leaves for normal priority at once",
        ),
        "quantum": (Policy.quantum_seconds, "a busy kernel's turn when an equal waits, at least 4 times its moves"),
        "patience": (Policy.patience_seconds, "after that, more than the guarantee is wanted as much as the guarantee"),
        "answer": (
            Policy.answer_seconds,
            "wait so long for a process that was told to move; then calls that need its room fail",
        ),
        "silence": (Policy.silent_seconds, "a cell that has made no GPU call for so long may be swapped out"),
    }
    for name, (seconds, text) in times.items():
        advanced.add_argument(
            f"--lease-{name}",
            type=_seconds,
            default=seconds,
            metavar="SECONDS",
            help=f"{text} (default {seconds:g})",
        )


class _Renamed(argparse.Action):
    """An option under its name of one release ago."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        before = str(option_string)
        told = f"{before} is now {_RENAMED[before]}; the next release does not know the old name"
        warnings.warn(told, FutureWarning, stacklevel=2)
        setattr(namespace, self.dest, values)


def _ratio(text: str) -> Ratio:
    return AUTO if text == AUTO else _number(text, 1, MOST_RATIO, text, f"{AUTO}, or ")


def _number_ratio(text: str) -> float:
    return _number(text, 1, MOST_RATIO, text)


def _seconds(text: str) -> float:
    return _number(text, 0, 86_400, text)


def _number(text: str, least: float, most: float, said: str, more: str = "") -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{said!r} is not valid. Use {more}a number from {least:g} to {most:g}")
    return value
