"""Errors that end a command. The user sees the message alone."""

from __future__ import annotations

from jupyter_aliquot.provisioner.errors import AliquotError


class UsageError(AliquotError):
    """The command line itself is wrong."""


class CommandError(AliquotError):
    """A command could not do its work. The user sees the message alone."""
