"""The limits of /etc/security/limits.conf, which PAM sets at a login, for relays that had none.

It knows the domains NAME, @GROUP and `*`, and the items that are limits of one process. It leaves
out what counts logins, changes priorities or names ranges of numbers: maxlogins, maxsyslogins,
priority, nice, chroot, UID and GID ranges.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FILE = Path("/etc/security/limits.conf")
_FOLDER = Path("/etc/security/limits.d")
_KIB, _MINUTE = 1024, 60
# Each item with its limit, and the unit of its numbers.
_ITEMS = {
    "as": (resource.RLIMIT_AS, _KIB),
    "core": (resource.RLIMIT_CORE, _KIB),
    "cpu": (resource.RLIMIT_CPU, _MINUTE),
    "data": (resource.RLIMIT_DATA, _KIB),
    "fsize": (resource.RLIMIT_FSIZE, _KIB),
    "memlock": (resource.RLIMIT_MEMLOCK, _KIB),
    "msgqueue": (resource.RLIMIT_MSGQUEUE, 1),
    "nofile": (resource.RLIMIT_NOFILE, 1),
    "nproc": (resource.RLIMIT_NPROC, 1),
    "rss": (resource.RLIMIT_RSS, _KIB),
    "rtprio": (resource.RLIMIT_RTPRIO, 1),
    "sigpending": (resource.RLIMIT_SIGPENDING, 1),
    "stack": (resource.RLIMIT_STACK, _KIB),
}
_UNLIMITED = ("unlimited", "infinity", "-1")


@dataclass(frozen=True)
class _Line:
    rank: int  # the account's own lines come before its groups', and those before everybody's
    kinds: tuple[str, ...]
    limit: int
    value: int


def apply_limits(name: str, groups: Collection[str]) -> None:
    """Set the limits of the account on this process, which is still root's."""
    for limit, (soft, hard) in login_limits(_lines(), name, groups).items():
        old_soft, old_hard = resource.getrlimit(limit)
        hard = old_hard if hard is None else hard
        soft = old_soft if soft is None else soft
        if hard != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > hard):
            soft = hard
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (soft, hard))


def login_limits(lines: Iterable[str], name: str, groups: Collection[str]) -> dict[int, tuple[int | None, int | None]]:
    """Return soft and hard value by limit; None where no line sets it. Of one rank the last line counts."""
    found: dict[tuple[int, str], _Line] = {}
    for text in lines:
        line = _read(text, name, groups)
        if line is None:
            continue
        for kind in line.kinds:
            before = found.get((line.limit, kind))
            if before is None or before.rank <= line.rank:
                found[line.limit, kind] = line
    values = {key: line.value for key, line in found.items()}
    return {limit: (values.get((limit, "soft")), values.get((limit, "hard"))) for limit, _ in values}


def _read(text: str, name: str, groups: Collection[str]) -> _Line | None:
    words = text.partition("#")[0].split()
    if len(words) != 4 or words[2] not in _ITEMS:
        return None
    domain, kind, item, number = words
    ranks = {name: 3, "*": 1, **{f"@{group}": 2 for group in groups}}
    kinds = {"soft": ("soft",), "hard": ("hard",), "-": ("soft", "hard")}.get(kind)
    if domain not in ranks or kinds is None:
        return None
    limit, unit = _ITEMS[item]
    if number in _UNLIMITED:
        return _Line(ranks[domain], kinds, limit, resource.RLIM_INFINITY)
    return _Line(ranks[domain], kinds, limit, int(number) * unit) if number.isdigit() else None


def _lines() -> Iterator[str]:
    with contextlib.suppress(OSError):
        for path in (_FILE, *sorted(_FOLDER.glob("*.conf"))):
            with contextlib.suppress(OSError):
                yield from path.read_text(errors="replace").splitlines()
