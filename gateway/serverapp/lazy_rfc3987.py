"""Delay what jsonschema builds at its import: a grammar of international addresses.

It takes more than half of the time that a Jupyter server needs to start, for two formats that
neither Jupyter's schemas nor ours name. A program that checks one of them still gets the whole
grammar, at that time. Importing this module applies the delay.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_NAME = "rfc3987_syntax"


def _put_off() -> None:
    """Put a stand-in in the module's place.

    Does nothing if the grammar was built already, or is not installed.
    """
    spec = None if _NAME in sys.modules else importlib.util.find_spec(_NAME)
    if spec is None:
        return
    stand_in = ModuleType(_NAME)
    # A package like the real one: other programs in this process may import its modules.
    stand_in.__spec__ = spec
    stand_in.__path__ = list(spec.submodule_search_locations or ())

    def whole() -> ModuleType:
        if sys.modules.get(_NAME) is stand_in:
            del sys.modules[_NAME]
        found = importlib.import_module(_NAME)
        # Modules imported before are attributes of the stand-in alone.
        for name in [name for name in sys.modules if name.startswith(f"{_NAME}.")]:
            setattr(found, name.rpartition(".")[2], sys.modules[name])
        return found

    def is_valid_syntax(*words: Any, **options: Any) -> Any:
        return whole().is_valid_syntax(*words, **options)

    def look_up(name: str) -> Any:
        """Called for each name that jsonschema does not import.

        Python's import asks for private names of modules.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(whole(), name)

    vars(stand_in).update(is_valid_syntax=is_valid_syntax, __getattr__=look_up)
    sys.modules[_NAME] = stand_in


_put_off()
