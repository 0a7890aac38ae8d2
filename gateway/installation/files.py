"""The files of an installation as a service, as values: units, account, folders, a Hub's configuration.

They are those of deploy/systemd/ with this machine's program, account and driver. This module
writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.base.errors import CommandError

# Its place below a checkout is the one below the installed package.
TEMPLATES = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
MARK = "# Written by `aliquot install-service`, which replaces it: put changes into a drop-in (systemctl edit).\n"

_UNITS = Path("/etc/systemd/system")
HUB_UNIT = "jupyterhub.service"
NODE_UNITS = ("aliquot-agent.service", "aliquot-relay.service")
GATEWAY_UNIT = "aliquot-gateway.service"
_TEMPLATE_PROGRAMS = "/opt/aliquot/bin/"
# Below a Hub of root kernels are their owners': the relay host is root's, and so is the folder of the sockets, in which
# the account makes files and takes nothing of root's away.
_OF_HUB = {
    "User=aliquot\nEnvironment=ALIQUOT_RUNTIME_DIR=/run/aliquot\nWorkingDirectory=~\n"
    "ExecStart=/opt/aliquot/bin/aliquot relay\n": "User=root\nEnvironment=ALIQUOT_RUNTIME_DIR=/run/aliquot\n"
    "ExecStart=/opt/aliquot/bin/aliquot relay --account=aliquot\n",
    "d /run/aliquot 0711 aliquot aliquot -": "d /run/aliquot 1771 root aliquot -",
}
# The first one that has a unit counts, as for systemd.
UNIT_FOLDERS = (
    _UNITS,
    Path("/run/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"),
    Path("/lib/systemd/system"),
)


@dataclass(frozen=True)
class Installation:
    """One machine's choices. ``programs`` is the folder with `aliquot`; ``driver`` the agent's."""

    user: str
    programs: Path
    driver: str
    with_hub: bool
    root: Path = Path("/")

    @property
    def units(self) -> tuple[str, ...]:
        """Return the names of the services that run, without the Hub's."""
        return NODE_UNITS if self.with_hub else (*NODE_UNITS, GATEWAY_UNIT)

    def below_root(self, path: Path) -> Path:
        """Return where a path of the machine is below ``root``."""
        return self.root / path.relative_to("/")


@dataclass(frozen=True)
class PlannedFile:
    """A file of the machine. One that ``belongs_to_admin`` is written only where there is none."""

    path: Path
    text: str
    mode: int = 0o644
    belongs_to_admin: bool = False


def planned_files(wanted: Installation) -> list[PlannedFile]:
    """Return the files to write, in order. Raises CommandError where the templates are missing."""
    files = [
        _marked("sysusers.d-aliquot.conf", Path("/etc/sysusers.d/aliquot.conf"), wanted),
        _marked("tmpfiles.d-aliquot.conf", Path("/etc/tmpfiles.d/aliquot.conf"), wanted),
    ]
    files += [_marked(unit, _UNITS / unit, wanted) for unit in wanted.units]
    if not wanted.with_hub:
        return files
    if not _has_hub_unit_of_another(wanted):
        files.append(_marked(HUB_UNIT, _UNITS / HUB_UNIT, wanted))
    files.append(_marked(f"{HUB_UNIT}.d/aliquot.conf", _UNITS / f"{HUB_UNIT}.d" / "aliquot.conf", wanted))
    configuration = _text("jupyterhub_config.py", wanted)
    path = Path("/etc/jupyterhub/jupyterhub_config.py")
    return [*files, PlannedFile(path, configuration, 0o600, belongs_to_admin=True)]


def possible_files(wanted: Installation) -> list[PlannedFile]:
    """Return each file that an installation with or without a Hub may have written."""
    both = [Installation(wanted.user, wanted.programs, wanted.driver, hub, wanted.root) for hub in (True, False)]
    found = {file.path: file for one in both for file in planned_files(one)}
    return list(found.values())


def is_ours(path: Path) -> bool:
    """Return whether install-service wrote the file."""
    return path.read_text(encoding="utf-8", errors="replace").startswith(MARK)


def _marked(template: str, path: Path, wanted: Installation) -> PlannedFile:
    return PlannedFile(path, MARK + _text(template, wanted))


def _text(template: str, wanted: Installation) -> str:
    """Return a template with this machine's values in the place of those that it has."""
    try:
        text = (TEMPLATES / template).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(
            f"This installation has no {template}: {TEMPLATES}: {error.strerror}. Install it again: pip install ."
        ) from error
    of_hub = _OF_HUB if wanted.with_hub else {}
    replaced = {
        **of_hub,
        _TEMPLATE_PROGRAMS: f"{wanted.programs}/",
        "/opt/aliquot/bin:": f"{wanted.programs}:",
        "User=aliquot\n": f"User={wanted.user}\n",
        "u aliquot ": f"u {wanted.user} ",
        " aliquot aliquot -": f" {wanted.user} {wanted.user} -",
        " root aliquot -": f" root {wanted.user} -",
        "--account=aliquot\n": f"--account={wanted.user}\n",
        'gateway_user="aliquot"': f'gateway_user="{wanted.user}"',
        "--driver nvidia": f"--driver {wanted.driver}",
        "--Aliquot.driver=nvidia": f"--Aliquot.driver={wanted.driver}",
    }
    for found, put in replaced.items():
        text = text.replace(found, put)
    return text


def _has_hub_unit_of_another(wanted: Installation) -> bool:
    """Return whether the machine has a Hub's unit already, such as The Littlest JupyterHub's."""
    own = wanted.below_root(_UNITS / HUB_UNIT)
    if own.exists():
        return not is_ours(own)
    return any((wanted.below_root(folder) / HUB_UNIT).exists() for folder in UNIT_FOLDERS[1:])
