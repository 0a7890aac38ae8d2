"""Build a release, and try it as a stranger would: ``make release-check``.

It builds the source archive, and the wheel from that archive, into ``build/release``; asks twine whether
an index would take them; gives the wheel the platform tag that auditwheel finds; compares what is in them
with what must and must not be; and installs the wheel into an empty environment for each Python that this
machine has. ``ARGS=--machines``, as root, also installs it on clean systems of Debian and Ubuntu, with the
Python of each. It publishes nothing. It prints a table, and ends with 1 if a row does not hold.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from machines.systems import SYSTEMS, system
from machines.trial import try_wheel

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build/release"
TOOLS = ("auditwheel>=6,<7", "build>=1.2,<2", "twine>=6,<7", "wheel>=0.45,<1")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LARGEST_WHEEL_BYTES = 4 << 20
LARGEST_ARCHIVE_BYTES = 8 << 20
# Of the wheel; the folder of data has the version in its name.
NEEDED = (
    r"jupyter_aliquot/native/shim/libcuda\.so\.1",
    r"jupyter_aliquot/native/shim/libnvidia-ml\.so\.1",
    r"jupyter_aliquot/native/softgpu/libcuda\.so\.1",
    r"jupyter_aliquot/native/bin/aliquot-kernel-start",
    r"jupyter_aliquot/deploy/systemd/aliquot-agent\.service",
    r"jupyter_aliquot/(client|gateway|provisioner|gpu_hook)/py\.typed",
    r".*/share/jupyter/labextensions/@jupyter-aliquot/labextension/package\.json",
    r".*/share/jupyter/kernels/python3\.gpu-0\.25/kernel\.json",
    r".*/etc/jupyter/jupyter_server_config\.d/.*\.json",
    r".*dist-info/licenses/LICENSE",
)
FORBIDDEN = r"(^|/)(tests?|node_modules|\.git|\.venv|build|__pycache__)/|\.pyc$|\.(c|h)$|\.env$"
FORBIDDEN_IN_ARCHIVE = r"(^|/)(node_modules|\.git|\.venv|build|__pycache__)/|\.pyc$|\.so(\.1)?$|\.env$"
# A start of the server would need ports and minutes; these load each part that an installation enables.
TRIALS = (
    ("aliquot", "--version"),
    ("aliquot", "sizes"),
    ("aliquot", "doctor", "--json"),
    ("jupyter", "kernelspec", "list"),
    ("jupyter", "server", "extension", "list"),
)
# What their output must name, by the word before the last.
WORDS = {"kernelspec": "python3.gpu-0.25", "extension": "jupyter_aliquot.gateway"}


@dataclass(frozen=True)
class Row:
    """One line of the table: what was looked at, and what is wrong with it; empty: it holds."""

    what: str
    found: str
    problem: str = ""


class Failed(Exception):
    """A step without which the others make no sense failed; the text says which."""


def run(command: Sequence[str | Path], *, cwd: Path = ROOT, env: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def must_run(what: str, command: Sequence[str | Path]) -> str:
    print(f"[release] {what} …", flush=True)
    status, output = run(command)
    if status:
        raise Failed(f"{what} failed:\n{output[-3000:]}")
    return output


def make_tools() -> Path:
    """Return the folder of programs of the environment that builds, made new where it is missing."""
    home = OUT / "tools"
    if not (home / "bin/twine").exists():
        must_run("making an environment for the tools", [sys.executable, "-m", "venv", home])
        must_run("installing build, twine and auditwheel", [home / "bin/pip", "install", "-q", *TOOLS])
    return home / "bin"


def build(tools: Path) -> tuple[Path, Path]:
    """Return the source archive and the wheel that was built from it, with the tag that auditwheel finds."""
    for old in (*OUT.glob("*.tar.gz"), *OUT.glob("*.whl")):
        old.unlink()
    must_run("building the source archive, and the wheel from it", [tools / "python", "-m", "build", "-o", OUT, ROOT])
    (archive,), (wheel,) = OUT.glob("*.tar.gz"), OUT.glob("*.whl")
    shown = must_run("asking auditwheel", [tools / "auditwheel", "show", wheel])
    tag = re.search(r'following platform tag:\s*"(manylinux_\w+)"', shown)
    if tag is None:
        raise Failed(f"auditwheel finds no tag that an index takes:\n{shown}")
    must_run("tagging", [tools / "wheel", "tags", "--remove", "--platform-tag", tag[1], wheel])
    (wheel,) = OUT.glob("*.whl")
    return archive, wheel


def contents(name: str, names: Iterable[str], size: int, most: int, needed: Sequence[str], forbidden: str) -> Row:
    """Compare what is in an archive with what must and must not be."""
    names = list(names)
    missing = [pattern for pattern in needed if not any(re.fullmatch(pattern, one) for one in names)]
    strange = [one for one in names if re.search(forbidden, one)]
    problems = [f"nothing is named {pattern}" for pattern in missing]
    problems += [f"{one} must not be in it" for one in strange[:5]]
    if size > most:
        problems.append(f"it has {size:,} bytes; the most is {most:,}")
    return Row(name, f"{len(names)} files, {size / 1e6:.1f} MB", "; ".join(problems))


def check_contents(archive: Path, wheel: Path) -> list[Row]:
    with zipfile.ZipFile(wheel) as opened:
        in_wheel = opened.namelist()
    with tarfile.open(archive) as opened_archive:
        in_archive = [name.partition("/")[2] for name in opened_archive.getnames()]
    needed = (r"pyproject\.toml", r"LICENSE", r"README\.md", r"CMakeLists\.txt", r"labextension/dist/package\.json")
    return [
        contents(wheel.name, in_wheel, wheel.stat().st_size, LARGEST_WHEEL_BYTES, NEEDED, FORBIDDEN),
        contents(archive.name, in_archive, archive.stat().st_size, LARGEST_ARCHIVE_BYTES, needed, FORBIDDEN_IN_ARCHIVE),
    ]


def find_python(version: str) -> str | None:
    """Return a program of that version which starts; a shim of pyenv may be there for one that is not chosen."""
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python"))
    for program in (shutil.which(f"python{version}"), *map(str, pyenv)):
        if program is not None and run([program, "-c", "import ensurepip"])[0] == 0:
            return program
    return None


def try_in(version: str, wheel: Path) -> Row:
    """Install the wheel into an empty environment, and start each part."""
    what = f"Python {version}, empty environment"
    program = find_python(version)
    if program is None:
        return Row(what, "not tried: this machine has no such Python")
    print(f"[release] {what} …", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "environment")
        for command in ([program, "-m", "venv", home], [home / "bin/pip", "install", "-q", wheel]):
            status, output = run(command)
            if status:
                return Row(what, "", f"it does not install: {output[-500:].strip()}")
        env = {"PATH": f"{home}/bin:{os.defpath}", "HOME": folder, "LANG": "C.UTF-8", "JUPYTER_PREFER_ENV_PATH": "1"}
        for words in TRIALS:
            status, output = run([home / "bin" / words[0], *words[1:]], cwd=Path(folder), env=env)
            # The doctor ends with 1 where it finds something to do, as on a machine without a GPU.
            is_broken = status not in (0, 1) if "doctor" in words else status != 0
            if is_broken or "Traceback" in output or WORDS.get(words[-2], "") not in output:
                return Row(what, "", f"`{' '.join(words)}` ended with {status}: {output[-500:].strip()}")
    return Row(what, f"installs; {len(TRIALS)} commands work")


def try_on(suite: str, wheel: Path) -> Row:
    """Install the wheel on a clean system, and start each part."""
    print(f"[release] {system(suite).name} …", flush=True)
    found = try_wheel(system(suite), wheel, TRIALS, WORDS)
    return Row(found.system, found.found, found.problem)


def check(pythons: Sequence[str], suites: Sequence[str]) -> list[Row]:
    tools = make_tools()
    archive, wheel = build(tools)
    status, output = run([tools / "twine", "check", "--strict", archive, wheel])
    rows = [Row("twine check --strict", "passed" if status == 0 else "refused", output if status else "")]
    rows += check_contents(archive, wheel)
    rows += [_told(try_in(version, wheel)) for version in pythons]
    return rows + [_told(try_on(suite, wheel)) for suite in suites]


def _told(row: Row) -> Row:
    """Say a row at once: those behind it may take minutes, and the run may be broken off."""
    print(f"[release]   {row.what}: {row.problem or row.found}", flush=True)
    return row


def show(rows: Sequence[Row], say: Callable[[str], None] = print) -> bool:
    """Say the table; return whether all rows hold."""
    width = max(len(row.what) for row in rows)
    for row in rows:
        say(f"{row.what:<{width}}  {'NO' if row.problem else 'ok':<3} {row.problem or row.found}")
    return not any(row.problem for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this version; may be repeated")
    parser.add_argument("--machines", action="store_true", help="also on clean systems of Debian and Ubuntu, as root")
    arguments = parser.parse_args()
    if arguments.machines and os.geteuid() != 0:
        parser.error("--machines makes systems in namespaces, which only root can do")
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        rows = check(arguments.python or PYTHONS, [one.suite for one in SYSTEMS] if arguments.machines else [])
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    holds = show(rows)
    print(f"[release] {'ready' if holds else 'not ready'}: {OUT}. Nothing was published.")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
