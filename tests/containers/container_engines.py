"""Real container engines for tests: a Podman service, a Docker daemon.

Each is in a temporary folder with its own storage, socket, CDI folder and control groups. It uses
nothing of the host's own engines, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import docker

ROOT = Path(__file__).resolve().parents[2]
# Folders of the host that a container of the test image needs to run Python with Aliquot: mounted
# read-only, at the same paths. Python may be the system's own: engines refuse a folder that is
# named twice.
HOST_FOLDERS = tuple(dict.fromkeys(("/usr", os.path.realpath(sys.base_prefix), str(ROOT))))
UNPACKED_DOCKER = ROOT / "build" / "engines" / "docker"
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/lib/podman"])
# A host without CAP_SYS_RESOURCE refuses the higher limits that engines set.
NOFILE, NPROC = 20000, 4096
IMAGE = "aliquot-test/kernel"
# The same with the host's folders already in it, for tests in which a gateway decides the mounts.
WHOLE_IMAGE = "aliquot-test/whole"
_WHOLE = "ALIQUOT_TEST_IMAGE=whole"
START_SECONDS = 90.0
STOP_SECONDS = 20.0


class EngineUnavailable(Exception):
    """This machine cannot run an engine; the tests that need it are skipped with this reason."""


@dataclass
class Engine:
    """One running engine. ``name`` is podman, docker or docker-old; ``url`` is a DOCKER_HOST."""

    name: str
    folder: Path
    pid: int
    cgroup_parent: str
    image: str = IMAGE
    guard: subprocess.Popen[bytes] | None = None
    _clients: list[docker.DockerClient] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/engine.sock"

    @property
    def cdi_dir(self) -> Path:
        """Return the folder of its CDI specs. An engine without CDI over the API ignores them."""
        return self.folder / "cdi"

    def client(self) -> docker.DockerClient:
        """Return the same client each time; not for several threads."""
        if not self._clients:
            self._clients.append(docker.DockerClient(base_url=self.url, timeout=60))
        return self._clients[0]

    def containers(self) -> list[str]:
        """Return the names of all containers of the engine, ended ones too."""
        return sorted(str(container.name) for container in self.client().containers.list(all=True))

    def remove_containers(self) -> None:
        client = self.client()
        for container in client.containers.list(all=True, ignore_removed=True):
            with contextlib.suppress(docker.errors.NotFound):
                container.remove(force=True)

    def stop(self) -> None:
        """End its containers, then the engine, then remove its remains on the host."""
        with contextlib.suppress(docker.errors.DockerException, OSError):
            self.remove_containers()
        for client in self._clients:
            client.close()
        end_daemon(self.folder, self.pid, self.cgroup_parent)
        if self.guard is not None:
            self.guard.communicate()


def end_daemon(folder: Path, pid: int, cgroup_parent: str) -> None:
    """End an engine without containers, and remove its remains on the host."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while _is_alive(pid):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.02)
    _unmount_below(folder)
    if cgroup_parent:
        _remove_cgroups(cgroup_parent)
    shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    return Path(f"/proc/{pid}").exists()


def start_engine(name: str) -> Engine:
    """Start the engine of this name. Raises EngineUnavailable with the reason."""
    if os.geteuid() != 0:
        raise EngineUnavailable("container engines are tested as root; this is not root")
    if not Path("/etc/debian_version").exists():
        raise EngineUnavailable("the test image is Debian's own /usr; this is not Debian")
    folder = Path(tempfile.mkdtemp(prefix="aqe-", dir="/tmp"))
    folder.chmod(0o755)  # a mapped root of a user namespace passes through
    try:
        (folder / "cdi").mkdir()
        engine = (_start_podman if name == "podman" else _start_docker)(name, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _guard(engine)
    try:
        _wait_until_it_answers(engine)
        _import_images(engine)
    except BaseException:
        engine.stop()
        raise
    return engine


def _start_podman(name: str, folder: Path) -> Engine:
    _need("podman", "runc", "conmon", "netavark")
    (folder / "containers.conf").write_text(
        f"""[engine]
runtime = "{_write_oci_runtime(folder, PATH)}"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{folder}/tmp"
volume_path = "{folder}/volumes"
static_dir = "{folder}/static"
[network]
network_config_dir = "{folder}/networks"
[containers]
default_ulimits = ["nofile={NOFILE}:{NOFILE}", "nproc={NPROC}:{NPROC}"]
"""
    )
    command = ["podman", f"--root={folder}/storage", f"--runroot={folder}/run", "--storage-driver=overlay"]
    command += ["system", "service", "--time=0", f"unix://{folder}/engine.sock"]
    environment = {
        **os.environ,
        "PATH": PATH,
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    shared = any(Path("/sys/fs/cgroup").glob("*/libpod_parent"))  # another Podman's, which removes it
    return Engine(name, folder, _spawn(command, environment, folder), "" if shared else "libpod_parent")


def _start_docker(name: str, folder: Path) -> Engine:
    programs = PATH
    if name == "docker":
        if not (UNPACKED_DOCKER / "dockerd").exists():
            raise EngineUnavailable("no Docker daemon in build/engines; tools/fetch-engines fetches it")
        programs = os.pathsep.join([str(UNPACKED_DOCKER), PATH])
    _need("dockerd", "containerd", "runc", "tini-static", path=programs)
    config = {
        "hosts": [f"unix://{folder}/engine.sock"],
        "data-root": f"{folder}/data",
        "exec-root": f"{folder}/exec",
        "pidfile": f"{folder}/docker.pid",
        "default-runtime": "whole",
        "runtimes": {"whole": {"path": str(_write_oci_runtime(folder, programs))}},
        "init-path": shutil.which("tini-static"),
        "cgroup-parent": f"/{folder.name}",
        "default-ulimits": {"nofile": {"Name": "nofile", "Soft": NOFILE, "Hard": NOFILE}},
        # Kernels have no network, so the daemon needs neither a bridge nor rules of the host's
        # firewall.
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "ip-masq": False,
    }
    if name == "docker":
        config |= {"features": {"cdi": True}, "cdi-spec-dirs": [f"{folder}/cdi"], "experimental": True}
    (folder / "daemon.json").write_text(json.dumps(config))
    command = ["dockerd", f"--config-file={folder}/daemon.json"]
    return Engine(name, folder, _spawn(command, {**os.environ, "PATH": programs}, folder), folder.name)


def _guard(engine: Engine) -> None:
    """Start a process that ends the engine after a kill of these tests: their end of a pipe closes."""
    command = [sys.executable, __file__, str(engine.folder), str(engine.pid), engine.cgroup_parent]
    engine.guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def guard() -> None:
    """Wait as the guard process, then end the engine."""
    folder, pid, cgroup_parent = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    sys.stdin.read()
    if folder.exists():
        Engine("", folder, pid, cgroup_parent).stop()


def _need(*programs: str, path: str = PATH) -> None:
    missing = [program for program in programs if shutil.which(program, path=path) is None]
    if missing:
        raise EngineUnavailable(f"not installed: {', '.join(missing)} (tools/setup.py test installs them, as root)")


def _spawn(command: Sequence[str], environment: dict[str, str], folder: Path) -> int:
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, *command[1:]],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )
    process.returncode = 0  # waited for by its pid
    return process.pid


def _wait_until_it_answers(engine: Engine) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with contextlib.closing(docker.APIClient(base_url=engine.url, timeout=5)) as client:
                client.ping()
            return
        except (docker.errors.DockerException, OSError) as error:
            if _is_alive(engine.pid) and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            log = (engine.folder / "log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{engine.name} does not answer: {error}\n{log}") from error


def skeleton() -> bytes:
    """Return an image of folders, links and names alone.

    Its programs are the host's own /usr, mounted read-only.
    """
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in ("usr", "etc", "proc", "sys", "dev", "run", "home", "opt", "sbin", "var", "var/tmp", "tmp"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(entry)
        # Docker mounts its init process as /sbin/docker-init: a link would lead below the /usr that
        # Docker mounts later.
        for name in ("bin", "lib", "lib64"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
            if Path("/etc", name).exists():
                tar.add(f"/etc/{name}", f"etc/{name}")
    return data.getvalue()


def _import_images(engine: Engine) -> None:
    archive = engine.folder / "skeleton.tar"
    archive.write_bytes(skeleton())
    folder = Path(sys.executable).parent
    images = {
        engine.image: ["ENV PATH=/usr/bin"],
        WHOLE_IMAGE: [f"ENV PATH={folder}:/usr/bin", f"ENV {_WHOLE}", "ENV PYTHONDONTWRITEBYTECODE=1"],
    }
    for name, changes in images.items():
        engine.client().api.import_image_from_file(str(archive), repository=name, tag="latest", changes=changes)
    archive.unlink()


def _write_oci_runtime(folder: Path, path: str) -> Path:
    """Write an OCI runtime around runc.

    A container of the whole image gets the folders of the host, whatever mounts its engine was
    asked for.
    """
    patch = folder / "patch.py"
    mounts = [
        {"destination": name, "source": name, "type": "bind", "options": ["rbind", "ro"]} for name in HOST_FOLDERS
    ]
    patch.write_text(
        "import json, sys\n"
        "spec = json.load(open('config.json'))\n"
        f"if {_WHOLE!r} in spec['process']['env']:\n"
        f"    spec['mounts'] += {mounts!r}\n"
        "    json.dump(spec, open('config.json', 'w'))\n"
    )
    program = folder / "runc"
    program.write_text(
        "#!/bin/sh\n"
        'case " $* " in *" create "*)\n'
        "  bundle=$(printf '%s\\n' \"$@\" | grep -A1 -- --bundle | tail -1)\n"
        f'  (cd "${{bundle:-.}}" && {sys.executable} -IS {patch}) ;;\n'
        "esac\n"
        f'exec {shutil.which("runc", path=path)} "$@"\n'
    )
    program.chmod(0o755)
    return program


def _unmount_below(folder: Path) -> None:
    """Unmount the mounts that a killed engine leaves: overlays, network namespaces."""
    with open("/proc/self/mounts") as mounts:
        targets = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{folder}/")]
    for target in sorted(targets, key=len, reverse=True):
        subprocess.run(["umount", "-l", target], check=False, capture_output=True)


def _remove_cgroups(name: str) -> None:
    """Remove the engine's own groups if they are empty; leave other engines' groups."""
    for group in Path("/sys/fs/cgroup").glob(f"*/{name}"):
        for folder in [*sorted((f for f in group.rglob("*") if f.is_dir()), key=lambda f: -len(str(f))), group]:
            with contextlib.suppress(OSError):
                folder.rmdir()


if __name__ == "__main__":
    guard()
