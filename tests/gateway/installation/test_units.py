"""The units that are shipped: their programs and options exist, and they keep to what kernels need."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from jupyterhub.app import JupyterHub

from jupyter_aliquot.gateway.cli.app import COMMANDS
from jupyter_aliquot.gateway.doctor.units import last, unit_settings, variables
from jupyter_aliquot.gateway.installation.files import TEMPLATES, Installation, planned_files
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
from jupyter_aliquot.gpu_hook.agent import settings as agent_settings
from jupyter_aliquot.provisioner.relay.host import settings as relay_settings

PROGRAMS = Path("/opt/aliquot/bin")
UNITS = sorted(path.name for path in TEMPLATES.glob("*.service"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with all that install-service writes, with a Hub and without."""
    for with_hub in (True, False):
        for file in planned_files(Installation("aliquot", PROGRAMS, "nvidia", with_hub, tmp_path)):
            path = tmp_path / file.path.relative_to("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text)
    return tmp_path


def test_each_shipped_unit_is_installed(root: Path) -> None:
    assert sorted(path.name for path in (root / "etc/systemd/system").glob("*.service")) == UNITS
    assert len(UNITS) == 4


@pytest.mark.parametrize("unit", UNITS)
def test_a_units_program_knows_its_options(unit: str, root: Path) -> None:
    program, *words = last(unit_settings(unit, root) or {}, "ExecStart").split()
    if program == f"{PROGRAMS}/jupyterhub":
        app = JupyterHub()
        app.parse_command_line([word.replace("=/etc/", f"={root}/etc/") for word in words])
        assert (app.config_file, app.extra_args) == (f"{root}/etc/jupyterhub/jupyterhub_config.py", [])
        return
    assert program == f"{PROGRAMS}/aliquot"
    assert words[0] in COMMANDS
    if words[0] == "serve":
        server = GatewayServerApp()
        server.parse_command_line(words[1:])
        assert (server.config_file, server.extra_args) == ("/etc/aliquot/gateway.py", [])
        return
    parser = argparse.ArgumentParser()
    {"agent": agent_settings, "relay": relay_settings}[words[0]].add_arguments(parser)
    parser.parse_args(words[1:])


@pytest.mark.parametrize("unit", UNITS)
def test_a_restart_of_a_unit_ends_no_kernel(unit: str, root: Path) -> None:
    assert last(unit_settings(unit, root) or {}, "KillMode") == "process"


def test_all_parts_meet_in_one_runtime_folder_of_one_account(root: Path) -> None:
    for unit in ("aliquot-agent.service", "aliquot-relay.service", "aliquot-gateway.service"):
        settings = unit_settings(unit, root) or {}
        assert variables(settings)["ALIQUOT_RUNTIME_DIR"] == "/run/aliquot"
        assert last(settings, "User") == "aliquot"
    assert "d /run/aliquot 0711 aliquot aliquot -" in (root / "etc/tmpfiles.d/aliquot.conf").read_text()


# Each closes the device files, or implies NoNewPrivileges, under which nvidia-modprobe makes none.
CLOSES_A_GPU = {
    "PrivateDevices",
    "DevicePolicy",
    "DeviceAllow",
    "ProtectClock",
    "NoNewPrivileges",
    "RestrictAddressFamilies",
    "RestrictSUIDSGID",
    "SystemCallFilter",
    "SystemCallArchitectures",
    "MemoryDenyWriteExecute",
    "ProtectKernelModules",
    "LockPersonality",
}


@pytest.mark.parametrize("unit", ["aliquot-agent.service", "aliquot-relay.service", "jupyterhub.service"])
def test_no_hardening_takes_the_gpu_from_agent_and_kernels(unit: str, root: Path) -> None:
    settings = unit_settings(unit, root) or {}
    closing = {key for key in CLOSES_A_GPU & set(settings) if last(settings, key) not in ("no", "false")}
    assert closing == set()


def test_no_setting_of_the_relay_host_restricts_users_programs(root: Path) -> None:
    settings = unit_settings("aliquot-relay.service", root) or {}
    restricting = [key for key in settings if key.startswith(("Protect", "Private", "Restrict", "Memory", "UMask"))]
    assert restricting == []
    assert last(settings, "TasksMax") == "infinity"


def test_a_drop_in_adds_to_a_unit_and_an_empty_value_forgets(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    (folder / "a.service.d").mkdir(parents=True)
    (folder / "a.service").write_text("[Service]\nKillMode=mixed\nEnvironment=A=1 'B=2 3'\nExecStart=x \\\n y\n")
    (folder / "a.service.d" / "10.conf").write_text("[Service]\nKillMode=process\nExecStart=\n# C=1\n")
    settings = unit_settings("a.service", tmp_path)
    assert settings is not None
    assert last(settings, "KillMode") == "process"
    assert variables(settings) == {"A": "1", "B": "2 3"}
    assert "ExecStart" not in settings
    assert unit_settings("b.service", tmp_path) is None
