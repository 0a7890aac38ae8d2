"""Compile the plant's C core at its first use, and describe its structures for ctypes.

The module decides nothing.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = Path(__file__).parent / "core"
HOOK = ROOT / "gpu_hook" / "hook"
RULE = HOOK / "compute"
HEADERS = ROOT / "gpu_hook" / "protocol"
MOST_PIECES = 40
NEVER = (1 << 64) - 1

U32, U64 = ctypes.c_uint32, ctypes.c_uint64


class Op(ctypes.Structure):
    _fields_ = [("kind", U32), ("function", U32), *((name, U64) for name in ("count", "each", "host_each", "blocks"))]


class PaceOrder(ctypes.Structure):
    """struct pace_order of gpu_hook/hook/compute/pace_rule.h."""

    _fields_ = [
        ("pace", U32), ("in_flight_cap", U32), ("allowed", U64), ("allowed_with_busy_peers", U64),
        ("idle_window_min", U32), ("idle_window_max", U32), ("idle_resume", U32), ("reserved", U32),
    ]  # fmt: skip


class CoreSettings(ctypes.Structure):
    _fields_ = [
        (name, U64)
        for name in (
            "seed", "horizon", "slice", "switch_cost", "notice_least", "notice_most", "wake", "sample_every",
            "side_by_side",
        )
    ]  # fmt: skip


class CoreLook(ctypes.Structure):
    _fields_ = [
        ("pieces", U64 * 2 * MOST_PIECES),
        *((name, U64) for name in (
            "piece_count", "lost", "occupied", "is_active", "since", "in_flight", "waiting_launches", "launches",
            "blocks", "longest", "throttled", "sampled", "sampled_solo", "samples", "without_baseline",
        )),
    ]  # fmt: skip


def _build(sources: list[Path], path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise SystemExit("A C compiler is needed, but there is neither cc, gcc nor clang. Install one")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        subprocess.run(
            [compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
             f"-I{HEADERS}", f"-I{HOOK}", *map(str, sources), "-o", str(made)],
            check=True,
        )  # fmt: skip
        os.replace(made, path)


@functools.cache
def core() -> ctypes.CDLL:
    """Return the compiled core.

    A hash of its sources names the file, so that a change of the hook's rule is never missed.
    """
    sources = [*sorted(CORE.glob("*.c")), RULE / "pace_rule.c"]
    headers = [CORE / "plant.h", RULE / "pace_rule.h", *sorted(HEADERS.glob("*.h"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, *headers])).hexdigest()[:16]
    path = ROOT / "build" / "plant" / f"plant-{digest}.so"
    if not path.exists():
        _build(sources, path)
    library = ctypes.CDLL(str(path))
    handle, series = ctypes.c_void_p, ctypes.POINTER(U64)
    library.plant_new.argtypes, library.plant_new.restype = [ctypes.POINTER(CoreSettings)], handle
    library.plant_add.argtypes = [handle, ctypes.POINTER(Op), U32, ctypes.c_int, U64, U64]
    library.plant_run.argtypes = [handle, U64]
    library.plant_order.argtypes = [handle, U32, U32, ctypes.POINTER(PaceOrder), U64, U64, U64]
    library.plant_order.restype = None
    library.plant_look.argtypes, library.plant_look.restype = [handle, U32, ctypes.POINTER(CoreLook)], None
    library.plant_free.argtypes, library.plant_free.restype = [handle], None
    library.plant_switched.argtypes, library.plant_switched.restype = [handle], U64
    for name in ("own", "occupied", "throttled", "launches", "step_count"):
        function = getattr(library, f"plant_{name}")
        function.argtypes, function.restype = [handle, U32], U64
    for name in ("steps", "bins"):
        function = getattr(library, f"plant_{name}")
        function.argtypes, function.restype = [handle, U32], series
    return library
