"""Checks of Aliquot as a service of this machine: `aliquot doctor --hub`, and the end of an installation.

They change nothing.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from jupyter_aliquot.gateway.base.sockets import peer
from jupyter_aliquot.gateway.installation.files import GATEWAY_UNIT, HUB_UNIT, NODE_UNITS
from jupyter_aliquot.gateway.installation.refusals import NEW_ENVIRONMENT, SYSTEM_PATH, closed_environment
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query
from jupyter_aliquot.gpu_hook.client.reports import UnreadableReportError, read_status
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, nvidia_driver
from jupyter_aliquot.provisioner.control_groups import MOUNTED, WITHOUT_GROUPS, ControlGroups
from jupyter_aliquot.provisioner.kernel_accounts import ACCOUNT_LIST
from jupyter_aliquot.provisioner.listener import ListenerError, account_name, listening_accounts

from .gateways import check_chosen_gateway, look_at_gateways
from .hub_tokens import check_hub_version, check_token_scopes
from .kernel_accounts import look_at_list
from .nvidia import driver_modes, nvidia_devices
from .runner import FAIL, OK, WARN, Check, Finding, examine
from .units import Settings, last, unit_settings, variables

GATEWAY_URL = "http://127.0.0.1:890"
_HUB_CONFIG = "/etc/jupyterhub/jupyterhub_config.py"
_FIRST_PERSON = 1000
_INSTALL = f"sudo {Path(sys.executable).parent}/aliquot install-service --hub"
_TMPFILES = "sudo systemd-tmpfiles --create /etc/tmpfiles.d/aliquot.conf"
_BOOTED = Path("/run/systemd/system")
_UNPRIVILEGED_PORT = 1024
_PASSED = 0o011  # group and others pass to the sockets that they know
_BETWEEN_LOOKS_SECONDS = 0.05


def check_deployment(
    user: str = "aliquot",
    url: str = GATEWAY_URL,
    *,
    with_hub: bool = True,
    root: Path = Path("/"),
    patience_seconds: float = 0.0,
) -> list[Finding]:
    """Return the findings of every check, in the order in which the parts need each other.

    ``patience_seconds``: how long sockets of services that have just been started may be missing.
    """
    here = Deployment(user, url, with_hub, root, patience_seconds)
    checks: list[Check] = [here.check_environment, here.check_account, here.check_home, here.check_units]
    checks += [
        here.check_kernel_accounts,
        here.check_runtime_folder,
        here.check_sockets,
        here.check_groups,
        here.check_driver,
        here.check_driver_modes,
    ]
    if with_hub:
        checks += [here.check_port, here.check_proxy, check_hub_version, check_token_scopes, check_chosen_gateway]
        checks += [here.check_gateways]
    return examine(checks)


class Deployment:
    """One machine's installation. ``root`` has its units and its runtime folder."""

    def __init__(self, user: str, url: str, with_hub: bool, root: Path, patience_seconds: float = 0.0) -> None:
        self.user = user
        self.url = url
        self.root = root
        self.units = (*NODE_UNITS, HUB_UNIT if with_hub else GATEWAY_UNIT)
        self._account = _account(user)
        self._deadline = time.monotonic() + patience_seconds

    def check_environment(self) -> Sequence[Finding]:
        """Check that other accounts can run this Python."""
        if found := closed_environment(Path(sys.prefix), Path(sys.executable)):
            remedy = f"install Aliquot where they may: {NEW_ENVIRONMENT}"
            return [Finding("environment", FAIL, f"other accounts cannot run {found}", remedy)]
        return [Finding("environment", OK, f"{sys.prefix}, which every account may enter")]

    def check_account(self) -> Sequence[Finding]:
        """Check the account of agent, relay host and gateway."""
        found = self._account
        if found is None:
            return [Finding("account", FAIL, f"this machine has no account {self.user}", _INSTALL)]
        if found.pw_uid == 0 or found.pw_uid >= _FIRST_PERSON:
            whose = "root" if found.pw_uid == 0 else f"a person's (uid {found.pw_uid})"
            return [Finding("account", FAIL, f"{self.user} is {whose}", "use a system account, with a uid below 1000")]
        return [Finding("account", OK, f"{self.user}, uid {found.pw_uid}")]

    def check_kernel_accounts(self) -> Sequence[Finding]:
        """Check root's list of the accounts that may have kernels."""
        return look_at_list(ACCOUNT_LIST, self.root)

    def check_home(self) -> Sequence[Finding]:
        """Check the account's home, where the gateway keeps its records of kernels."""
        if (account := self._account) is None:
            return []
        home = Path(account.pw_dir)
        remedy = f"sudo install -d -o {self.user} -g {self.user} -m 700 {home}"
        try:
            found = home.stat()
        except OSError as error:
            return [Finding("home", FAIL, f"{home}: {error.strerror}", remedy)]
        if found.st_uid != account.pw_uid:
            return [Finding("home", FAIL, f"{home} belongs to {account_name(found.st_uid)}", remedy)]
        if (mode := stat.S_IMODE(found.st_mode)) & 0o077:
            return [Finding("home", FAIL, f"{home} has mode {mode:04o}: others may look into it", remedy)]
        return [Finding("home", OK, f"{home}, mode {mode:04o}")]

    def check_units(self) -> Sequence[Finding]:
        """Check that each unit is there, ends no kernel when it is restarted, and runs."""
        return [self._check_unit(name) for name in self.units]

    def _check_unit(self, name: str) -> Finding:
        if (settings := unit_settings(name, self.root)) is None:
            return Finding("units", FAIL, f"{name} is not installed", _INSTALL)
        mode = last(settings, "KillMode", "control-group")
        if mode != "process":
            remedy = f"{_INSTALL}; or a drop-in with [Service] KillMode=process (systemctl edit {name})"
            return Finding("units", FAIL, f"{name} has KillMode={mode}: its restart ends kernels", remedy)
        if not _BOOTED.is_dir():
            return Finding("units", WARN, f"{name}: KillMode=process; systemd does not run here", "")
        state = _state_of(name)
        if state in ("active", "activating", "reloading"):
            return Finding("units", OK, f"{name}: {state}, KillMode=process")
        how = WARN if name == HUB_UNIT else FAIL
        return Finding("units", how, f"{name} is {state}", f"sudo systemctl restart {name}; journalctl -u {name}")

    def check_runtime_folder(self) -> Sequence[Finding]:
        """Check the folder of the sockets."""
        folder = self._runtime().path
        try:
            found = folder.stat()
        except OSError as error:
            return [Finding("runtime folder", FAIL, f"{folder}: {error.strerror}", _TMPFILES)]
        mode, owner = stat.S_IMODE(found.st_mode), account_name(found.st_uid)
        if owner not in (self.user, "root"):
            remedy = f"remove it while nothing runs, then {_TMPFILES}"
            return [Finding("runtime folder", FAIL, f"{folder} belongs to {owner}, not to {self.user}", remedy)]
        # A folder of root may be one of the account's group, which makes its sockets there.
        shares = self._account is not None and (found.st_uid, found.st_gid) == (0, self._account.pw_gid)
        if mode & (0o006 if shares else 0o066):
            found_mode = f"{folder} has mode {mode:04o}: others may list it or write into it"
            return [Finding("runtime folder", FAIL, found_mode, f"sudo chmod 711 {folder}")]
        if HUB_UNIT in self.units and mode & _PASSED != _PASSED:
            found_mode = f"{folder} has mode {mode:04o}: kernels, which run as their owners, cannot reach their sockets"
            return [Finding("runtime folder", FAIL, found_mode, _TMPFILES)]
        return [Finding("runtime folder", OK, f"{folder} of {owner}, mode {mode:04o}")]

    def check_sockets(self) -> Sequence[Finding]:
        """Check who listens at the sockets of agent and relay host."""
        runtime = self._runtime()
        parts = ((runtime.agent_socket, NODE_UNITS[0]), (runtime.relay_socket, NODE_UNITS[1]))
        return [self._check_socket(path, unit) for path, unit in parts]

    def check_groups(self) -> Sequence[Finding]:
        """Check that kernels have control groups of their own."""
        if ControlGroups(self.root / MOUNTED.relative_to("/")).are_prepared():
            return [Finding("control groups", OK, "kernels have limits of memory and processes, and share the CPUs")]
        remedy = f"look why: journalctl -u {NODE_UNITS[1]}; in a container, give it its own control groups"
        return [Finding("control groups", WARN, WITHOUT_GROUPS, remedy)]

    def _check_socket(self, path: Path, unit: str) -> Finding:
        while (found := peer(path)) is None and time.monotonic() < self._deadline:
            time.sleep(_BETWEEN_LOOKS_SECONDS)  # a socket has no event
        if found is None:
            return Finding("sockets", FAIL, f"no process listens at {path}", f"sudo systemctl restart {unit}")
        if account_name(found.uid) not in (self.user, "root"):
            remedy = f"end that process, then sudo systemctl restart {unit}"
            return Finding("sockets", FAIL, f"{path} is held by {found}, not by one of {self.user}", remedy)
        return Finding("sockets", OK, f"{path}: {found}")

    def check_driver(self) -> Sequence[Finding]:
        """Check that a machine with NVIDIA devices gives those to kernels, and no software GPU."""
        devices, driver = nvidia_devices(), nvidia_driver()
        words = last(unit_settings(NODE_UNITS[0], self.root) or {}, "ExecStart").split()
        chosen = words[words.index("--driver") + 1] if "--driver" in words[:-1] else "auto"
        if devices and driver is None:
            found = f"NVIDIA devices without a usable driver: {', '.join(devices)}"
            remedy = "install NVIDIA's driver for CUDA 12.4 or newer, and look at nvidia-smi"
            return [Finding("driver", FAIL, found, remedy)]
        if driver is not None and chosen != "nvidia":
            found = f"this machine has an NVIDIA driver, but {NODE_UNITS[0]} has --driver {chosen}"
            how = FAIL if chosen == "softgpu" else WARN  # auto takes the software GPU where the driver fails
            return [Finding("driver", how, found, f"{_INSTALL} --driver nvidia")]
        if driver is None:
            if chosen == "nvidia":
                found = f"{NODE_UNITS[0]} has --driver nvidia, but this machine has no NVIDIA driver and device"
                return [Finding("driver", FAIL, found, f"for a trial on the software GPU: {_INSTALL} --driver softgpu")]
            found = "no NVIDIA device is here: kernels get the software GPU"
            return [Finding("driver", WARN, found, f"with one: install NVIDIA's driver, then {_INSTALL}")]
        return [Finding("driver", OK, f"NVIDIA: {', '.join(devices) or driver.cuda}")]

    def check_driver_modes(self) -> Sequence[Finding]:
        """Check the driver's settings of each device, as the node agent reads them."""
        try:
            told = query("status", runtime_dir=self._runtime().path, kernels=False)
            return driver_modes(read_status(told).devices)
        except (AgentClientError, UnreadableReportError):
            return []  # check_sockets tells of an agent that does not answer

    def check_port(self) -> Sequence[Finding]:
        """Check who listens at the gateway's address."""
        try:
            found = listening_accounts(self.url)
        except ListenerError as error:
            return [Finding("port", WARN, str(error), "look with: ss -ltnp")]
        if found is None:
            return [Finding("port", OK, f"{self.url} is no address of this machine's loopback: not looked at")]
        names = sorted(map(account_name, found))
        if others := [name for name in names if name not in (self.user, "root")]:
            told = f"{self.url} is held by a process of {', '.join(others)}, not by the gateway of {self.user}"
            return [Finding("port", FAIL, told, "end that process (ss -ltnp), then restart the Hub")]
        if names:
            return [Finding("port", OK, f"{self.url} is held by a process of {', '.join(names)}")]
        if _port_of(self.url) >= _UNPRIVILEGED_PORT:
            told = f"{self.url} is free, and every account of this machine may take it"
            return [Finding("port", WARN, told, f"choose one below 1024: configure(c, url={GATEWAY_URL!r})")]
        return [Finding("port", OK, f"{self.url} is free: the Hub's gateway takes it, and no other account can")]

    def check_proxy(self) -> Sequence[Finding]:
        """Check the Hub's proxy and Node.js on the PATH of the Hub's unit."""
        settings: Settings = unit_settings(HUB_UNIT, self.root) or {}
        own = os.pathsep.join((str(Path(sys.executable).parent), SYSTEM_PATH))
        path = variables(settings).get("PATH", own)
        findings = []
        for name, remedy in (
            ("node", "apt-get install nodejs npm"),
            ("configurable-http-proxy", "npm install --global configurable-http-proxy"),
        ):
            if found := shutil.which(name, path=path):
                findings.append(Finding("proxy", OK, found))
            else:
                findings.append(Finding("proxy", FAIL, f"{name} is not on the Hub's PATH, {path}", remedy))
        return findings

    def check_gateways(self) -> Sequence[Finding]:
        """Check the gateways on other machines that the Hub's configuration names."""
        settings: Settings = unit_settings(HUB_UNIT, self.root) or {}
        words = last(settings, "ExecStart").split()
        named = [word.partition("=")[2] for word in words if word.startswith("--config=")]
        config = Path(named[-1] if named else _HUB_CONFIG)
        return look_at_gateways(self.root / config.relative_to("/"), variables(settings))

    def _runtime(self) -> RuntimeDir:
        settings = unit_settings(NODE_UNITS[0], self.root) or {}
        chosen = Path(variables(settings).get("ALIQUOT_RUNTIME_DIR", "/run/aliquot"))
        return RuntimeDir(self.root / chosen.relative_to("/"))


def _account(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _state_of(unit: str) -> str:
    try:
        told = subprocess.run(["systemctl", "is-active", unit], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown to systemctl"
    return told.stdout.strip() or "unknown"


def _port_of(url: str) -> int:
    return urlsplit(url).port or 80
