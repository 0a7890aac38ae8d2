"""The routes of a running server, and a path that each of them matches."""

from __future__ import annotations

import re

from tornado.routing import PathMatches, Rule

NOTHING = "00000000-0000-0000-0000-000000000000"
# These paths have a table of their own, tests/access_rows.py.
KERNELS = re.compile(r"/(api/?|api/(status|me|spec.yaml|security/.*|(kernels|sessions|kernelspecs).*)|kernelspecs/.*)")
_VALUES = {"kernel_id": NOTHING, "session_id": NOTHING, "action": "restart", "kind": "users"}


def sample(pattern: str) -> str:
    """Return a path that this route matches."""
    for name, value in _VALUES.items():
        pattern = re.sub(rf"\(\?P<{name}>[^()]*\)", value, pattern)
    while "(" in pattern:
        pattern = re.sub(r"\((?:\?P<\w+>|\?:)?[^()]*\)[?*+]?", "x", pattern)
    return re.sub(r"\\(.)|[$?^]|\.\*|[+*]", lambda match: match.group(1) or "", pattern)


def routes(rules: list[Rule]) -> list[tuple[str, type]]:
    """Return the pattern and the handler of each route."""
    found = []
    for rule in rules:
        if isinstance(rule.matcher, PathMatches):
            found.append((rule.matcher.regex.pattern, rule.target))
        elif hasattr(rule.target, "rules"):
            found += routes(rule.target.rules)
    return found
