"""The format of every benchmark's report: one table, one JSON file under build/bench.

The module owns the format and measures nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Row:
    """One measured number.

    ``want`` is the bound ("" for a number that is only shown); ``holds`` is None then.
    """

    name: str
    value: float
    unit: str
    want: str = ""
    holds: bool | None = None


def read_arguments(parser: argparse.ArgumentParser, smoke: Mapping[str, object]) -> argparse.Namespace:
    """Parse the command line, with ``--smoke`` and ``--out`` added to what *parser* knows.

    Args:
        parser: the benchmark's own options.
        smoke: the defaults of those options in a smoke run; options on the command line still win.

    The software GPU's contexts cost nothing in a benchmark, unless the environment says otherwise: a thousand kernels
    fit on a few devices.
    """
    os.environ.setdefault("ALIQUOT_SOFTGPU_CONTEXT", "0")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder for the results")
    parser.add_argument(
        "--smoke", action="store_true", help="run every part for seconds; write rows, judge no bound: no measurement"
    )
    if "--smoke" in sys.argv[1:]:
        parser.set_defaults(**smoke)
    return parser.parse_args()


def at_most(name: str, value: float, unit: str, bound: float) -> Row:
    return Row(name, value, unit, f"≤ {bound:g}", value <= bound)


def at_least(name: str, value: float, unit: str, bound: float) -> Row:
    return Row(name, value, unit, f"≥ {bound:g}", value >= bound)


def between(name: str, value: float, unit: str, least: float, most: float) -> Row:
    return Row(name, value, unit, f"{least:g} … {most:g}", least <= value <= most)


def machine() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    cores = Path("/proc/cpuinfo").read_text().count("processor\t:")
    return f"{cores} × {model}, Linux {platform.release()}, Python {platform.python_version()}"


def show(title: str, rows: list[Row]) -> None:
    """Return the table as plain text: a GPU machine may have only the standard library."""
    verdicts = {None: "", True: "yes", False: "NO"}
    lines = [("what", "value", "unit", "want", "holds")]
    lines += [(row.name, f"{row.value:.4g}", row.unit, row.want, verdicts[row.holds]) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    print(f"\n{title}\n")
    for line in lines:
        cells = [
            text.rjust(width) if column == 1 else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print()


def result_file(asked: argparse.Namespace, name: str) -> Path:
    """Return the path of this file below ``--out``.

    A smoke run's has another name, so that it replaces no measurement.
    """
    asked.out.mkdir(parents=True, exist_ok=True)
    stem, _, ending = name.rpartition(".")
    return Path(asked.out) / (f"{stem}.smoke.{ending}" if asked.smoke else name)


def publish(asked: argparse.Namespace, name: str, device: str, rows: list[Row], shown: list[Row] | None = None) -> bool:
    """Print the table and write NAME.json below ``--out``.

    Args:
        asked: what ``read_arguments`` returned; of a smoke run bounds are shown and not judged.
        name: of the benchmark and of its file.
        device: the GPU that was measured, or what stood in for it.
        rows: all rows, which go to the file.
        shown: the rows of the table, where the table leaves some out.

    Returns:
        True when every bound holds, or when none was judged.
    """
    shown = rows if shown is None else shown
    if asked.smoke:
        rows, shown = ([replace(row, holds=None) for row in some] for some in (rows, shown))
    record = {
        "name": name,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "device": device,
        "commit": _commit(),
        **({"smoke": True} if asked.smoke else {}),
        "rows": [asdict(row) for row in rows],
    }
    path = result_file(asked, f"{name}.json")
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    show(f"{name} · {record['machine']} · {device}{' · smoke run: no measurement' if asked.smoke else ''}", shown)
    print(f"written: {path}")
    return all(row.holds is not False for row in rows)


def _commit() -> str:
    """Return the commit of this tree; in a copy on a GPU machine that of its file COMMIT."""
    if (ROOT / "COMMIT").exists():
        return (ROOT / "COMMIT").read_text().strip()
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # git is not installed here
        return "unknown"
    return found.stdout.strip() or "unknown"
