"""How every benchmark reports: one table, one JSON file under build/bench. Owns the format, measures nothing."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Row:
    """One measured number. ``want`` is the bound to hold ("" for a number that is only shown); ``holds`` None then."""

    name: str
    value: float
    unit: str
    want: str = ""
    holds: bool | None = None


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
    """Plain text: a GPU machine may lack every package but the standard library's."""
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


def publish(name: str, device: str, rows: list[Row], shown: list[Row] | None = None) -> bool:
    """Print the table (of ``shown``, where not all are), write build/bench/NAME.json; True when every bound holds."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    record = {
        "name": name,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "device": device,
        "commit": commit.stdout.strip() or "unknown",
        "rows": [asdict(row) for row in rows],
    }
    path = ROOT / "build" / "bench" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    show(f"{name} · {record['machine']} · {device}", rows if shown is None else shown)
    print(f"written: {path.relative_to(ROOT)}")
    return all(row.holds is not False for row in rows)
