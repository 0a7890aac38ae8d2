"""The settings of systemd units, read from their files and drop-ins as systemd does."""

from __future__ import annotations

import shlex
from pathlib import Path

from jupyter_aliquot.gateway.installation.files import UNIT_FOLDERS

Settings = dict[str, list[str]]


def unit_settings(name: str, root: Path = Path("/")) -> Settings | None:
    """Return each setting with its values in order; None for a unit without a file."""
    folders = [root / folder.relative_to("/") for folder in UNIT_FOLDERS]
    file = next((path for folder in folders if (path := folder / name).is_file()), None)
    if file is None:
        return None
    drop_ins: dict[str, Path] = {}
    for folder in reversed(folders):  # a drop-in of a folder hides that of the same name in a later one
        drop_ins |= {path.name: path for path in (folder / f"{name}.d").glob("*.conf")}
    settings: Settings = {}
    for path in (file, *(drop_ins[key] for key in sorted(drop_ins))):
        _read(path.read_text(encoding="utf-8", errors="replace"), settings)
    return settings


def _read(text: str, settings: Settings) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        key, is_setting, value = line.strip().partition("=")
        if not is_setting or key.startswith(("#", ";", "[")):
            continue
        if value:
            settings.setdefault(key.strip(), []).append(value.strip())
        else:  # an empty value forgets those before it
            settings.pop(key.strip(), None)


def last(settings: Settings, key: str, default: str = "") -> str:
    """Return the value in force of a setting that has one."""
    return settings.get(key, [default])[-1]


def variables(settings: Settings) -> dict[str, str]:
    """Return the environment that the unit sets."""
    words = (word for line in settings.get("Environment", []) for word in shlex.split(line))
    return {name: value for name, _, value in (word.partition("=") for word in words)}
