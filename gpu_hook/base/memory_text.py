"""Amounts of memory as people write them, for options, configuration and kernelspecs alike.

A number without a unit counts bytes; a small one is refused, for its author left the unit out.
"""

from __future__ import annotations

import re
from decimal import Decimal

_AMOUNT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?\s*$", re.IGNORECASE)
# Fewer bytes are no memory limit and no device: the driver gives memory in parts of 2 MiB.
_LEAST_WITHOUT_UNIT = 1 << 20


def parse_memory(text: str) -> int:
    """Read ``"8g"``, ``"512 MiB"`` or ``"1073741824"``; units are binary. Raises ValueError.

    A number without a unit is 1 MiB or more, or 0.
    """
    match = _AMOUNT.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory. Write it like 8GiB, 512m or 1073741824")
    number, unit, suffix = match.groups()
    amount = int(Decimal(number) * (1 << (10 * "BKMGT".index((unit or "B").upper()))))
    if not unit and not suffix and 0 < Decimal(number) < _LEAST_WITHOUT_UNIT:
        raise ValueError(
            f"{text!r} is {number} bytes, without a unit. Did you mean {number}GiB? Write {number}b for bytes"
        )
    return amount
