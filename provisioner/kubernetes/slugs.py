"""Users' names in the letters of Kubernetes, as KubeSpawner 7 makes them, so that volumes are the same. Pure."""

from __future__ import annotations

import hashlib
import re

SCHEMES = ("safe", "escape")

_OBJECT = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_PLAIN = re.compile(r"[a-z0-9]")
_OTHERS = re.compile(r"[^a-z0-9]+")
_LONGEST = 32
_DIGEST_LETTERS = 8


def slug(name: str, scheme: str) -> str:
    """Return a user's name by KubeSpawner's ``slug_scheme``; two users with printable names never share one."""
    return _escaped(name) if scheme == "escape" else _safe(name)


def expanded(template: str, name: str, scheme: str) -> str:
    """Return a template of KubeSpawner for a user's default server."""
    username = slug(name, scheme)
    for field, value in (("username", username), ("user_server", username), ("unescaped_username", name)):
        template = template.replace(f"{{{field}}}", value)
    return template


def _safe(name: str) -> str:
    if "--" not in name and _OBJECT.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LETTERS]
    longest = _LONGEST - _DIGEST_LETTERS - len("---")
    told = _OTHERS.sub("-", name.lower()).lstrip("-")[:longest].rstrip("-")
    if told and not "a" <= told[0] <= "z":
        told = f"x-{told[: longest - 2]}"
    return f"{told or 'x'}---{digest}"


def _escaped(name: str) -> str:
    return "".join(one if _PLAIN.fullmatch(one) else "".join(f"-{byte:x}" for byte in one.encode()) for one in name)
