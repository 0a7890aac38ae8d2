"""The API double, for what a gateway asks of its cluster."""

from __future__ import annotations

from api_double.fixtures import a_client, a_double

__all__ = ["a_client", "a_double"]
