"""YAML with the line of each value, and the problems that a reader finds in it. No I/O.

A reader goes on after a problem, so that an administrator sees all problems of a file at once.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import yaml

MOST_BYTES = 256 << 10
_MOST_HUNDREDTHS = 9999_99
# What Python reads as a number besides (1_0, 1e9, digits of other scripts) is a mistake in this file.
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)?")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MOST_SECONDS = 365 * 86400.0


@dataclass(frozen=True)
class Problem:
    """A sentence about one line of the file; line 0: about the whole file."""

    line: int
    text: str


@dataclass
class Problems:
    """The problems that were found so far."""

    found: list[Problem] = field(default_factory=list)

    def add(self, line: int, text: str) -> None:
        self.found.append(Problem(line, text))

    def sorted(self) -> tuple[Problem, ...]:
        return tuple(sorted(self.found, key=lambda problem: problem.line))


@dataclass(frozen=True)
class Value:
    """One value of the file, its line, and what it is of, such as ``teams.vision.users``."""

    node: yaml.Node
    path: str
    problems: Problems

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def refuse(self, wanted: str) -> None:
        """Add the problem that the value is not what the key takes."""
        self.problems.add(self.line, f"{self.path or 'The file'} is {self._shown()}. Use {wanted}")

    def text(self) -> str | None:
        """Return a text; a number or a word such as ``yes`` is a text here, too."""
        if isinstance(self.node, yaml.ScalarNode) and self.node.value.strip() and self.node.value.isprintable():
            return str(self.node.value)
        self.refuse("a name")
        return None

    def choice(self, words: Sequence[str]) -> str | None:
        """Return one of these words."""
        if isinstance(self.node, yaml.ScalarNode) and self.node.value in words:
            return str(self.node.value)
        self.refuse(f"one of {', '.join(words)}")
        return None

    def truth(self) -> bool | None:
        if isinstance(self.node, yaml.ScalarNode) and self.node.value in ("true", "false"):
            return bool(self.node.value == "true")
        self.refuse("true or false")
        return None

    def texts(self) -> tuple[str, ...]:
        """Return a list of names."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.refuse("a list of names, such as [alice, bob]")
            return ()
        found = (Value(node, f"{self.path}[{at}]", self.problems).text() for at, node in enumerate(self.node.value))
        return tuple(text for text in found if text is not None)

    def hundredths(self) -> int | None:
        """Return a number of GPUs, 0 or more, in steps of 0.01, as hundredths."""
        amount = Decimal(self._number() or "NaN") * 100
        if amount.is_finite() and amount == amount.to_integral_value() and amount <= _MOST_HUNDREDTHS:
            return int(amount)
        self.refuse("a number of GPUs from 0 to 9999 in steps of 0.01")
        return None

    def number_above_zero(self) -> float | None:
        found = float(self._number() or "nan")
        if 0 < found < math.inf:
            return found
        self.refuse("a number above 0, such as 2 or 0.5")
        return None

    def part(self, most: float, why: str) -> float | None:
        """Return a number from 0 to *most*, which is the most for the reason *why*."""
        found = float(self._number() or "nan")
        if 0 <= found <= most:
            return found
        self.refuse(f"a number from 0 to {most:g}, such as 0.9 ({why}); 0 is off")
        return None

    def number_from_one(self) -> float | None:
        found = float(self._number() or "nan")
        if 1 <= found < math.inf:
            return found
        self.refuse("a number from 1, such as 1 or 1.5")
        return None

    def seconds(self) -> float | None:
        """Return a duration such as ``90s``, ``10m`` or ``2h``."""
        match = _DURATION.fullmatch(self.node.value.strip()) if isinstance(self.node, yaml.ScalarNode) else None
        found = math.nan if match is None else float(match[1]) * _SECONDS[match[2]]
        if found <= _MOST_SECONDS:
            return found
        self.refuse("a duration such as 90s, 10m or 2h, 365d at most")
        return None

    def _number(self) -> str | None:
        """Return the value if it is a number of digits, and perhaps a point and digits."""
        if isinstance(self.node, yaml.ScalarNode) and _NUMBER.fullmatch(self.node.value):
            return str(self.node.value)
        return None

    @property
    def is_table(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def has(self, key: str) -> bool:
        """Return whether this is a table with the key."""
        return self.is_table and any(one.value == key for one, _ in self.node.value)

    def entries(self) -> Iterator[tuple[str, int, Value]]:
        """Yield each key, its line and its value, a key that occurs again left out as a problem."""
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse("a table of names and values")
            return
        seen: dict[str, int] = {}
        for key, node in self.node.value:
            line = int(key.start_mark.line) + 1
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if not name.strip() or not name.isprintable():
                self.problems.add(line, f"{self.path or 'The file'} has a key that is no name. Use a name")
            elif name in seen:
                self.problems.add(line, f"{self._below(name)} stands in line {seen[name]} already. Remove one of them")
            else:
                seen[name] = line
                yield name, line, Value(node, self._below(name), self.problems)

    def fields(self, known: Sequence[str]) -> dict[str, Value]:
        """Return the values of these keys; any other key is a problem."""
        found: dict[str, Value] = {}
        for name, line, value in self.entries():
            if name in known:
                found[name] = value
                continue
            close = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"Use {close[0]}" if close else f"The keys are {', '.join(known)}"
            self.problems.add(line, f"{self._below(name)} is no known key. {hint}")
        return found

    def _below(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _shown(self) -> str:
        if isinstance(self.node, yaml.ScalarNode):
            return repr(self.node.value[:40]) if self.node.value else "empty"
        return "a list" if isinstance(self.node, yaml.SequenceNode) else "a table"


def read_yaml(text: str, problems: Problems) -> Value | None:
    """Return the document; None for an empty one, or with a problem."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        problems.add(0, f"The file has more than {MOST_BYTES} bytes. Use groups in the place of long lists of users")
        return None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = 0 if error.problem_mark is None else error.problem_mark.line + 1
        problems.add(line, f"This is no YAML: {error.problem or error.context}")
        return None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problems.add(0, f"This is no YAML: {str(error).splitlines()[0]}")
        return None
    return None if node is None else Value(node, "", problems)
