"""Check the table of entry points against the headers of the releases.

The functions are pure: they get values and return findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

_SUFFIX = re.compile(r"(_v\d+)?(_ptds|_ptsz)?$")
# Names of functions that take or touch device memory, or give the device work.
_TOUCHES = re.compile(
    r"Alloc(?!ation)|MemCreate|ArrayCreate|PoolCreate|CtxCreate|ImportExternalMemory|OpenMemHandle|GetMapped|HostRegister"
    r"|Memcpy|Memset|Cpy|Prefetch|Discard|Decompress|MemAdvise|WaitValue|WriteValue|MemOp"
    r"|Launch|Subgrid|ModuleLoad|LibraryLoad|GetGlobal|(Tex|Surf)ObjectCreate|GraphInstantiate|GraphUpload|MemMap"
)
# Of x86-64: the registers for integers and pointers, and how many of them one argument takes at
# most.
_REGISTERS, _MOST_REGISTERS_OF_ONE, _WORD_BYTES = 6, 2, 8
# A graph before its instantiation is a description in host memory; reading a description moves
# nothing.
_DESCRIBES = re.compile(
    r"cuGraph(Add\w+Node|\w+Node[GS]etParams)$|cuGraphMemAllocNodeGetParams$|cuTensorMapSetAllocationClass$"
)


class Entry(Protocol):
    """A row of the table, as entry_points_table reads it."""

    @property
    def kind(self) -> str: ...

    @property
    def is_called(self) -> bool: ...

    @property
    def is_declared(self) -> bool: ...


class Release(Protocol):
    """The headers of one release, as cuda_headers reads them."""

    @property
    def functions(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def asked_by_runtime(self) -> frozenset[str]: ...


def find_unclassified(table: Mapping[str, Entry], releases: Mapping[str, Release]) -> list[str]:
    """Find functions and variants that a header or a runtime library names and the table lacks."""
    bases = {_SUFFIX.sub("", name) for name in table}
    found = []
    for version, release in releases.items():
        found += [f"{name}: declared by CUDA {version}" for name in sorted(set(release.functions) - set(table))]
        asked = {name for name in release.asked_by_runtime if name not in table and _SUFFIX.sub("", name) not in bases}
        found += [f"{name}: asked for by the runtime library of CUDA {version}" for name in sorted(asked)]
    return [f"{one}, not in the table" for one in found]


def find_unknown(table: Mapping[str, Entry], releases: Mapping[str, Release]) -> list[str]:
    """Find names that no header declares, and declared names that are marked as undeclared.

    The first are typing errors.
    """
    declared = {name for release in releases.values() for name in release.functions}
    return [
        f"{name}: {'marked ?, but a' if name in declared else 'no'} header declares it"
        for name, entry in table.items()
        if entry.is_declared != (name in declared)
    ]


def find_changed(table: Mapping[str, Entry], releases: Mapping[str, Release]) -> list[str]:
    """Find functions that C code replaces or calls and whose parameter types differ by release."""
    found = []
    for name in sorted(name for name, entry in table.items() if entry.kind == "hook" or entry.is_called):
        shapes: dict[tuple[str, ...], list[str]] = {}
        for version, release in releases.items():
            if name in release.functions:
                shapes.setdefault(release.functions[name], []).append(version)
        if len(shapes) > 1:
            said = "; ".join(f"CUDA {', '.join(versions)}: ({', '.join(types)})" for types, versions in shapes.items())
            found.append(f"{name}: {said}")
    return found


def find_ungated(table: Mapping[str, Entry]) -> list[str]:
    """Find functions that pass, although their names touch device memory or give the device work."""
    return [
        f"{name}: its name says that it touches device memory or gives the device work, and its class is pass"
        for name, entry in table.items()
        if entry.kind == "pass" and _TOUCHES.search(name) and not _DESCRIBES.match(_SUFFIX.sub("", name))
    ]


def count_stack_words(types: Iterable[str], sizes: Mapping[str, int]) -> int:
    """Return how many words of arguments x86-64 puts on the stack.

    Other machines put fewer. A type that is not in ``sizes`` takes a word.
    """
    free, words = _REGISTERS, 0
    for size in (sizes.get(kind, _WORD_BYTES) for kind in types):
        needed = -(-size // _WORD_BYTES)
        if needed > _MOST_REGISTERS_OF_ONE or needed > free:
            words += needed
        else:
            free -= needed
    return words


def find_wide(
    table: Mapping[str, Entry],
    releases: Mapping[str, Release],
    sizes: Mapping[str, int],
    copied: Callable[[str], int],
) -> list[str]:
    """Find functions whose forwarder copies fewer words of arguments (``copied``) than they have.

    Only functions that their forwarder calls count.
    """
    found = []
    for version, release in releases.items():
        for name, types in release.functions.items():
            words = count_stack_words(types, sizes)
            if name in table and table[name].kind == "gate" and words > copied(name):
                found.append(
                    f"{name}: {words} words on the stack in CUDA {version}, its forwarder copies {copied(name)}"
                )
    return found


def find_all(table: Mapping[str, Entry], releases: Mapping[str, Release]) -> Iterable[str]:
    """Return the findings of all checks above."""
    yield from find_unclassified(table, releases)
    yield from find_unknown(table, releases)
    yield from find_changed(table, releases)
    yield from find_ungated(table)
