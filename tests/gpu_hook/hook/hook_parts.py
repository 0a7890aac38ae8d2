"""Parts of the hook's C code alone, in this process.

They are compiled from their files, and called through ctypes.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
from pathlib import Path

from hook_sources import HEADERS, SOURCES, source

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, HookPage

U64, U32 = ctypes.c_uint64, ctypes.c_uint32


class Sample(ctypes.Structure):
    """The struct sample of samples.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid_class", ctypes.c_uint),
        ("has_overlapped", ctypes.c_bool),
        ("nanoseconds", U64),
        ("window_before", U32),
        ("window_after", U32),
    )


class PaceState(ctypes.Structure):
    """The struct pace_state of pace_rule.h."""

    _fields_ = (
        ("occupied", U64),
        ("expected", U64),
        ("in_flight", U32),
        ("has_peers", U32),
        ("are_active", U32),
        ("unknown", U32),
        ("idle_since", U64),
    )


class Notice(ctypes.Structure):
    """The struct aliquot_activity_page_notice of aliquot_protocol.h."""

    _fields_ = (("header", U32 * 4), ("kind", U32), ("number", U32), ("device", U32), ("page_device", U32))


@functools.cache
def _compile(folder: Path, names: tuple[str | Path, ...]) -> Path:
    target = folder / "parts.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread"]
    include = [f"-I{SOURCES}", f"-I{HEADERS}"]
    files = [str(source(name)) for name in ("page.c", *names)]
    subprocess.run(["cc", *flags, *include, *files, "-o", str(target)], check=True)
    return target


class Parts:
    """A library of some of the hook's files, with pages of its own.

    Each is a new copy, since it has static state and the loader recognizes a file that it has
    loaded.
    """

    def __init__(self, build_folder: Path, folder: Path, *names: str | Path) -> None:
        build_folder = build_folder / "-".join(Path(name).stem for name in names)
        build_folder.mkdir(exist_ok=True)
        target = Path(shutil.copy(_compile(build_folder, names), folder))
        self.library = ctypes.CDLL(str(target))
        self.library.page_agent.restype = self.library.page_hook.restype = ctypes.c_void_p

    def agent_word(self, offset: int, device: int = 0) -> ctypes.c_uint32:
        """Return 32 bits of a device's record in the agent's page; its ``value`` may be set."""
        at = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES + offset
        return U32.from_address(self.library.page_agent() + at)

    def hook_word(self, offset: int, device: int = 0) -> int:
        at = HookPage.DEVICES + device * HookPage.DEVICE_BYTES + offset
        return int(U64.from_address(self.library.page_hook() + at).value)

    def hook_half(self, offset: int, device: int = 0) -> int:
        at = HookPage.DEVICES + device * HookPage.DEVICE_BYTES + offset
        return int(U32.from_address(self.library.page_hook() + at).value)
