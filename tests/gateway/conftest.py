"""Jupyter's own fixtures for a server inside the test's process, for this folder alone.

Named as a plugin they would make a server and an event loop around every test of the project.
"""

from __future__ import annotations

from pytest_jupyter.jupyter_server import *  # noqa: F403  (fixtures and hooks, found by their names)
