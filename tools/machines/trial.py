"""The trials on a clean machine: the wheel of a release, and the README's first commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from machines.machine import Ended, Machine, machine
from machines.systems import ROOT, NotToBeHad, System, make

README = ROOT / "README.md"
_HELD = re.compile(r"all (\d+) claims hold, in (\d+) s")
_SHELL = "env HOME=/home/newcomer bash -c"
_OWN_LAB = re.compile(r"`(pip install '\.\[lab[a-z,]*\]')`")
_OWN_ENVIRONMENT = 'python3 -m venv "$HOME/own" && export PATH="$HOME/own/bin:$PATH"'
_LAB_EXTENSION = "jupyter labextension list 2>&1 | grep '@jupyter-aliquot/labextension.*enabled.*OK'"
_PACKAGES = re.compile(r"apt-get install ([a-z0-9 -]+)")


@dataclass(frozen=True)
class Found:
    """The finding on one system; ``problem`` is empty if all of it held."""

    system: str
    found: str
    problem: str = ""


def needed_packages() -> list[str]:
    """Return the packages that the README tells a Debian user to install."""
    told = _PACKAGES.search(README.read_text())
    if told is None:
        raise ValueError("README.md names no packages to install with apt-get")
    return told[1].split()


def try_wheel(system: System, wheel: Path, trials: Sequence[Sequence[str]], words: dict[str, str]) -> Found:
    """Install the wheel into an environment of the system's own Python, and run the trials."""
    where = f"{system.name}, Python {system.python}"
    try:
        archive = make(system)
    except NotToBeHad as why:
        return Found(where, f"not tried: {why}")
    with machine(archive) as there:
        done = there.install(["python3", "python3-venv", "ca-certificates"])
        if done.code:
            return Found(where, "", f"apt-get failed: {done.said[-500:].strip()}")
        shutil.copy(wheel, there.root / "root" / wheel.name)
        done = there.run(f"python3 -m venv e && e/bin/pip install -q ./{wheel.name}")
        if done.code:
            return Found(where, "", f"it does not install: {done.said[-500:].strip()}")
        for trial in trials:
            done = there.run("PATH=$HOME/e/bin:$PATH JUPYTER_PREFER_ENV_PATH=1 " + " ".join(trial))
            # The doctor ends with 1 where it finds something to do, as on a machine without a GPU.
            is_broken = done.code not in (0, 1) if "doctor" in trial else done.code != 0
            if is_broken or "Traceback" in done.said or words.get(trial[-2], "") not in done.said:
                return Found(where, "", f"`{' '.join(trial)}` ended with {done.code}: {done.said[-500:].strip()}")
        python = there.run("e/bin/python -V").said.split()[-1]
        libc = there.run("ldd --version").said.splitlines()[0].split()[-1]
    return Found(where, f"installs ({python}, glibc {libc}); {len(trials)} commands work")


def try_readme(system: System, source: Path = ROOT) -> Found:
    """Follow the README on a bare system from the clone to the table of `make demo`; time it.

    The newcomer is an account without privileges, in a folder with a space in its name.
    """
    try:
        archive = make(system)
    except NotToBeHad as why:
        return Found(system.name, f"not tried: {why}")
    with machine(archive) as there:
        done = there.install(needed_packages())
        if done.code:
            return Found(system.name, "", f"apt-get failed: {done.said[-500:].strip()}")
        prepared = done.seconds
        _lend(source, there)
        folder = "chown -R newcomer /srv/aliquot.git && install -d -o newcomer '/home/newcomer/my work'"
        there.run(f"useradd --create-home --shell /bin/bash newcomer && {folder}")
        done = _as_newcomer(there, "git clone -q /srv/aliquot.git aliquot && cd aliquot && make demo")
        if done.code:
            return Found(system.name, "", f"`make demo` ended with {done.code}: {done.said[-1500:].strip()}")
        own = _as_newcomer(there, f"cd aliquot && {_OWN_ENVIRONMENT} && {own_lab_command()} -q && {_LAB_EXTENSION}")
        if own.code:
            return Found(system.name, "", f"`{own_lab_command()}` ended with {own.code}: {own.said[-1500:].strip()}")
    told = _HELD.search(done.said)
    if told is None:
        return Found(system.name, "", f"`make demo` printed no table: {done.said[-1500:].strip()}")
    parts = f"{told[2]} s of it the demo; packages before it: {prepared:.0f} s; own JupyterLab: {own.seconds:.0f} s"
    return Found(system.name, f"all {told[1]} claims hold {done.seconds:.0f} s after the clone began, {parts}")


def own_lab_command() -> str:
    """Return the command by which the README installs Aliquot beside a JupyterLab of the user's."""
    told = _OWN_LAB.search(README.read_text())
    if told is None:
        raise ValueError("README.md has no command of the form: pip install '.[lab,…]'")
    return told[1]


def _as_newcomer(there: Machine, steps: str) -> Ended:
    words = f"cd '/home/newcomer/my work' && {steps}"
    return there.run(f"exec setpriv --reuid=newcomer --regid=newcomer --init-groups {_SHELL} {shlex.quote(words)}")


def _lend(source: Path, there: Machine) -> None:
    """Give the machine the repository that it clones: the last commit."""
    where = there.root / "srv" / "aliquot.git"
    subprocess.run(["git", "clone", "-q", "--bare", "--depth=1", source.as_uri(), str(where)], check=True)
