"""The set-up of a checkout needs only the programs that the pages name.

They are Python, a C compiler, make and a package index, and no CMake.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import setup  # noqa: E402  (a script, not a package)


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the commands that the set-up runs.

    The machine's programs are in `tmp_path/bin`, with an empty environment.
    """
    ran: list[list[str]] = []

    def run_step(title: str, command: Sequence[str]) -> bool:
        ran.append(list(command))
        return True

    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(setup, "VENV", tmp_path / "venv")
    monkeypatch.setattr(setup, "BUILD", tmp_path / "build")
    monkeypatch.setattr(setup, "run_step", run_step)
    return ran


def a_cmake(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "cmake"
    program.write_text(f"#!/bin/sh\necho cmake version {version}\n")
    program.chmod(0o755)
    return program


def test_a_machine_without_cmake_gets_it_from_the_package_index(steps: list[list[str]]) -> None:
    setup.install_packages("demo")
    assert setup.CMAKE_REQUIREMENT in steps[0]
    assert "--no-build-isolation" in steps[1], "what was fetched before is what builds"


@pytest.mark.parametrize(("version", "want_fetched"), [("3.19.8", True), ("3.20.0", False), ("4.4.4", False)])
def test_a_machines_own_cmake_is_taken_if_it_is_new_enough(
    steps: list[list[str]], tmp_path: Path, version: str, want_fetched: bool
) -> None:
    a_cmake(tmp_path / "bin", version)
    setup.install_packages("demo")
    assert (setup.CMAKE_REQUIREMENT in steps[0]) is want_fetched


def test_a_checkout_from_before_the_new_name_loses_the_distribution_of_the_old(
    steps: list[list[str]], tmp_path: Path
) -> None:
    """Both distributions would offer the kernel provisioner."""
    packages = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    for name, url, is_editable in (
        ("aliquot-0.1.0", ROOT.as_uri(), True),
        ("aliquot-0.2.0", "file:///elsewhere", True),
        ("aliquot-0.3.0", ROOT.as_uri(), False),
        ("jupyter_aliquot-0.1.0", ROOT.as_uri(), True),
    ):
        folder = packages / f"{name}.dist-info"
        folder.mkdir(parents=True)
        (folder / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": is_editable}}))
    links = tmp_path / "build" / "editable"
    for name in ("aliquot", "jupyter_aliquot"):
        (links / name).mkdir(parents=True)
    setup.remove_former_name()
    [command] = steps
    assert command[-3:] == ["uninstall", "-y", "aliquot"]
    assert [folder.name for folder in links.iterdir()] == ["jupyter_aliquot"]


def test_a_checkout_that_never_had_the_old_name_is_left_alone(steps: list[list[str]]) -> None:
    setup.remove_former_name()
    assert steps == []


def test_an_environment_whose_python_is_gone_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "VENV", tmp_path / "venv")
    monkeypatch.setattr(setup, "LOG", tmp_path / "setup.log")
    (tmp_path / "venv/bin").mkdir(parents=True)
    python = tmp_path / "venv/bin/python"
    for name in ("python", "python3"):
        (python.parent / name).symlink_to(tmp_path / "a-python-that-is-gone")
    setup.make_environment()
    assert subprocess.run([python, "-c", "import pip"], check=False).returncode == 0


def test_native_libraries_are_built_again_with_the_environments_cmake(steps: list[list[str]], tmp_path: Path) -> None:
    program = a_cmake(tmp_path / "venv" / "bin", "4.4.4")
    folder = tmp_path / "build" / "editable-x"
    folder.mkdir(parents=True)
    setup.build_native()
    assert steps == [[str(program), "--build", str(folder)]]


def test_native_libraries_that_cannot_be_built_again_end_the_set_up_with_the_remedy(
    steps: list[list[str]], tmp_path: Path
) -> None:
    setup.build_native()  # nothing was built here: nothing can be stale
    (tmp_path / "build" / "editable-x").mkdir(parents=True)
    with pytest.raises(SystemExit) as end:
        setup.build_native()
    for want_words in ("failed: CMake 3.20 or newer", "install it", "make clean"):
        assert want_words in str(end.value)
    assert steps == []


@pytest.fixture
def left_out_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the list that this test's set-up writes, and no other's."""
    found = tmp_path / "left-out.tsv"
    monkeypatch.setattr(setup.left_out, "LIST", found)
    return found


def test_a_part_that_cannot_be_fetched_is_in_the_last_lines_of_set_up_and_tests(
    steps: list[list[str]],
    left_out_list: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The set-up fails as with npm's registry behind a proxy."""
    (tmp_path / "bin" / "node").touch(mode=0o755)
    monkeypatch.setattr(setup, "run_step", lambda title, command: False)
    setup.install_node_packages()
    want = ("the browser bundle's packages", "the check of the browser bundle is skipped")
    [(part, effect, reason)] = setup.left_out.entries()
    assert (part, effect) == want
    assert reason.startswith("its installation failed: see build/setup.log")
    assert not (tmp_path / "build" / "node-packages.stamp").exists(), "the next set-up tries it again"
    setup.say_what_was_left_out()
    assert capsys.readouterr().out.splitlines()[-1] == f"[setup] left out: {want[0]}, so {want[1]}. Reason: {reason}"
    [row] = left_out_list.read_text().splitlines()
    assert row.split("\t") == [part, effect, reason], "what the tests' table reads"


def test_a_step_that_fails_is_told_as_failed_with_its_output_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "LOG", tmp_path / "setup.log")
    assert not setup.run_step("a step", ["sh", "-c", "echo no network >&2; exit 3"])
    assert "no network" in (tmp_path / "setup.log").read_text()
    assert "done" not in capsys.readouterr().out


def test_the_set_up_asks_for_the_cmake_that_the_build_asks_for() -> None:
    needed = re.search(r"cmake_minimum_required\(VERSION (\d+)\.(\d+)\)", (ROOT / "CMakeLists.txt").read_text())
    assert needed is not None
    assert (int(needed[1]), int(needed[2])) == setup.CMAKE_NEEDED
    assert setup.CMAKE_REQUIREMENT.startswith(f"cmake>={needed[1]}.{needed[2]},")


@pytest.mark.parametrize(
    ("system", "machine", "want"),
    [
        ("darwin", "arm64", "Aliquot runs on Linux, but this machine has macOS."),
        ("win32", "AMD64", "Aliquot runs on Linux, but this machine has Windows."),
        ("linux", "riscv64", "Aliquot is built for x86_64 and aarch64, but this machine is riscv64."),
    ],
)
def test_another_system_or_processor_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, want: str
) -> None:
    monkeypatch.setattr(setup.sys, "platform", system)
    monkeypatch.setattr(setup.platform, "machine", lambda: machine)
    with pytest.raises(SystemExit) as end:
        setup.check_host()
    assert str(end.value).startswith(f"[setup] {want}")
    assert "\n" not in str(end.value)


def test_pip_on_another_system_tells_it_before_it_looks_for_a_compiler(tmp_path: Path) -> None:
    cmake = shutil.which("cmake") or shutil.which("cmake", path=str(ROOT / ".venv/bin"))
    if cmake is None:
        pytest.skip("cmake is not installed")
    told = subprocess.run(
        [cmake, "-S", str(ROOT), "-B", str(tmp_path), "-DALIQUOT_HOST_SYSTEM=macOS"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode != 0
    said = " ".join(told.stderr.split())
    assert "Aliquot runs on Linux, but this machine has macOS. Use a machine" in said
    assert "compiler" not in told.stdout + told.stderr


def test_arm64_is_told_that_it_is_not_tested_and_goes_on(
    steps: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "gcc").touch(mode=0o755)
    monkeypatch.setattr(setup.platform, "machine", lambda: "aarch64")
    setup.check_host()
    assert "built for arm64, and has not been tested on it" in capsys.readouterr().out


def test_a_machine_without_a_compiler_is_told_what_to_install(steps: list[list[str]]) -> None:
    with pytest.raises(SystemExit, match="no C compiler found: install gcc"):
        setup.check_host()


def test_an_old_python_is_told_how_to_choose_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match=r"Python 3\.10 or newer is needed, but this is .* make PYTHON="):
        setup.check_host()


@pytest.mark.parametrize(("account", "want"), [("0", True), ("1000", False)])
def test_make_lab_opens_for_root_too(tmp_path: Path, account: str, want: bool) -> None:
    (tmp_path / "id").write_text(f"#!/bin/sh\necho {account}\n")
    (tmp_path / "id").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    told = subprocess.run(
        ["make", "-n", "lab", "ARGS=--port=1"], cwd=ROOT, env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert ("--allow-root" in told.stdout, "--port=1" in told.stdout) == (want, True)


def test_a_package_index_out_of_reach_ends_with_what_to_set_behind_a_proxy(
    steps: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "run_step", lambda title, command: False)
    with pytest.raises(SystemExit, match=r"is the package index reachable.*HTTPS_PROXY.*PIP_INDEX_URL"):
        setup.install_packages("demo")


@pytest.fixture
def a_debian(steps: list[list[str]], left_out_list: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of programs of a Debian machine on which set-up is root and tests' packages are missing."""
    monkeypatch.setattr(setup, "ENGINE_FOLDERS", str(tmp_path / "bin"))
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0)
    monkeypatch.delenv(setup.MAY_INSTALL, raising=False)
    (tmp_path / "bin" / "apt-get").touch(mode=0o755)
    return tmp_path / "bin"


def test_root_installs_no_system_package_unasked(steps: list[list[str]], a_debian: Path) -> None:
    setup.install_system_packages({})
    setup.install_headless_chromium()
    assert steps == []
    [(part, effect, reason)] = setup.left_out.entries()
    assert "chromium" in part
    assert effect == "tests that need them are skipped"
    assert "ALIQUOT_SYSTEM_PACKAGES=1 make test" in reason


def test_root_that_allows_it_is_told_each_package_before_it_is_installed(
    steps: list[list[str]], a_debian: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(setup.MAY_INSTALL, "1")
    setup.install_system_packages({})
    said = capsys.readouterr().out
    update, install = steps
    assert update[-1] == "update"
    packages = install[install.index("--no-install-recommends") + 1 :]
    assert {"chromium", "podman", "valgrind"} <= set(packages)
    assert [package for package in packages[:-1] if package not in said] == []
    assert setup.left_out.entries() == []


def test_another_account_than_root_installs_none_even_if_it_allows_it(
    steps: list[list[str]], a_debian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(setup.MAY_INSTALL, "1")
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    setup.install_system_packages({})
    assert steps == []
    [(_, _, reason)] = setup.left_out.entries()
    assert "as root on Debian only" in reason
