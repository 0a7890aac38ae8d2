"""The agent's options for swapping, and their values. Read once, like the other settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.host_copies.segments import PIECE_BYTES
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import ResidencyPlan
from jupyter_aliquot.gpu_hook.protocol.codec import ResidencyMode

_LARGEST_COUNT = 64


@dataclass(frozen=True)
class SwapSettings:
    """The swap options.

    ``drain_milliseconds`` is how long a swap-out waits for running work on the devices.
    ``patience_seconds`` is how long a process may take to begin, and to answer beside that and the
    time for its bytes.
    """

    spill_dir: Path | None = None
    segment_bytes: int = 1 << 30
    drain_milliseconds: int = 2000
    ring_bytes: int = 128 << 20
    copy_threads: int = 2
    copy_streams: int = 2
    chunk_bytes: int = 64 << 20
    least_swappable_bytes: int = 1 << 20
    patience_seconds: float = 5.0

    def plan(self, mode: ResidencyMode) -> ResidencyPlan:
        """Return the plan for the processes of a kernel in this mode."""
        return ResidencyPlan(
            mode=mode,
            least_swappable_bytes=self.least_swappable_bytes,
            chunk_bytes=self.chunk_bytes,
            ring_bytes=self.ring_bytes,
            copy_threads=self.copy_threads,
            copy_streams=self.copy_streams,
        )


def add_swap_arguments(parser: argparse.ArgumentParser, parse_bytes: Callable[[str], int]) -> None:
    """Add the swap options. ``parse_bytes`` reads an amount of memory as the other options do."""

    def pieces(text: str) -> int:
        amount = parse_bytes(text)
        if amount % PIECE_BYTES:
            raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use a multiple of 2MiB")
        return amount

    parser.add_argument(
        "--swap-spill-dir",
        type=Path,
        metavar="DIR",
        help="when host memory for swapped kernels is used up, copy into private files here (default: refuse the swap)",
    )
    advanced = parser.add_argument_group("advanced: copies in host memory")
    sizes = {
        "segment": (pieces, "largest piece of host memory for a swapped kernel, a multiple of 2MiB (default 1GiB)"),
        "ring": (pieces, "page-locked memory through which each process copies, a multiple of 2MiB (default 128MiB)"),
        "chunk": (pieces, "largest piece of device memory behind a swappable allocation (default 64MiB)"),
        "least": (parse_bytes, "smaller allocations are never swapped (default 1MiB)"),
    }
    for name, (read, text) in sizes.items():
        advanced.add_argument(f"--swap-{name}", type=read, metavar="BYTES", help=text)
    counts = {
        "threads": "threads of each process between that ring and host memory (default 2)",
        "streams": "streams of each process and device while it copies (default 2)",
    }
    for name, text in counts.items():
        advanced.add_argument(f"--swap-{name}", type=_count, metavar="N", help=text)
    advanced.add_argument(
        "--swap-drain",
        type=_milliseconds,
        metavar="MILLISECONDS",
        help="how long a swap-out waits for what runs on the devices before it gives up (default 2000)",
    )


def read_swap_settings(options: argparse.Namespace, spill_dir: Path | None) -> SwapSettings:
    """Return the settings; options that are not given keep their defaults."""
    said = {
        "segment_bytes": options.swap_segment,
        "drain_milliseconds": options.swap_drain,
        "ring_bytes": options.swap_ring,
        "copy_threads": options.swap_threads,
        "copy_streams": options.swap_streams,
        "chunk_bytes": options.swap_chunk,
        "least_swappable_bytes": options.swap_least,
    }
    return SwapSettings(spill_dir=spill_dir, **{name: value for name, value in said.items() if value is not None})


def _milliseconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 600_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use a whole number of milliseconds from 1 to 600000")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use a whole number from 1 to {_LARGEST_COUNT}")
    return int(text)
