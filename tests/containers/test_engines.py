"""The engines of the other tests: each runs the skeleton image, and leaves nothing on the host."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.containers.container_engines import HOST_FOLDERS, Engine, EngineUnavailable, start_engine
else:
    from container_engines import HOST_FOLDERS, Engine, EngineUnavailable, start_engine


def test_the_skeleton_image_runs_this_python_with_aliquot(an_engine: Engine) -> None:
    output = an_engine.client().containers.run(
        an_engine.image,
        [sys.executable, "-c", "import jupyter_aliquot.provisioner.resources, zmq; print('ready')"],
        network_mode="none",
        remove=True,
        volumes={folder: {"bind": folder, "mode": "ro"} for folder in HOST_FOLDERS},
    )
    assert output.decode().strip() == "ready"


@pytest.mark.parametrize("name", ["podman", "docker", "docker-old"])
def test_a_stopped_engine_leaves_nothing_of_a_running_container(name: str) -> None:
    try:
        engine = start_engine(name)
    except EngineUnavailable as reason:
        pytest.skip(str(reason))
    try:
        volumes = {"/usr": {"bind": "/usr", "mode": "ro"}}
        container = engine.client().containers.run(
            engine.image, ["sleep", "600"], detach=True, volumes=volumes, network_mode="none"
        )
        container.reload()
        pid = container.attrs["State"]["Pid"]
        assert Path(f"/proc/{pid}").exists()
    finally:
        engine.stop()
    assert not Path(f"/proc/{pid}").exists()
    assert not engine.folder.exists()
    assert str(engine.folder) not in Path("/proc/self/mounts").read_text()
    assert not [group for group in Path("/sys/fs/cgroup").glob(f"*/{engine.folder.name}")]


def test_an_engine_whose_tests_were_killed_ends_by_itself(tmp_path: Path) -> None:
    """Podman's containers outlive their engine, so its guard ends those too."""
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import container_engines as engines\n"
        "engine = engines.start_engine('podman')\n"
        "volumes = {'/usr': {'bind': '/usr', 'mode': 'ro'}}\n"
        "container = engine.client().containers.run(engine.image, ['sleep', '600'], detach=True, volumes=volumes)\n"
        "container.reload()\n"
        "print(engine.folder, container.attrs['State']['Pid'], engine.guard.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent)], capture_output=True, text=True, check=False
    )
    if "EngineUnavailable" in killed.stderr:
        pytest.skip(killed.stderr.splitlines()[-1])
    folder, pid, guard = killed.stdout.split()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{guard}/cwd").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
    assert not Path(folder).exists()
