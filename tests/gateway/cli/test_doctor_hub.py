"""`aliquot doctor --hub`: its findings on an installation, each with what to do."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from ports import free_port

from jupyter_aliquot.gateway.base.version import installed_version
from jupyter_aliquot.gateway.doctor import deployment, hub_tokens, kernel_accounts, nvidia
from jupyter_aliquot.gateway.doctor.deployment import Deployment
from jupyter_aliquot.gateway.doctor.gateways import check_chosen_gateway
from jupyter_aliquot.gateway.doctor.runner import FAIL, OK, WARN
from jupyter_aliquot.gateway.installation.files import Installation, planned_files
from jupyter_aliquot.gpu_hook.paths import Driver, RuntimeDir
from jupyter_aliquot.provisioner.control_groups import WITHOUT_GROUPS

ME = pwd.getpwuid(os.getuid()).pw_name
AGENT = "etc/systemd/system/aliquot-agent.service"


@pytest.fixture
def root(a_runtime_folder: Path) -> Path:
    """Return a folder with the installed units and a runtime folder. Its sockets have short paths."""
    for file in planned_files(Installation(ME, Path("/opt/aliquot/bin"), "nvidia", True)):
        path = a_runtime_folder / file.path.relative_to("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    (a_runtime_folder / "run" / "aliquot").mkdir(parents=True, mode=0o711)
    return a_runtime_folder


def here(root: Path, url: str = "http://127.0.0.1:890", user: str = ME) -> Deployment:
    return Deployment(user, url, True, root)


def test_a_machine_without_an_installation_fails_each_check_with_a_remedy(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "jupyter_aliquot.gateway.cli.app",
        "doctor",
        "--hub",
        "--user",
        "no-such",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (1, False), done.stderr
    (account,) = (one for one in told["findings"] if one["about"] == "account")
    assert account["found"] == "this machine has no account no-such"
    assert account["remedy"].endswith("aliquot install-service --hub")
    assert [one for one in told["findings"] if one["state"] == FAIL and not one["remedy"]] == []
    found = deployment.check_deployment("no-such", root=tmp_path)
    assert [one.found for one in found if one.about == "units"] == [
        f"{unit} is not installed" for unit in ("aliquot-agent.service", "aliquot-relay.service", "jupyterhub.service")
    ]


def test_a_unit_whose_restart_ends_kernels_fails(root: Path) -> None:
    path = root / "etc/systemd/system/jupyterhub.service.d/aliquot.conf"
    path.write_text("")
    *_, found = here(root).check_units()
    assert (found.state, found.found) == (
        FAIL,
        "jupyterhub.service has KillMode=control-group: its restart ends kernels",
    )
    assert "systemctl edit jupyterhub.service" in found.remedy


@pytest.mark.parametrize(
    ("uid", "want"), [(0, "gpus is root"), (1000, "gpus is a person's (uid 1000)"), (999, "gpus, uid 999")]
)
def test_the_account_is_neither_roots_nor_a_persons(
    uid: int, want: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = SimpleNamespace(pw_name="gpus", pw_uid=uid, pw_gid=uid, pw_dir="/nowhere")
    monkeypatch.setattr(deployment.pwd, "getpwnam", lambda _: account)
    (found,) = here(root, user="gpus").check_account()
    assert (found.state, found.found) == (OK if uid == 999 else FAIL, want)


def test_a_home_that_others_look_into_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = root / "home"
    account = SimpleNamespace(pw_name=ME, pw_uid=os.getuid(), pw_gid=os.getgid(), pw_dir=str(home))
    monkeypatch.setattr(deployment.pwd, "getpwnam", lambda _: account)
    (found,) = here(root).check_home()
    assert (found.state, found.found) == (FAIL, f"{home}: No such file or directory")
    home.mkdir()
    for mode, want in ((0o755, FAIL), (0o700, OK)):
        home.chmod(mode)
        (found,) = here(root).check_home()
        assert (found.state, f"mode {mode:04o}" in found.found) == (want, True)


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        (None, [(OK, "no list at /etc/aliquot/kernel-accounts: kernels may be of each account")]),
        ("@daemon", [(OK, "lists the accounts that may have kernels")]),
        ("@no-such", [(OK, ""), (WARN, "lists @no-such, and this machine has no such group")]),
        ("no-such", [(OK, ""), (WARN, "lists no-such, and this machine has no such account")]),
        ("root", [(OK, ""), (WARN, "lists root, an account of the system (uid 0): its kernels are refused")]),
        ("a b", [(FAIL, "line 1 of the list of accounts")]),
    ],
)
def test_the_list_of_the_accounts_of_kernels_is_told(
    lines: str | None, want: list[tuple[str, str]], root: Path
) -> None:
    path = root / "etc/aliquot/kernel-accounts"
    path.parent.mkdir(parents=True)
    if lines is not None:
        path.write_text(lines)
    found = here(root).check_kernel_accounts()
    assert [one.state for one in found] == [state for state, _ in want]
    assert all(words in one.found for one, (_, words) in zip(found, want, strict=True))
    assert all(one.remedy for one in found if one.state != OK)


def test_a_list_that_others_can_change_and_an_administrator_in_it_are_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "etc/aliquot/kernel-accounts"
    path.parent.mkdir(parents=True)
    path.write_text("ada")
    path.chmod(0o664)
    (found,) = here(root).check_kernel_accounts()
    assert found.state == FAIL
    assert "counts only where root alone can change it" in found.found
    assert "chmod go-w" in found.remedy
    path.chmod(0o644)
    ada = SimpleNamespace(pw_name="ada", pw_uid=60000, pw_gid=60000, pw_dir="/", pw_shell="/bin/sh")
    monkeypatch.setattr(kernel_accounts.pwd, "getpwnam", lambda name: ada)
    monkeypatch.setattr(kernel_accounts, "account_groups", lambda account: frozenset({"docker", "ada"}))
    _, found = here(root).check_kernel_accounts()
    assert (found.state, "of the group docker: a gateway that is taken over becomes root" in found.found) == (
        WARN,
        True,
    )


@pytest.mark.parametrize(("mode", "want"), [(0o711, OK), (0o755, FAIL), (0o733, FAIL)])
def test_the_runtime_folder_is_neither_listed_nor_written_by_others(mode: int, want: str, root: Path) -> None:
    (root / "run" / "aliquot").chmod(mode)
    (found,) = here(root).check_runtime_folder()
    assert (found.state, bool(found.remedy)) == (want, want == FAIL)


@pytest.mark.parametrize("mode", [0o700, 0o701, 0o710])
def test_kernels_that_run_as_their_owners_pass_through_the_runtime_folder(mode: int, root: Path) -> None:
    (root / "run" / "aliquot").chmod(mode)
    (found,) = here(root).check_runtime_folder()
    assert (found.state, f"has mode {mode:04o}: kernels, which run as their owners" in found.found) == (FAIL, True)
    assert found.remedy == "sudo systemd-tmpfiles --create /etc/tmpfiles.d/aliquot.conf"
    (found,) = Deployment(ME, "http://127.0.0.1:890", False, root).check_runtime_folder()
    assert found.state == OK, "without a Hub they run as the gateway's account"


def test_a_socket_is_said_with_its_process_and_a_missing_one_fails(root: Path) -> None:
    runtime = RuntimeDir(root / "run" / "aliquot")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(runtime.agent_socket))
        listening.listen(1)
        agent, relay = here(root).check_sockets()
    assert (agent.state, f"pid {os.getpid()} of {ME}" in agent.found) == (OK, True)
    assert (relay.state, relay.found) == (FAIL, f"no process listens at {runtime.relay_socket}")
    assert relay.remedy == "sudo systemctl restart aliquot-relay.service"


def test_a_foreign_process_at_the_gateways_port_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    (found,) = here(root, url).check_port()
    assert (found.state, f"{url} is free, and every account" in found.found) == (WARN, True)
    monkeypatch.setattr(deployment, "listening_accounts", lambda _: {4711})
    (found,) = here(root, url).check_port()
    assert (found.state, "is held by a process of 4711, not by the gateway of" in found.found) == (FAIL, True)


def test_a_port_below_1024_is_free_for_the_gateway_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "listening_accounts", lambda _: set())
    (found,) = here(root).check_port()
    assert (found.state, "no other account can" in found.found) == (OK, True)


DRIVER = Driver("nvidia", Path("/lib/libcuda.so.1"), Path("/lib/libnvidia-ml.so.1"))


@pytest.mark.parametrize(
    ("devices", "driver", "unit", "want", "words"),
    [
        (["0000:01:00.0"], None, "nvidia", FAIL, "NVIDIA devices without a usable driver: 0000:01:00.0"),
        (["0000:01:00.0"], None, "softgpu", FAIL, "NVIDIA devices without a usable driver: 0000:01:00.0"),
        (["0000:01:00.0"], DRIVER, "softgpu", FAIL, "has --driver softgpu"),
        (["0000:01:00.0"], DRIVER, "auto", WARN, "has --driver auto"),
        (["0000:01:00.0"], DRIVER, "nvidia", OK, "NVIDIA: 0000:01:00.0"),
        ([], None, "nvidia", FAIL, "has --driver nvidia, but this machine has no NVIDIA driver"),
        ([], None, "softgpu", WARN, "kernels get the software GPU"),
    ],
)
def test_a_software_gpu_is_never_silent(
    devices: list[str],
    driver: Driver | None,
    unit: str,
    want: str,
    words: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deployment, "nvidia_devices", lambda: devices)
    monkeypatch.setattr(deployment, "nvidia_driver", lambda: driver)
    text = (root / AGENT).read_text()
    assert "--driver nvidia" in text
    (root / AGENT).write_text(text.replace("--driver nvidia", f"--driver {unit}"))
    (found,) = here(root).check_driver()
    assert (found.state, words in found.found) == (want, True), found


def test_devices_are_found_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert nvidia.nvidia_devices(tmp_path) == ["a"]
    assert nvidia.nvidia_devices(tmp_path / "none") == []


def test_the_proxy_is_looked_for_on_the_path_of_the_hubs_unit(root: Path, tmp_path: Path) -> None:
    unit = root / "etc/systemd/system/jupyterhub.service"
    unit.write_text(f"[Service]\nEnvironment=PATH={tmp_path}\n")
    (tmp_path / "node").touch(mode=0o755)
    node, proxy = here(root).check_proxy()
    assert (node.state, proxy.state) == (OK, FAIL)
    assert proxy.remedy == "npm install --global configurable-http-proxy"


@pytest.mark.parametrize(("version", "want"), [("6.1.1", OK), ("5.2.0", FAIL), ("7.0.0", FAIL)])
def test_a_hub_of_another_version_fails(version: str, want: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_tokens.importlib.metadata, "version", lambda _: version)
    (found,) = hub_tokens.check_hub_version()
    assert (found.state, version in found.found) == (want, True)


@pytest.mark.parametrize(
    ("scopes", "want", "words"),
    [
        (["access:services!service=aliquot", "read:users:name!user=ada"], OK, "nothing else"),
        (["access:services!service=aliquot", "access:servers!user=ada"], WARN, "access:servers!user=ada"),
        (["read:users:name!user=ada"], FAIL, "lacks the scope access:services"),
        (None, FAIL, "the Hub refuses it (403)"),
    ],
)
def test_the_scopes_of_a_servers_token_are_told(scopes: list[str] | None, want: str, words: str) -> None:
    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert (self.path, self.headers["Authorization"]) == ("/hub/api/user", "token t")
            self.send_response(403 if scopes is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"scopes": scopes}).encode())

        def log_message(self, *words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        api = f"http://127.0.0.1:{server.server_port}/hub/api"
        (found,) = hub_tokens.check_token_scopes({"JUPYTER_GATEWAY_AUTH_TOKEN": "t", "JUPYTERHUB_API_URL": api})
        serving.join()
    assert (found.state, words in found.found) == (want, True), found


def test_without_a_token_the_place_of_one_is_named() -> None:
    (found,) = hub_tokens.check_token_scopes({})
    assert (found.state, "the terminal of such a server has one" in found.found) == (OK, True)


CONFIG = "etc/jupyterhub/jupyterhub_config.py"
TWO = """
import os
from jupyter_aliquot.gateway.hub import configure
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:8000/hub-of-the-lab/"
token = os.environ["GPU_2_TOKEN"]
configure(c, gateways=[{"name": "gpu-1", "url": "http://127.0.0.1:1", "gateway_user": "aliquot"},
    {"name": "gpu-2", "url": "http://127.0.0.1:2", "api_token": token}])
"""


def test_gateways_of_the_hubs_configuration_are_named_and_looked_at(root: Path) -> None:
    assert here(root).check_gateways() == [], "the installed configuration has one gateway"
    (root / CONFIG).write_text(TWO)
    (root / CONFIG).chmod(0o600)
    (found,) = here(root).check_gateways()
    assert (found.state, "KeyError: 'GPU_2_TOKEN'" in found.found) == (WARN, True), found
    unit = root / "etc/systemd/system/jupyterhub.service"
    unit.write_text(f"{unit.read_text()}\n[Service]\nEnvironment=GPU_2_TOKEN=a-long-secret\n")
    first, *others = here(root).check_gateways()
    assert "names 2: gpu-1, gpu-2. All other checks are of this machine alone" in first.found
    assert [(one.state, one.found.split(" does not")[0]) for one in others[:2]] == [
        (FAIL, "gpu-1 at http://127.0.0.1:1/hub-of-the-lab/services/gpu-1"),
        (FAIL, "gpu-2 at http://127.0.0.1:2/hub-of-the-lab/services/gpu-2"),
    ]
    (token,) = others[2:]
    assert (token.state, "could not be asked about the api_token of gpu-2" in token.found) == (WARN, True)
    assert not [one for one in (first, *others) if "a-long-secret" in f"{one.found}{one.remedy}"]


def test_a_configuration_that_others_can_change_is_not_run(root: Path) -> None:
    (root / CONFIG).write_text(TWO)
    (root / CONFIG).chmod(0o666)
    (found,) = here(root).check_gateways()
    assert (found.state, "other accounts than root can change it" in found.found) == (WARN, True)
    assert "chmod go-w" in found.remedy


def test_kernels_without_control_groups_are_told_with_what_to_do(root: Path) -> None:
    (found,) = here(root).check_groups()
    assert (found.state, found.about, found.found) == (WARN, "control groups", WITHOUT_GROUPS)
    assert "journalctl -u aliquot-relay.service" in found.remedy
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cgroup.controllers").write_text("memory cpu pids")
    (root / "sys/fs/cgroup/aliquot.slice").mkdir()
    (found,) = here(root).check_groups()
    assert (found.state, found.found) == (OK, "kernels have limits of memory and processes, and share the CPUs")


@pytest.mark.parametrize(
    ("version", "state", "want"),
    [
        (installed_version(), OK, f"version {installed_version()}"),
        ("0.0.1", WARN, f"is version 0.0.1, and this environment has {installed_version()}"),
        (None, FAIL, "does not tell its status"),
    ],
)
def test_a_users_server_compares_its_version_with_its_gateways(
    version: str | None, state: str, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            body = json.dumps({} if version is None else {"version": version}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv("JUPYTER_GATEWAY_URL", f"http://127.0.0.1:{server.server_port}/services/aliquot/")
        monkeypatch.setenv("JUPYTER_GATEWAY_AUTH_TOKEN", "a-token")
        (found,) = check_chosen_gateway()
    assert (found.state, want in found.found) == (state, True), found
    assert found.remedy or state == OK
    assert seen == [("/services/aliquot/aliquot/api/v1/status", "token a-token")]


def test_a_server_without_a_gateway_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTER_GATEWAY_URL", raising=False)
    assert not check_chosen_gateway()
