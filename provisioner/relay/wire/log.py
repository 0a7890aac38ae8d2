"""The relay host's log: key=value lines on stderr.

It does not use `logging`, so that forked relays stay small.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any


def log(event: str, **facts: Any) -> None:
    """Write one line. A log that cannot be written must not end the process."""
    words = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
    with contextlib.suppress(OSError):
        print(f"time={time.strftime('%Y-%m-%dT%H:%M:%S%z')} event={event} {words}", file=sys.stderr, flush=True)


def _word(value: Any) -> str:
    text = str(value)
    return repr(text) if " " in text or not text else text
