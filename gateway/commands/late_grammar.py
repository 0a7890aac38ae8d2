"""Puts off what jsonschema would build at its import: a grammar of international addresses.

That is more than half of the time that a Jupyter server needs to start, for two formats that neither Jupyter's schemas
nor ours name. Whoever checks one still gets the whole grammar, then. Importing this module does it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_NAME = "rfc3987_syntax"


def _put_off() -> None:
    """Does nothing where the grammar was built already, or is not installed."""
    if _NAME in sys.modules or importlib.util.find_spec(_NAME) is None:
        return
    stand_in = ModuleType(_NAME)

    def whole() -> ModuleType:
        if sys.modules.get(_NAME) is stand_in:
            del sys.modules[_NAME]
        return importlib.import_module(_NAME)

    def is_valid_syntax(*words: Any, **options: Any) -> Any:
        return whole().is_valid_syntax(*words, **options)

    def look_up(name: str) -> Any:
        """Called for all that jsonschema does not import; importing asks for names of Python's own."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(whole(), name)

    vars(stand_in).update(is_valid_syntax=is_valid_syntax, __getattr__=look_up)
    sys.modules[_NAME] = stand_in


_put_off()
