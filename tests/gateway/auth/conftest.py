"""Coroutines as tests."""

from __future__ import annotations
