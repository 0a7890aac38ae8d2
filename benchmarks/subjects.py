"""The subjects of the hook's benchmark: the null driver bare and behind each hook.

Each is an environment of one program. The module builds the C of benchmarks/hook and runs a node
agent that grants the whole device; it measures nothing.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.client import client

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from gpu_headers import HeaderMissingError, header_folder

HERE = Path(__file__).resolve().parent
SPIN_NANOSECONDS = 100
REDIRECTED = "ours, redirected"
THREADED = "forwarder with a thread"
MEMORY = "64GiB"
# Libraries that NVIDIA's driver needs besides libc. The program needs them too, as the CUDA runtime
# does: so a hook that needs some of them adds nothing.
NEEDED = ["-Wl,--no-as-needed", "-lm", "-l:libdl.so.2", "-l:libpthread.so.0", "-l:librt.so.1"]
NVSHARE_SOCKETS = Path("/var/run/nvshare")  # compiled into nvshare


@dataclass(frozen=True)
class Subject:
    """One way from the program to the null driver."""

    name: str
    env: dict[str, str]


@dataclass(frozen=True)
class Peer:
    """A preload library, by its name on the command line."""

    name: str
    library: Path


@dataclass(frozen=True)
class Built:
    """The folders that each hold a libcuda.so.1, and the program."""

    null: Path
    forwarder: Path
    spin: Path
    threaded: Path
    ours: Path
    client: Path


def cuda_include() -> Path:
    """Return the folder of cuda.h; end the program if there is none."""
    try:
        return header_folder("cuda.h")
    except HeaderMissingError as error:
        raise SystemExit(str(error)) from None


def compile_c(source: str, output: Path, *flags: str) -> Path:
    """Compile one file of benchmarks/hook."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("A C compiler is needed, but there is neither cc nor gcc. Install gcc")
    output.parent.mkdir(parents=True, exist_ok=True)
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    command = [compiler, "-std=gnu11", "-O2", *warnings, "-isystem", str(cuda_include())]
    subprocess.run([*command, str(HERE / "hook" / source), *flags, "-o", str(output)], check=True)
    return output


def write_other_functions(output: Path) -> Path:
    """Write every function that a driver exports, as weak symbols that answer success.

    A missing function would cost a hook a failed look-up that a driver does not cost it.
    """
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", paths.shim_dir() / "libcuda.so.1"], capture_output=True, text=True, check=True
    )
    names = [line.split()[-1] for line in listed.stdout.splitlines() if line.split()[-1].startswith("cu")]
    answer = "mov $0, %eax" if platform.machine() == "x86_64" else "mov w0, #0"
    functions = (f".weak {name}\n.type {name}, %function\n.balign 16\n{name}: {answer}\nret\n" for name in names)
    output.write_text(".text\n" + "".join(functions) + '.section .note.GNU-stack,"",%progbits\n')
    return output


def build(folder: Path) -> Built:
    """Compile the null driver, the three controls and the program."""
    library = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]
    null = [str(HERE / "hook" / "null_nvml.c"), str(write_other_functions(folder / "others.S")), *NEEDED]
    compile_c("null_driver.c", folder / "null" / "libcuda.so.1", *null, *library)
    compile_c("forwarder.c", folder / "forwarder" / "libcuda.so.1", *library, "-ldl")
    spin = f"-DSPIN_NANOSECONDS={SPIN_NANOSECONDS}"
    compile_c("forwarder.c", folder / "spin" / "libcuda.so.1", spin, *library, "-ldl")
    compile_c("forwarder.c", folder / "threaded" / "libcuda.so.1", "-DSTARTS_A_THREAD", *library, "-ldl", "-pthread")
    program = compile_c("client.c", folder / "client", *NEEDED)
    for name in ("libcuda.so", "libnvidia-ml.so", "libnvidia-ml.so.1"):
        (folder / "null" / name).symlink_to("libcuda.so.1")  # peers query NVML, too
    shutil.copytree(paths.shim_dir(), folder / "ours")  # as long as the other paths: look-ups depend on it
    return Built(*(folder / name for name in ("null", "forwarder", "spin", "threaded", "ours")), program)


@dataclass(frozen=True)
class AKernel:
    """A kernel with a grant of all of a device.

    It has the folder where its processes register, and the device.
    """

    folder: Path
    uuid: str
    device: str  # its name
    env: dict[str, str]  # of the kernel's processes, on the agent's own driver
    runtime: Path  # the agent's
    kernel_id: str = "bench"


@contextmanager
def a_kernel(
    runtime: Path, driver: str = "softgpu", arguments: Sequence[str] = (), memory: str = MEMORY
) -> Iterator[AKernel]:
    """Start a real node agent with one reservation that no other kernel touches.

    By default it runs over the software GPU's NVML.
    """
    options = ["--driver", driver, *(["--softgpu-memory", memory] if driver == "softgpu" else []), *arguments]
    client.start_agent(runtime, arguments=options, exit_when_idle_seconds=5, seconds=60)
    device = client.read_status(client.query("status", runtime_dir=runtime)).devices[0]
    request = {"id": 1, "op": "reserve", "kernel_id": "bench", "owner": "bench", "hundredths": 100}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:  # the reservation lives while this is open
        holder.connect(str(paths.RuntimeDir(runtime).agent_socket))
        holder.sendall(json.dumps({**request, "label": "", "attributes": {}}).encode() + b"\n")
        answer = json.loads(holder.makefile("rb").readline())
        if not answer.get("ok"):
            raise SystemExit(f"Requested a device, but the agent answered {answer}")
        env = clean_environment()
        for name, value in answer["grant"]["env"].items():
            plain = name.removesuffix("_PREPEND")
            rest = os.environ.get(plain) if plain != name else None
            env[plain] = f"{value}:{rest}" if rest else value
        yield AKernel(paths.RuntimeDir(runtime).kernel("bench"), device.uuid, device.name, env, runtime)
    with suppress(client.AgentClientError):
        client.query("shutdown", runtime_dir=runtime)


def clean_environment() -> dict[str, str]:
    """Return the variables that no hook and no driver reads."""
    dropped = ("ALIQUOT_", "LD_", "CUDA_", "NVSHARE_", "LIBCUDA_")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def own_subjects(built: Built, kernel: AKernel) -> list[Subject]:
    """Return our subjects: bare twice, the two controls, and the hook.

    The difference of the two bare ones is the method's resolution.
    """
    hex_uuid = kernel.uuid.removeprefix("GPU-").replace("-", "")
    real = str(built.null / "libcuda.so.1")
    common = {**clean_environment(), "BENCH_UUID": hex_uuid, "BENCH_REAL_CUDA": real}
    bare = {**common, "LD_LIBRARY_PATH": str(built.null)}
    ours = {
        **common,
        "LD_LIBRARY_PATH": str(built.ours),
        "ALIQUOT_KERNEL_DIR": str(kernel.folder),
        "ALIQUOT_REAL_CUDA": real,
        "ALIQUOT_REAL_NVML": str(built.null / "libnvidia-ml.so.1"),
    }
    return [
        Subject("bare", bare),
        Subject("bare again", bare),
        Subject("forwarder", {**common, "LD_LIBRARY_PATH": str(built.forwarder)}),
        Subject("spin", {**common, "LD_LIBRARY_PATH": str(built.spin)}),
        Subject("ours", ours),
    ]


def threaded(built: Built, bare: Subject) -> Subject:
    """Return the forwarder that begins a thread: the floor of a start with one."""
    return Subject(THREADED, {**bare.env, "LD_LIBRARY_PATH": str(built.threaded)})


def redirected(built: Built, ours: Subject) -> Subject:
    """Return ours as a grant has it, with the audit library.

    The library redirects the driver's absolute paths.
    """
    return Subject(REDIRECTED, {**ours.env, "LD_AUDIT": str(built.ours / "libaliquot-audit.so")})


def peer_subjects(peer: Peer, bare: dict[str, str], folder: Path, stack: ExitStack) -> list[Subject]:
    """Return a peer's library preloaded, set up as its own documents say.

    Unknown peers get only the preload.
    """
    env = {**bare, "LD_PRELOAD": str(peer.library)}
    if peer.library.name == "libvgpu.so":
        env["LIBCUDA_LOG_LEVEL"] = "0"
        env["CUDA_DEVICE_MEMORY_LIMIT"] = "32g"
        # The library looks its own functions up in the library of this name.
        env["CUDA_REDIRECT"] = str(peer.library)
        limits = {peer.name: {}, f"{peer.name}, SM limit": {"CUDA_DEVICE_SM_LIMIT": "50"}}
        caches = {name: folder / f"cache-{number}" for number, name in enumerate(limits)}
        return [
            Subject(name, {**env, **limit, "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(caches[name])})
            for name, limit in limits.items()
        ]
    if peer.library.name == "libnvshare.so":
        env["NVSHARE_ENABLE_SINGLE_OVERSUB"] = "1"
        stack.enter_context(_nvshare_scheduler(peer.library.parent / "nvshare-scheduler"))
    return [Subject(peer.name, env)]


@contextmanager
def _nvshare_scheduler(program: Path) -> Iterator[None]:
    """Start nvshare's scheduler: its clients wait for it before their first launch."""
    if not program.exists():
        raise SystemExit(f"nvshare's scheduler is needed at {program}, but there is none. Build it with its library")
    NVSHARE_SOCKETS.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen([str(program)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
