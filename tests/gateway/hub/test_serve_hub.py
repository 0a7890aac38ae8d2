"""`aliquot serve --hub`: its message about the settings that are missing."""

from __future__ import annotations

import errno
import os
import pwd
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from quick_start import python_m

from jupyter_aliquot.gateway.base.errors import CommandError
from jupyter_aliquot.gateway.cli.app import main
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
from jupyter_aliquot.gateway.serverapp.hub_address import check_address

from .test_hub_service import ENVIRONMENT


def test_outside_a_hub_it_names_the_variables_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--hub"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert all(name in said for name in ENVIRONMENT)
    assert "docs/reference/hub-identity.md" in said


def test_without_jupyterhub_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    ours = [
        name for name in sys.modules if name.startswith("jupyter_aliquot.gateway.hub_") or name.endswith(".hub_app")
    ]
    for name in [*ours, *(name for name in sys.modules if name.partition(".")[0] == "jupyterhub")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jupyterhub", None)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--hub"])
    assert ended.value.code == 1
    assert "pip install jupyterhub" in capsys.readouterr().err
    assert "JUPYTERHUB_API_TOKEN" not in os.environ


PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], stdout=sys.stdout)
child.wait(*map(float, sys.argv[2:]))
"""
CHILD = """
import os, sys, time
from jupyter_aliquot.gateway.cli.commands import servers
servers._serve_hub = lambda words: (print(os.getpid(), words, flush=True), time.sleep(600))
servers.ServeCommand(extra_args=["--hub", f"--end-with-parent={sys.argv[1]}", "--x=1"]).start()
"""
LATE_CHILD = f"import os, time\nfirst = os.getppid()\nwhile os.getppid() == first: time.sleep(0.01)\n{CHILD}"


def test_a_gateway_ends_with_the_hub_that_started_it_however_that_ends() -> None:
    hub = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert hub.stdout is not None
    pid, words = hub.stdout.readline().split(maxsplit=1)
    assert words.strip() == "['--x=1']"
    with open(f"/proc/{pid}/stat"):  # it lives
        descriptor = os.pidfd_open(int(pid))
    hub.kill()
    hub.wait()
    assert select.select([descriptor], [], [], 60.0)[0], "it lives on"
    os.close(descriptor)


def test_a_gateway_whose_hub_ended_before_it_was_ready_ends_as_well() -> None:
    hub = subprocess.run([sys.executable, "-c", PARENT, LATE_CHILD, "0.1"], capture_output=True, text=True, timeout=60)
    assert hub.stdout == "", "it serves on"


def test_a_configuration_that_cannot_be_read_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--hub", f"--config={tmp_path}/gateway.py"])
    said = capsys.readouterr().err
    assert (ended.value.code, "cannot read it: No such file or directory" in said) == (1, True), said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "gateway.py",
            "c.Limits.kernels_per_user = 1\nc.Limits.kernels_per_user = one\n",
            "fails: NameError: name 'one'",
        ),
        ("gateway.json", '{"Limits": {', "fails: JSONDecodeError"),
        ("gateway.v2", "", "reads files .py and .json alone"),
    ],
)
def test_a_configuration_that_jupyter_would_skip_ends_the_start(
    name: str,
    text: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable, value in ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    (tmp_path / name).write_text(text)
    (tmp_path / "gateway.v2.py").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--hub", f"--config={tmp_path}/{name}"])
    said = capsys.readouterr().err
    assert (ended.value.code, words in said) == (1, True), said
    assert "Traceback" not in said


def test_a_configuration_may_be_named_without_its_kind(tmp_path: Path) -> None:
    (tmp_path / "gateway.json").write_text('{"Limits": {"kernels_per_user": 3}}')
    app = GatewayServerApp(config_file=f"{tmp_path}/gateway")
    app.load_config_file()
    assert app.config.Limits.kernels_per_user == 3


def test_a_setting_of_the_hubs_users_that_does_not_exist_ends_the_start(tmp_path: Path) -> None:
    words = ["serve", "--hub", "--allow-root", "--HubIdentityProvider.recheck_secnds=1"]
    ran = subprocess.run(
        [sys.executable, "-c", f"from jupyter_aliquot.gateway.cli.app import main; main({words})"],
        env={**os.environ, **ENVIRONMENT, "HOME": str(tmp_path), "ALIQUOT_RUNTIME_DIR": f"{tmp_path}/run"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, "Did you mean recheck_seconds?" in ran.stderr) == (1, True), ran.stderr


def test_a_foreign_program_at_the_gateways_port_is_named_with_its_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        port = squatter.getsockname()[1]
        environment = os.environ | ENVIRONMENT | {"JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}"}
        folders = {
            name: str(tmp_path) for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "ALIQUOT_RUNTIME_DIR")
        }
        done = subprocess.run(
            [
                *python_m("jupyter_aliquot.gateway.cli.app"),
                "serve",
                "--hub",
                "--allow-root",
                "--Aliquot.start_agent=False",
            ],
            env=environment | folders,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    me = pwd.getpwuid(os.getuid()).pw_name
    want = (
        f"aliquot: this gateway cannot listen at 127.0.0.1:{port}: a program of the account {me} holds it, and "
        "JupyterHub takes that for the gateway. End it"
    )
    assert (done.returncode, want in done.stderr) == (1, True), done.stderr


def test_a_port_without_the_right_to_it_is_said_with_who_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(CommandError, match=r"may not listen at 127\.0\.0\.1:890: the port is below 1024"):
        check_address("127.0.0.1", 890)
