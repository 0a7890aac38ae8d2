"""The kernelspecs in users' homes, for a gateway whose kernels run as their owners.

The gateway cannot look into a home; a relay host of root lists it as its account. All that comes is
the user's word: it decides what runs as that user, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from jupyter_client.kernelspec import KernelSpec

from jupyter_aliquot.gateway.containers.images import logos_of
from jupyter_aliquot.gateway.sizes.grammar import parse_plain_name, parse_size_name
from jupyter_aliquot.gpu_hook.waiting import within
from jupyter_aliquot.provisioner.errors import AliquotError, SizeNameError

# Ask for a user's kernelspecs: the user, and the mark that is known. Raises AliquotError.
Ask = Callable[[str, str], Awaitable[Mapping[str, Any]]]
# A page waits no longer than this for a home on a disk that is away.
_SECONDS = 5.0
_MOST_USERS = 500
_MOST_SPECS = 20
_LONGEST_TEXT = 200
_INTERRUPT_MODES = ("signal", "message")


class _SpecError(Exception):
    """A kernelspec that cannot be used; the message says why."""


@dataclass(frozen=True)
class _Listed:
    """The kernelspecs of a user at the last look. ``mark`` is of the state of their files."""

    mark: str = ""
    specs: Mapping[str, KernelSpec] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0


_NONE = _Listed()


class OwnSpecs:
    """The kernelspecs of each user, as they were at the last look."""

    def __init__(self, ask: Ask, log: logging.Logger) -> None:
        self._ask = ask
        self._log = log
        self._listed: dict[str, _Listed] = {}  # the longest unused first
        self._looks: dict[str, asyncio.Task[None]] = {}  # one at a time for each user

    async def refresh(self, user: str) -> None:
        """Look at a user's kernelspecs anew. A look that fails or takes long keeps the last ones."""
        look = self._looks.get(user)
        if look is None:
            look = self._looks[user] = asyncio.create_task(self._look(user), name=f"aliquot-kernelspecs-{user}")
            look.add_done_callback(lambda _: self._looks.pop(user, None))
        try:
            await within(asyncio.shield(look), _SECONDS)
        except asyncio.TimeoutError:
            self._log.warning("user=%s kernelspecs=as_listed_last reason=no answer in %g s", user, _SECONDS)

    def of(self, user: str) -> Mapping[str, KernelSpec]:
        """Return the user's kernelspecs by name."""
        return MappingProxyType(self._listed.get(user, _NONE).specs)

    def why_not(self, user: str, name: str) -> str:
        """Return why the user's kernelspec of this name cannot be used; empty for a name without one."""
        listed = self._listed.get(user, _NONE)
        if found := listed.problems.get(name.lower()):
            return f"the kernelspec in your home cannot be used. {found}. Correct it, or remove the folder"
        if listed.left_out:
            return (
                f"of the kernelspecs in your home only the first {len(listed.specs)} are offered, by name, and "
                f"{listed.left_out} are not. Remove those that you do not need: jupyter kernelspec remove NAME"
            )
        return ""

    async def _look(self, user: str) -> None:
        before = self._listed.pop(user, _NONE)
        self._listed[user] = before
        try:
            told = await self._ask(user, before.mark)
        except AliquotError as error:  # a user without an account, or a host that is being restarted
            self._log.info("user=%s kernelspecs=as_listed_last reason=%s", user, error)
            return
        if told.get("mark") != before.mark or not before.mark:
            self._listed[user] = found = _read(told)
            self._log.info(
                "user=%s kernelspecs=%d unusable=%d left_out=%d",
                user,
                len(found.specs),
                len(found.problems),
                found.left_out,
            )
        if len(self._listed) > _MOST_USERS:
            del self._listed[next(iter(self._listed))]


def _read(told: Mapping[str, Any]) -> _Listed:
    """Read an answer, which a user may have made."""
    mark, specs, problems, left_out = (told.get(name) for name in ("mark", "specs", "problems", "left_out"))
    found: dict[str, KernelSpec] = {}
    refused = {name: _plain(reason, 400) for name, reason in _table(problems).items()}
    for name, fields in _table(specs).items():
        try:
            found[name] = _read_spec(name, fields)
        except _SpecError as error:
            refused[name] = f"{name}: {error}"
    count = left_out if isinstance(left_out, int) and 0 <= left_out < 1_000_000 else 0
    return _Listed(mark if isinstance(mark, str) else "", found, refused, count)


def _table(found: object) -> dict[str, Any]:
    """Return the first entries of a table whose names may be those of kernels."""
    entries = found.items() if isinstance(found, dict) else ()
    return {name.lower(): value for name, value in list(entries)[:_MOST_SPECS] if 0 < len(name) <= _LONGEST_TEXT}


def _read_spec(name: str, fields: object) -> KernelSpec:
    """Return a kernelspec of Jupyter's own provisioner, whose files are none. Raises _SpecError."""
    if _is_sized(name):
        raise _SpecError("its name is that of a size. Rename the folder")
    if not isinstance(fields, dict):
        raise _SpecError("it is no JSON object")
    argv, env = fields.get("argv"), fields.get("env", {})
    if not isinstance(argv, list) or not argv or not all(_is_word(word) for word in argv):
        raise _SpecError("its argv is no list of words")
    if not isinstance(env, dict) or not all(_is_word(word) and "=" not in name for name, word in env.items()):
        raise _SpecError("its env is no table of strings")
    mode = fields.get("interrupt_mode", "signal")
    if mode not in _INTERRUPT_MODES:
        raise _SpecError(f"its interrupt_mode is none of {', '.join(_INTERRUPT_MODES)}")
    language = _plain(fields.get("language"), _LONGEST_TEXT)
    metadata: dict[str, Any] = {"aliquot": {"kernelspec": name, "is_own": True}}
    if fields.get("debugger") is True:
        metadata["debugger"] = True
    return KernelSpec(
        name=name,
        argv=list(argv),
        display_name=_plain(fields.get("display_name"), _LONGEST_TEXT) or name,
        language=language,
        env=dict(env),
        # Never the user's folder: the gateway would read it as itself for each user who asks for a logo.
        resource_dir=logos_of(language),
        interrupt_mode=mode,
        metadata=metadata,
    )


def _is_word(word: object) -> bool:
    return isinstance(word, str) and "\0" not in word


def _plain(text: object, longest: int) -> str:
    """Return a text without characters that no page shows."""
    return "".join(letter for letter in text[:longest] if letter.isprintable()) if isinstance(text, str) else ""


def _is_sized(name: str) -> bool:
    try:
        return parse_size_name(name) is not None or parse_plain_name(name) is not None
    except SizeNameError:
        return True
