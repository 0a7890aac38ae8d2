"""Build the image of Binder with repo2docker and Podman, on a base image that is made here.

The base is Debian's minimal system from Debian's own archive, under the name that `binder/Dockerfile`
asks for: no registry of images is needed. It also has this machine's certificates, with which pip
reaches the package index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from machines import systems  # noqa: E402

if TYPE_CHECKING:
    from tests.containers.container_engines import PATH, Engine
else:
    from container_engines import PATH, Engine

IMAGE = "aliquot-binder"
HOME = ROOT / "build" / "binder"
REPO2DOCKER = "jupyter-repo2docker>=2026.4,<2027"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# A folder that no package of the system writes to.
_IN_THE_IMAGE = "/etc/aliquot-test/ca-certificates.crt"
BUILD_SECONDS = 3000.0
# Podman before 5 knows neither `buildx version` nor the two options: how to show the build, where to leave the image.
_PODMAN = """#!/bin/bash
[ "$1 $2" = "buildx version" ] && exit 0
words=()
for word in "$@"; do
  case "$word" in --load | --progress | plain) ;; *) words+=("$word") ;; esac
done
exec {podman} "${{words[@]}}"
"""


def base_image() -> str:
    found = re.search(r"^FROM (\S+)", (ROOT / "binder/Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def environment(engine: Engine) -> dict[str, str]:
    """Return the variables with which Podman's program and repo2docker use this engine's storage."""
    programs = engine.folder / "bin"
    if not programs.exists():
        programs.mkdir()
        (programs / "podman").write_text(_PODMAN.format(podman=shutil.which("podman", path=PATH)))
        (programs / "podman").chmod(0o755)
        (engine.folder / "podman.sock").symlink_to(
            "engine.sock"
        )  # repo2docker takes an address with that word for Podman's
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), PATH]),
        "CONTAINERS_CONF": str(engine.folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(engine.folder / "storage.conf"),
        "DOCKER_HOST": f"unix://{engine.folder}/podman.sock",
    }


def import_base(engine: Engine) -> None:
    """Import Debian's minimal system under the name of the base image. Raises NotToBeHad."""
    archive = systems.make(systems.system("bookworm"))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        subprocess.run(["tar", "-C", name, "--exclude=./dev/*", "-xf", str(archive)], check=True)
        kept = root / _IN_THE_IMAGE.lstrip("/")
        kept.parent.mkdir(parents=True)
        shutil.copy(CERTIFICATES, kept)
        whole = engine.folder / "base.tar"
        subprocess.run(["tar", "-C", name, "-cf", str(whole), "."], check=True)
    settings = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", f"PIP_CERT={_IN_THE_IMAGE}")
    changes = [word for one in settings for word in ("--change", f"ENV {one}")]
    subprocess.run(["podman", "import", "-q", *changes, str(whole), base_image()], env=environment(engine), check=True)
    whole.unlink()


def repo2docker() -> str:
    """Return the program, from an environment of its own that is made where it is missing."""
    program = HOME / "bin" / "jupyter-repo2docker"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        subprocess.run([str(HOME / "bin" / "pip"), "install", "-q", REPO2DOCKER], check=True)
    return str(program)


def build(engine: Engine) -> str:
    """Build the image from a clone of the last commit; return what repo2docker printed at its end."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "-q", "--depth=1", ROOT.as_uri(), folder], check=True)
        # repo2docker makes no image for root, which runs these tests.
        words = ["--no-run", "--user-id=1000", "--user-name=jovyan", f"--image-name={IMAGE}"]
        network = "--DockerEngine.extra_buildx_build_args=--network=host"
        done = subprocess.run(
            [repo2docker(), *words, network, folder],
            env=environment(engine),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout
