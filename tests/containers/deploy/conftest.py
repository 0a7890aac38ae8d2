"""The images of deploy/, built from this machine alone, and its services on a real engine."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest
from ports import free_port

# Tests and their parts are in no package.
sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from tests.containers.container_engines import Engine
    from tests.containers.deploy.composed import Composed, read_compose
    from tests.containers.deploy.host_base import write_base
    from tests.containers.deploy.server import Server
else:
    from composed import Composed, read_compose
    from container_engines import Engine
    from host_base import write_base
    from server import Server

ROOT = Path(__file__).resolve().parents[3]
WHEELS = ROOT / "build" / "wheelhouse"
BASE = "aliquot-test/base"
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="session")
def wheels() -> Path:
    """Aliquot's own wheel, of this tree, next to the wheels that the images need."""
    if not (WHEELS / "wheels.stamp").exists():
        pytest.skip("no wheels in build/wheelhouse; tools/fetch-wheels fetches them")
    for old in WHEELS.glob("jupyter_aliquot-*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "wheel"]
    # Without optimization, which is half of the compiler's time here; nothing is measured in these
    # images.
    options = ["--no-deps", "--no-build-isolation", "--config-settings=cmake.build-type=None"]
    command = [*pip, *options, "--wheel-dir", str(WHEELS), str(ROOT)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return WHEELS


Build = Callable[[Engine], None]


@pytest.fixture(scope="session")
def build(wheels: Path) -> Build:
    """Build the images on an engine, by the unchanged Dockerfile and compose file."""

    def build_images(engine: Engine) -> None:
        client, context = engine.client(), engine.folder / "deploy"
        archive = engine.folder / "base.tar"
        path = write_base(archive)
        client.api.import_image_from_file(str(archive), repository=BASE, tag="latest", changes=[f"ENV PATH={path}"])
        archive.unlink()
        shutil.copytree(ROOT / "deploy", context, ignore=shutil.ignore_patterns("wheels"))
        shutil.copytree(wheels, context / "wheels")
        arguments = {"BASE_IMAGE": f"{BASE}:latest", "PIP_OPTIONS": "--no-index --no-compile"}
        try:
            for image, target in read_compose(context / "compose.yaml", {"ALIQUOT_TOKEN": "-"}).builds().items():
                client.images.build(
                    path=str(context), target=target, tag=image, buildargs=arguments, network_mode="host", rm=True
                )
        except docker.errors.BuildError as error:
            lines = "".join(str(line.get("stream", line)) for line in error.build_log)
            raise AssertionError(f"{error.msg}\n{lines}") from error
        finally:
            shutil.rmtree(context)

    return build_images


class Deployment:
    """The services of deploy/compose.yaml in folders of their own."""

    def __init__(self, engine: Engine) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aqc-", dir="/tmp"))
        self.folder.chmod(0o755)
        for name in ("run", "lib", "cdi", "homes"):
            (self.folder / name).mkdir(mode=0o700 if name == "run" else 0o755)
        port = free_port()
        self.environment = {
            "ALIQUOT_RUN": f"{self.folder}/run",
            "ALIQUOT_LIB": f"{self.folder}/lib",
            # An engine that resolves CDI devices reads its own folder.
            "ALIQUOT_CDI": str(engine.cdi_dir),
            "ALIQUOT_HOMES": f"{self.folder}/homes",
            "ALIQUOT_ENGINE": engine.url.removeprefix("unix://"),
            "ALIQUOT_PORT": str(port),
            "ALIQUOT_TOKEN": TOKEN,
        }
        file = read_compose(ROOT / "deploy" / "compose.yaml", self.environment)
        self.services = Composed(engine.client(), file)
        self.server = Server(f"http://127.0.0.1:{port}", TOKEN)

    def close(self) -> None:
        self.services.down()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def deploy(build: Build) -> Iterator[Callable[[Engine], Deployment]]:
    """Build the images and make a deployment on an engine; remove all of it afterwards."""
    made: list[tuple[Engine, Deployment]] = []

    def make(engine: Engine) -> Deployment:
        build(engine)
        made.append((engine, Deployment(engine)))
        return made[-1][1]

    yield make
    for engine, deployment in made:
        deployment.close()
        engine.remove_containers()
