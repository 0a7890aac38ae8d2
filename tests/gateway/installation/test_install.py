"""`aliquot install-service`: what it writes below a folder, what it keeps, and what it refuses."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_aliquot.gateway.base.errors import CommandError
from jupyter_aliquot.gateway.cli.app import main
from jupyter_aliquot.gateway.installation import refusals

PROGRAMS = Path(os.path.abspath(sys.executable)).parent
HUB_UNITS = {
    "aliquot-agent.service",
    "aliquot-relay.service",
    "jupyterhub.service",
    "jupyterhub.service.d/aliquot.conf",
}


def install_service(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "jupyter_aliquot.gateway.cli.app",
        "install-service",
        "--root",
        str(root),
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def files(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def units(root: Path) -> set[str]:
    folder = "etc/systemd/system/"
    return {name.removeprefix(folder) for name in files(root) if name.startswith(folder)}


def test_with_a_hub_it_writes_units_account_folders_and_a_configuration(tmp_path: Path) -> None:
    done = install_service(tmp_path, "--hub", "--driver", "nvidia", "--user", "gpu")
    assert done.returncode == 0, done.stderr
    written = files(tmp_path)
    assert units(tmp_path) == HUB_UNITS
    assert [f"wrote: {tmp_path / name}" in done.stdout for name in written] == [True] * len(written)
    agent = written["etc/systemd/system/aliquot-agent.service"]
    assert f"\nExecStart={PROGRAMS}/aliquot agent --driver nvidia\n" in agent
    assert "\nUser=gpu\n" in agent
    assert "\nu gpu - " in written["etc/sysusers.d/aliquot.conf"]
    assert "\nd /run/aliquot 1771 root gpu -\n" in written["etc/tmpfiles.d/aliquot.conf"]
    relay = written["etc/systemd/system/aliquot-relay.service"]
    assert "\nUser=root\n" in relay, "it starts kernels as their owners"
    assert f"\nExecStart={PROGRAMS}/aliquot relay --account=gpu\n" in relay
    configuration = written["etc/jupyterhub/jupyterhub_config.py"]
    assert 'gateway_user="gpu"' in configuration
    assert "--Aliquot.driver=nvidia" in configuration
    assert "/opt/aliquot/bin" not in "".join(written.values())


def test_without_a_hub_the_gateway_has_a_unit(tmp_path: Path) -> None:
    assert install_service(tmp_path).returncode == 0
    assert units(tmp_path) == {"aliquot-agent.service", "aliquot-relay.service", "aliquot-gateway.service"}
    relay = files(tmp_path)["etc/systemd/system/aliquot-relay.service"]
    assert "\nUser=aliquot\n" in relay
    assert f"\nExecStart={PROGRAMS}/aliquot relay\n" in relay


def test_a_second_time_changes_nothing_and_a_configuration_stays_the_administrators(tmp_path: Path) -> None:
    assert install_service(tmp_path, "--hub").returncode == 0
    configuration = tmp_path / "etc/jupyterhub/jupyterhub_config.py"
    configuration.write_text("c.JupyterHub.port = 1\n")
    before = files(tmp_path)
    done = install_service(tmp_path, "--hub")
    assert (done.returncode, "wrote" in done.stdout) == (0, False), done.stdout
    assert files(tmp_path) == before


def test_an_older_unit_is_replaced(tmp_path: Path) -> None:
    assert install_service(tmp_path, "--hub", "--driver", "softgpu").returncode == 0
    done = install_service(tmp_path, "--hub", "--driver", "nvidia")
    assert [line for line in done.stdout.splitlines() if line.startswith("wrote")] == [
        f"wrote: {tmp_path}/etc/systemd/system/aliquot-agent.service"
    ]


def test_a_dry_run_says_the_steps_and_writes_nothing(tmp_path: Path) -> None:
    done = install_service(tmp_path, "--hub", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"would write: {tmp_path}/etc/systemd/system/aliquot-relay.service" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_uninstall_leaves_nothing_but_what_is_the_administrators(tmp_path: Path) -> None:
    assert install_service(tmp_path, "--hub").returncode == 0
    assert install_service(tmp_path, "--hub", "--uninstall").returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert install_service(tmp_path, "--hub").returncode == 0
    own = tmp_path / "etc/jupyterhub/jupyterhub_config.py"
    own.write_text(own.read_text() + "c.JupyterHub.port = 1\n")
    done = install_service(tmp_path, "--hub", "--uninstall")
    assert f"kept: {own}, which is yours" in done.stdout
    assert list(files(tmp_path)) == ["etc/jupyterhub/jupyterhub_config.py"]


@pytest.mark.parametrize("folder", ["etc/systemd/system", "usr/lib/systemd/system"])
def test_a_hubs_own_unit_stays_and_gets_a_drop_in(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "jupyterhub.service").write_text("[Service]\nPrivateDevices=yes\n")
    assert install_service(tmp_path, "--hub").returncode == 0
    assert files(tmp_path)[f"{folder}/jupyterhub.service"] == "[Service]\nPrivateDevices=yes\n"
    assert "PrivateDevices=no" in files(tmp_path)["etc/systemd/system/jupyterhub.service.d/aliquot.conf"]


def test_a_unit_that_an_administrator_wrote_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "etc/systemd/system/aliquot-agent.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\n")
    done = install_service(tmp_path, "--hub")
    assert done.returncode == 1
    assert done.stderr == (
        f"aliquot: {path} exists and was not written by install-service. Move it away, and put what is special in it "
        "into a drop-in: systemctl edit aliquot-agent.service\n"
    )
    assert list(files(tmp_path)) == ["etc/systemd/system/aliquot-agent.service"]


def test_a_name_that_no_account_can_have_is_refused(tmp_path: Path) -> None:
    done = install_service(tmp_path, "--user", "a b")
    assert (done.returncode, "'a b' is no name of an account" in done.stderr) == (2, True), done.stderr


def test_without_root_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CommandError, match=r"which user 1000 may not\. Run it as root, or use --root"):
        refusals.check_rights()


def test_without_systemd_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(refusals, "_BOOTED", tmp_path / "none")
    with pytest.raises(CommandError, match=r"systemd does not run here: .* Use --root FOLDER"):
        refusals.check_rights()


@pytest.mark.parametrize(("uid", "want"), [(0, "do not run as root"), (1000, r"is a person's \(uid 1000\)"), (999, "")])
def test_the_account_of_a_person_is_refused(uid: int, want: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "root" if uid == 0 else "ada"
    monkeypatch.setattr(pwd, "getpwnam", lambda _: SimpleNamespace(pw_name=name, pw_uid=uid))
    if not want:
        refusals.check_account(name)
        return
    with pytest.raises(CommandError, match=want):
        refusals.check_account(name)


def test_a_python_below_a_private_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "venv" / "bin").mkdir(parents=True)
    home.chmod(0o700)
    tmp_path.chmod(0o755)
    with pytest.raises(CommandError, match=r"they may not enter .*\. Install Aliquot where they may") as caught:
        refusals.check_environment(home / "venv", home / "venv" / "bin" / "python")
    # pytest's own folder may be closed, too: the first closed one is named.
    assert str(next(refusals.closed_to_others(home / "venv"))) in str(caught.value)


@pytest.fixture
def a_link(tmp_path: Path) -> tuple[Path, Path]:
    """Return an open environment's Python, and its link's target, which is below a private home."""
    target, python = tmp_path.resolve() / "home" / "python3", tmp_path.resolve() / "venv" / "bin" / "python"
    for path in (target, python):
        path.parent.mkdir(parents=True)
    target.touch(mode=0o755)
    python.symlink_to(target)
    target.parent.chmod(0o700)
    return python, target


@pytest.fixture
def open_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the folders above the test's own, which pytest makes private."""
    closed, above = refusals.closed_to_others, tmp_path.resolve().parents
    monkeypatch.setattr(refusals, "closed_to_others", lambda path: (one for one in closed(path) if one not in above))


@pytest.mark.usefixtures("open_above")
def test_a_python_that_is_a_link_into_a_private_home_is_refused_with_its_target(
    a_link: tuple[Path, Path], tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    python, target = a_link
    found = refusals.closed_environment(python.parent.parent, python)
    assert found == f"{python}, a link to {target}: they may not enter {target.parent}"


@pytest.mark.usefixtures("open_above")
def test_a_dry_run_says_that_other_accounts_cannot_run_this_python_and_goes_on(
    a_link: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(a_link[0].parent.parent))
    monkeypatch.setattr(sys, "executable", str(a_link[0]))
    with pytest.raises(SystemExit) as end:
        main(["install-service", "--dry-run"])
    told = capsys.readouterr().out
    assert f"would be refused: other accounts cannot run the Python of this installation, {a_link[0]}, a" in told
    assert "sudo /usr/bin/python3 -m venv --clear /opt/aliquot" in told
    assert (end.value.code, "aliquot-agent.service" in told.partition("would be refused: ")[2]) == (0, True), told


def test_a_hub_without_its_proxy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "SYSTEM_PATH", "")
    for name, missing in (("jupyterhub", "node"), ("node", "configurable-http-proxy")):
        (tmp_path / name).touch(mode=0o755)
        with pytest.raises(CommandError, match=f"a JupyterHub needs {missing}, which is not on the PATH. Get it: "):
            refusals.check_programs(tmp_path, {"PATH": ""})
    (tmp_path / "configurable-http-proxy").touch(mode=0o755)
    refusals.check_programs(tmp_path, {"PATH": ""})
