"""The limits of a kernel in a container, tested from inside: one kernel on each engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, Mount
from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.resources import Bytes

if TYPE_CHECKING:
    from tests.containers.container_engines import Engine
    from tests.containers.kernels import ContainerKernels, a_plan
else:
    from container_engines import Engine
    from kernels import ContainerKernels, a_plan

MIB = 1 << 20
USER = 12345
LIMITS = ContainerLimits(memory=Bytes(256 * MIB), cpus=0.5, pids=64, shm=Bytes(32 * MIB))

Probe = Callable[[str], Any]


@pytest.fixture(scope="module")
def a_kernel(an_engine: Engine) -> Iterator[tuple[ContainerKernels, Probe]]:
    """A hardened kernel of user 12345, next to another kernel and to sockets of the agent."""
    os.environ["ALIQUOT_TEST_SECRET"] = "the gateway's own"
    kernels = ContainerKernels(an_engine)
    try:
        run = kernels.folder / "run"
        (run / "relays" / "other" / "k").mkdir(parents=True)
        (run / "kernels" / "other").mkdir(parents=True)
        (run / "agent.sock").touch()
        (run / "relay.sock").touch()
        home = kernels.folder / "homes" / "alice"
        home.mkdir(parents=True)
        home.chmod(0o777)
        mounts = (Mount(str(home), "/home/alice", read_only=False),)
        plan = a_plan(an_engine, user=f"{USER}:{USER}", limits=LIMITS, home="/home/alice", more_mounts=mounts)
        kernel = kernels.run(plan)
        yield kernels, lambda code: json.loads(kernel.execute(f"import json, os\n{code}\nprint(json.dumps(answer))"))
    finally:
        del os.environ["ALIQUOT_TEST_SECRET"]
        kernels.close()


def test_it_has_no_capability_no_way_to_gain_one_and_a_filter_of_system_calls(a_kernel: Any) -> None:
    _, probe = a_kernel
    status = probe(
        "fields = dict(line.rstrip().split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)\n"
        "answer = {name: fields[name] for name in ('CapEff', 'CapPrm', 'CapBnd', 'CapInh', 'NoNewPrivs', 'Seccomp')}"
    )
    none = "0" * 16
    want = {"CapEff": none, "CapPrm": none, "CapBnd": none, "CapInh": none, "NoNewPrivs": "1", "Seccomp": "2"}
    assert status == want


@pytest.mark.parametrize("call", ["mount(b'x', b'/tmp', b'tmpfs', 0, None)", "unshare(0x20000)", "chroot(b'/tmp')"])
def test_system_calls_of_administrators_are_refused(a_kernel: Any, call: str) -> None:
    _, probe = a_kernel
    code = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nanswer = [libc.{call}, ctypes.get_errno()]"
    assert probe(code) == [-1, 1], "EPERM"


def test_it_runs_as_the_user_that_was_asked(a_kernel: Any) -> None:
    _, probe = a_kernel
    assert probe("import os\nanswer = [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()]")[:3] == [USER] * 3


def test_it_writes_to_its_home_and_to_memory_and_nowhere_else(a_kernel: Any) -> None:
    kernels, probe = a_kernel
    written = probe(
        "import os\nanswer = {}\n"
        "for folder in ('/', '/etc', '/usr', '/var', '/opt', '/home', '/home/alice', '/tmp', '/run', '/dev/shm'):\n"
        "    try:\n"
        "        open(os.path.join(folder, 'probe'), 'w').close()\n"
        "        answer[folder] = 'written'\n"
        "    except OSError as error:\n"
        "        answer[folder] = error.strerror\n"
    )
    allowed = {folder for folder, result in written.items() if result == "written"}
    # Podman gives a tmpfs the mode that its folder has in the image: there /run belongs to root.
    assert allowed | {"/run"} == {"/home/alice", "/tmp", "/run", "/dev/shm"}
    assert (kernels.folder / "homes" / "alice" / "probe").exists()
    assert probe("answer = [os.environ['HOME'], os.getcwd()]") == ["/home/alice", "/home/alice"]


def test_even_its_own_root_user_cannot_write_to_the_image(kernels: ContainerKernels) -> None:
    kernel = kernels.run(a_plan(kernels.engine, user="0:0"))
    assert kernel.execute("open('/etc/probe', 'w')").startswith("OSError: [Errno 30]")
    assert kernel.execute("open('/usr/probe', 'w')").startswith("OSError: [Errno 30]")


def test_it_has_no_network_at_all(a_kernel: Any) -> None:
    _, probe = a_kernel
    assert probe("import socket\nanswer = [name for _, name in socket.if_nameindex()]") == ["lo"]
    assert probe("answer = socket.socket().connect_ex(('192.0.2.1', 80))") == 101, "ENETUNREACH"


def test_of_the_runtime_folder_it_sees_its_own_part_alone(a_kernel: Any) -> None:
    kernels, probe = a_kernel
    (kernel,) = kernels.kernels
    run = kernels.folder / "run"
    walk = f"for where, folders, names in os.walk({str(run)!r}) for name in folders + names"
    seen = probe(f"answer = [os.path.join(where, name) {walk}]")
    relays = run / "relays"
    own = {str(path) for path in kernel.folder.rglob("*")}
    assert set(seen) == {str(relays), str(kernel.folder.parent), str(kernel.folder)} | own
    assert (
        probe("answer = [os.path.exists(p) for p in ('/run/docker.sock', '/var/run/docker.sock', '/dev/kvm')]")
        == [False] * 3
    )


def test_nothing_of_the_gateways_environment_reached_it(a_kernel: Any) -> None:
    _, probe = a_kernel
    environment = probe("answer = dict(os.environ)")
    assert "ALIQUOT_TEST_SECRET" not in environment
    assert "SSH_AUTH_SOCK" not in environment
    assert environment["PATH"] == "/usr/bin", "the image's"


def test_its_limits_of_memory_cpu_and_shared_memory_hold(a_kernel: Any) -> None:
    _, probe = a_kernel
    limits = probe(
        "from pathlib import Path\ngroups = Path('/sys/fs/cgroup')\n"
        "def read(*names):\n"
        "    return next(((groups / name).read_text().split() for name in names if (groups / name).exists()), [])\n"
        "quota = read('cpu.max') or read('cpu/cpu.cfs_quota_us') + read('cpu/cpu.cfs_period_us')\n"
        "memory = read('memory.max', 'memory/memory.limit_in_bytes')\n"
        "shm = os.statvfs('/dev/shm')\n"
        "answer = [int(memory[0]), int(quota[0]) / int(quota[1]), shm.f_blocks * shm.f_frsize]"
    )
    assert limits == [256 * MIB, 0.5, 32 * MIB]


def test_a_fork_bomb_is_stopped_and_the_kernel_lives(a_kernel: Any) -> None:
    _, probe = a_kernel
    bomb = (
        "import time\nchildren = []\n"
        "try:\n"
        "    for _ in range(1000):\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            time.sleep(60)\n"
        "            os._exit(0)\n"
        "        children.append(child)\n"
        "    answer = 'not stopped'\n"
        "except BlockingIOError:\n"
        "    answer = len(children)\n"
        "finally:\n"
        "    for child in children:\n"
        "        os.kill(child, 9)\n"
        "        os.waitpid(child, 0)\n"
    )
    assert 0 < probe(bomb) < 64
    assert probe("answer = 'lives'") == "lives"


def test_it_fills_its_own_shared_memory_and_nobody_elses(a_kernel: Any, kernels: ContainerKernels) -> None:
    _, probe = a_kernel
    fill = (
        "written, block = 0, b'x' * (1 << 20)\n"
        "try:\n"
        "    with open('/dev/shm/full', 'wb', buffering=0) as file:\n"
        "        while written < 200:\n"
        "            file.write(block)\n"
        "            written += 1\n"
        "    answer = 'not stopped'\n"
        "except OSError as error:\n"
        "    answer = [error.strerror, written]\n"
    )
    why, mebibytes = probe(fill)
    assert (why, 0 < mebibytes <= 32) == ("No space left on device", True)
    other = kernels.run(a_plan(kernels.engine, limits=LIMITS))
    assert other.execute("import os; print(os.listdir('/dev/shm'))") == "[]"
    assert probe("os.unlink('/dev/shm/full')\nanswer = 'lives'") == "lives"


def test_it_sees_no_process_but_its_own(a_kernel: Any) -> None:
    _, probe = a_kernel
    seen = probe(
        "answer = []\n"
        "for name in os.listdir('/proc'):\n"
        "    if name.isdigit():\n"
        "        answer.append(open(f'/proc/{name}/cmdline').read().replace('\\0', ' '))\n"
    )
    assert 0 < len(seen) < 8
    assert not [words for words in seen if "pytest" in words or "relay" in words.split("/")[-1]]


def test_a_named_network_that_reaches_nowhere_is_the_kernels_when_it_is_asked(kernels: ContainerKernels) -> None:
    client = kernels.engine.client()
    network = client.networks.create(f"aqn-{os.getpid()}", driver="bridge", internal=True)
    try:
        kernel = kernels.run(a_plan(kernels.engine, network=network.name))
        assert kernel.execute("import socket; print(len(socket.if_nameindex()))") == "2"
        kernel.disconnect()
        kernels.do(kernels.runtime.remove(kernel.process))
    finally:
        network.remove()


def test_a_mapping_of_users_that_the_engine_does_not_make_fails_the_start(kernels: ContainerKernels) -> None:
    """Podman has no numbers for it here, and refuses; Docker ignores the unknown mode silently."""
    if "containers:" in Path("/etc/subuid").read_text():
        pytest.skip("this machine has numbers for automatic user namespaces")
    want_words = {"podman": "the engine refused: ", "docker": "the engine did not, and reported no error"}
    with pytest.raises(LaunchError, match=want_words[kernels.engine.name.partition("-")[0]]):
        kernels.start(kernels.launch(a_plan(kernels.engine, userns="auto"), ("/usr/bin/sleep", "600")))
    assert kernels.containers() == set()
