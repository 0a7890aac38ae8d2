"""Users' names in the letters of Kubernetes, as KubeSpawner 7 makes them, so that volumes are the same. Pure."""

from __future__ import annotations

import hashlib
import re

SCHEMES = ("safe", "escape")

_OBJECT = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_PLAIN = re.compile(r"[a-z0-9]")
_OTHERS = re.compile(r"[^a-z0-9]+")
_LONGEST = 48  # of one field of a template
_DIGEST_LETTERS = 8
_FIELD = re.compile(r"\{(\w*)\}")
FIELDS = ("username", "user_server", "unescaped_username")


def slug(name: str, scheme: str) -> str:
    """Return a user's name by KubeSpawner's ``slug_scheme``; two users with printable names never share one."""
    return _escaped(name) if scheme == "escape" else _safe(name)


def expanded(template: str, name: str, scheme: str) -> str:
    """Return a template of KubeSpawner for a user's default server."""
    username = slug(name, scheme)
    server = _server(name) if scheme == "safe" and len(username) + len("--") > _LONGEST else username
    found = template
    for field, value in zip(FIELDS, (username, server, name), strict=True):
        found = found.replace(f"{{{field}}}", value)
    return found if template.endswith("-") else found.rstrip("-")


def unknown_fields(template: str) -> tuple[str, ...]:
    """Return the fields of a template that ``expanded`` does not know."""
    return tuple(field for field in _FIELD.findall(template) if field not in FIELDS)


def _safe(name: str) -> str:
    if "--" not in name and _OBJECT.fullmatch(name) and len(name) <= _LONGEST:
        return name
    return f"{_letters(name, _LONGEST - _DIGEST_LETTERS - len('---'))}---{_digest(name.encode())}"


def _server(name: str) -> str:
    """Return a long name beside that of the default server, which is empty; each has half of the letters."""
    longest = (_LONGEST - _DIGEST_LETTERS - 1) // 2 - len("--")
    digest = _digest(name.encode() + b"\xff")
    return f"{_letters(name, longest)}--{_letters('', longest)}---{digest}"


def _letters(name: str, longest: int) -> str:
    told = _OTHERS.sub("-", name.lower()).lstrip("-")[:longest].rstrip("-")
    if told and not "a" <= told[0] <= "z":
        told = f"x-{told[: longest - 2]}"
    return told or "x"


def _digest(name: bytes) -> str:
    return hashlib.sha256(name).hexdigest()[:_DIGEST_LETTERS]


def _escaped(name: str) -> str:
    return "".join(one if _PLAIN.fullmatch(one) else "".join(f"-{byte:x}" for byte in one.encode()) for one in name)
