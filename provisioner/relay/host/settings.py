"""Options of a relay host."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.paths import RuntimeDir, find_runtime_dir
from jupyter_aliquot.provisioner.kernel_accounts import ACCOUNT_LIST
from jupyter_aliquot.provisioner.relay.store.spill_room import ROOTS_SPILL_DIR, choose_spill_dir


@dataclass(frozen=True)
class HostSettings:
    """One value for each option of ``aliquot relay``."""

    runtime: RuntimeDir
    spill_dir: Path
    exit_when_idle_seconds: float | None = None
    account: str = ""
    account_list: Path = ACCOUNT_LIST
    ends_with_parent: int | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the relay host, for its own command line and for ``aliquot relay``."""
    parser.add_argument("--runtime-dir", type=Path, help="folder of the relays' sockets (ALIQUOT_RUNTIME_DIR)")
    parser.add_argument(
        "--spill-dir",
        type=Path,
        help="folder for output that waits for a client (ALIQUOT_SPILL_DIR; one in /var/tmp, or with --account "
        f"{ROOTS_SPILL_DIR})",
    )
    parser.add_argument(
        "--exit-when-idle",
        type=_positive_float,
        metavar="SECONDS",
        help="end after so long without a relay and a connection",
    )
    parser.add_argument(
        "--account",
        default="",
        metavar="NAME",
        help="as root: serve the gateway of this account, and run each relay and kernel as the account that it names",
    )
    parser.add_argument(
        "--kernel-accounts",
        type=Path,
        default=ACCOUNT_LIST,
        metavar="FILE",
        help="with --account: root's list of the accounts that may have kernels (%(default)s)",
    )
    parser.add_argument(
        "--end-with-parent",
        type=int,
        metavar="PID",
        help="end when the process that started the host does, and wait for a host that runs here already",
    )


def read_arguments(arguments: Sequence[str] | None = None) -> HostSettings:
    """Parse a command line; ends the program with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(prog="aliquot relay", description="The relay host: one per machine.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    folder: Path | None = options.runtime_dir
    runtime = find_runtime_dir() if folder is None else RuntimeDir(Path(os.path.abspath(folder)))
    return HostSettings(
        runtime,
        choose_spill_dir(options.spill_dir, is_for_accounts=bool(options.account)),
        options.exit_when_idle,
        options.account,
        options.kernel_accounts,
        options.end_with_parent,
    )


def _positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use a number above 0")
    return value
