"""Add missing settings to a traitlets configuration, beside those of an administrator.

It replaces nothing. A section of a spawner's own class comes before `c.Spawner`: settings there are
extended, too, or ours would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from jupyter_aliquot.gateway.base.jupyter_private import appended, updated

from .settings import HubConfigError


def sections_of(c: Config, base: str, knob: str) -> list[str]:
    """Return ``base``, and each section of a class named like it that has this knob.

    An example is `DockerSpawner` for `Spawner`.
    """
    own = [name for name in c if name.endswith(base) and name != base and knob in c[name]]
    return [base, *sorted(own)]


def found_in(c: Config, section: str, knob: str) -> Any:
    """Return the value of a setting, None where it is not set.

    Reading it from the Config would set it.
    """
    return c[section][knob] if section in c and knob in c[section] else None


def add_to_list(c: Config, section: str, knob: str, items: Iterable[Any], before: Iterable[Any] = ()) -> None:
    """Add items to a list setting. *before* is the default of a list that is not set."""
    found = found_in(c, section, knob)
    if isinstance(found, LazyConfigValue):
        found.extend(list(items))
        return
    if found is not None and not isinstance(found, (list, tuple)):
        raise HubConfigError(
            f"c.{section}.{knob}: a value of type {type(found).__name__} cannot be extended. Use a list"
        )
    known = [*before] if found is None else [*found]
    c[section][knob] = [*known, *(item for item in items if item not in known)]


def dict_in(c: Config, section: str, knob: str) -> Mapping[str, Any]:
    """Return the items of a table setting, set or appended."""
    found = found_in(c, section, knob)
    known: Any = (updated(found) if isinstance(found, LazyConfigValue) else found) or {}
    if not isinstance(known, Mapping):
        raise HubConfigError(f"c.{section}.{knob}: a value of type {type(known).__name__} is not valid. Use a table")
    return known


def add_to_dict(c: Config, section: str, knob: str, items: Mapping[str, Any]) -> None:
    """Add items to a table setting. Raises HubConfigError where a key has another value."""
    found, known = found_in(c, section, knob), dict_in(c, section, knob)
    for key, value in items.items():
        if key in known and known[key] != value:
            raise HubConfigError(
                f"c.{section}.{knob} has {key!r} already, which configure() sets. Remove one of the two"
            )
    if isinstance(found, LazyConfigValue):
        found.update(dict(items))
    else:
        c[section][knob] = {**known, **items}


def compose(c: Config, base: str, knob: str, make: Callable[[Any], Any]) -> None:
    """Put ``make(what is set)`` in its place, in each section that counts."""
    for section in sections_of(c, base, knob):
        found = found_in(c, section, knob)
        if isinstance(found, LazyConfigValue):
            # Appended to a setting without a value, or only read.
            found = found.get_value([]) if found.to_dict() else None
        c[section][knob] = make(found)


def add_role(c: Config, name: str, scopes: Iterable[str], before: Iterable[str] = (), **members: list[str]) -> None:
    """Add scopes and members (`users`, `groups`, `services`) to a role, which may exist already."""
    found = found_in(c, "JupyterHub", "load_roles")
    if isinstance(found, LazyConfigValue):
        found = c.JupyterHub.load_roles = appended(found)
    roles = [dict(role) for role in found or ()]
    role = next((role for role in roles if role.get("name") == name), None)
    if role is None:
        role = {"name": name}
        roles.append(role)
    role["scopes"] = _joined(role.get("scopes", before), scopes)
    for kind, names in members.items():
        if names:
            role[kind] = _joined(role.get(kind, ()), names)
    c.JupyterHub.load_roles = roles


def _joined(known: Iterable[str], more: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*known, *more]))
