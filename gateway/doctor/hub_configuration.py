"""Read which gateways a JupyterHub's configuration names; as a program, with the file as its argument.

The file is Python that the Hub runs; a process of its own runs it here, with a `configure` that notes its arguments.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 60.0
_HUB = "http://127.0.0.1:8081"


class ConfigurationError(Exception):
    """The file cannot be read. The message says why; ``remedy`` says what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.remedy = remedy


@dataclass(frozen=True)
class NamedGateway:
    """One gateway of the configuration. ``token`` is empty for one that the Hub starts."""

    name: str
    address: str
    token: str
    hub_api: str


def read_gateways(path: Path, variables: Mapping[str, str]) -> Sequence[NamedGateway]:
    """Return the gateways of `configure(gateways=[…])`; none where it names one alone.

    *variables* are those of the Hub's unit. Raises ConfigurationError.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}", "run this as root, as the Hub reads it") from error
    if found.st_uid not in (0, os.geteuid()) or stat.S_IMODE(found.st_mode) & 0o022:
        raise ConfigurationError(
            f"{path} is not read here: other accounts than root can change it, and the Hub runs what it says",
            f"sudo chown root: {path}; sudo chmod go-w {path}",
        )
    command = [sys.executable, "-m", __spec__.name, str(path)]
    try:
        done = subprocess.run(
            command,
            cwd=path.parent,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode == 0:
            return [NamedGateway(**one) for one in json.loads(done.stdout.splitlines()[-1])]
        reason = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        reason = f"it did not end within {_SECONDS:g} s"
    except (OSError, ValueError, IndexError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise ConfigurationError(
        f"{path} cannot be read: {reason[:300]}", "run this with the Hub's own variables, or look at the Hub's log"
    )


def _noted(path: Path) -> list[NamedGateway]:
    """Run the file, and return the gateways of its call of `configure`."""
    from traitlets.config.loader import PyFileConfigLoader

    from jupyter_aliquot.gateway import hub
    from jupyter_aliquot.gateway.hub.gateways import Gateways

    noted: list[Gateways] = []

    def note(c: Any, **settings: Any) -> hub.HubSettings:
        wanted = hub.HubSettings(**settings)
        noted.append(Gateways.of(wanted))
        return wanted

    hub.configure = note  # the file imports it from there
    c = PyFileConfigLoader(path.name, str(path.parent)).load_config()
    told = c.get("JupyterHub", {})
    base = urlsplit(str(told.get("bind_url", ""))).path or str(told.get("base_url", "/"))
    base = f"/{base.strip('/')}/".replace("//", "/")
    hub_url = str(told.get("hub_connect_url") or told.get("hub_bind_url") or _HUB).rstrip("/")
    return [
        NamedGateway(
            one.name,
            f"{one.settings.url.rstrip('/')}{base}services/{one.name}",
            one.settings.api_token,
            f"{hub_url}{base}hub/api",
        )
        for gateways in noted
        if gateways.are_named
        for one in gateways.each
    ]


if __name__ == "__main__":
    print()
    print(json.dumps([asdict(one) for one in _noted(Path(sys.argv[1]))]))
