"""Fixture that runs coroutines as tests."""

from __future__ import annotations
