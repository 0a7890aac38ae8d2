"""The version of the installed distribution."""

from __future__ import annotations

import importlib.metadata


def installed_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return importlib.metadata.version("jupyter-aliquot")
    except importlib.metadata.PackageNotFoundError:
        return "0 (not installed)"
