"""Control relays from Python: start the host, start and stop relays, start kernels below them.

For asyncio. Each call opens a connection of its own and keeps none, because blocking clients change
event loops. `link` has the gateways' links. Functions raise RelayError and its subclasses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.base.unix_sockets import connect
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.gpu_hook.waiting import within
from jupyter_aliquot.provisioner.control_groups import GroupLimits
from jupyter_aliquot.provisioner.errors import RelayError, RelayProtocolError, RelayRefusedError, RelayUnavailableError
from jupyter_aliquot.provisioner.relay.wire.files import (
    Ended,
    KernelLaunch,
    ProcessId,
    RelayRecord,
    RelayRequest,
    UnreadableRecordError,
    is_anothers,
    parse_ended,
    parse_relay_record,
    read_ended,
    read_relay_record,
    read_relay_records,
)
from jupyter_aliquot.provisioner.relay.wire.proc import is_process
from jupyter_aliquot.provisioner.relay.wire.protocol import (
    LONGEST_QUESTION,
    VERSIONS,
    ProtocolError,
    Record,
    RecordReader,
    encode_whole,
)
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder
from jupyter_aliquot.provisioner.resources import KernelProcess

from .host_launcher import RelaySettings, ensure_relay_host
from .link import (
    Activity,
    Attached,
    Dropped,
    KernelState,
    LinkListener,
    LinkMessage,
    RelayLink,
    SentRequest,
    check_listener,
)

__all__ = [
    "Activity",
    "Attached",
    "Dropped",
    "Ended",
    "KernelLaunch",
    "KernelState",
    "LinkListener",
    "LinkMessage",
    "ProcessId",
    "RelayLink",
    "RelayRecord",
    "RelayRequest",
    "RelaySettings",
    "SentRequest",
    "ensure_relay_host",
    "limit_kernel",
    "list_kernelspecs",
    "read_ended",
    "read_relay_record",
    "read_relay_records",
    "remove_relay",
    "set_facts",
    "signal_kernel",
    "spawn",
    "start_relay",
    "stop_relay",
]

_ANSWER_SECONDS = 15.0
_NAMELESS_SECONDS = 4.0
_LOOK_AGAIN_SECONDS = 0.05
_STANDARD_DESCRIPTORS = (0, 1, 2)
_RLIMITS = tuple(sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")}))


async def start_relay(runtime: RuntimeDir, request: RelayRequest) -> RelayRecord:
    """Start a relay; its front sockets are bound when this returns.

    The relay host must run (ensure_relay_host). If the caller is cancelled meanwhile, the relay is
    ended again. The host refuses with ``exists`` when the kernel has a living relay.
    """
    header = {"op": "start", "request": vars(request)}
    answer = await _ask(runtime.relay_socket, header, "the relay host")
    return _record(runtime.relay(request.kernel_id), answer)


async def spawn(
    record: RelayRecord, launch: KernelLaunch, descriptors: Mapping[int, int] | None = None
) -> KernelProcess:
    """Start the kernel below its relay: first, and at each restart.

    The kernel before must have ended. The relay refuses with ``launch`` when the program cannot be
    run, ``running`` when one runs.

    Args: record: The relay's record. launch: The kernel to start. descriptors: For any of 0, 1 and
    2, a descriptor of this process. By default stdin is /dev/null, stdout and stderr are
    ``kernel.log``.
    """
    given = dict(descriptors or {})
    if set(given) - set(_STANDARD_DESCRIPTORS):
        raise RelayError(f"Requested to give descriptors {sorted(given)} to a kernel, but only 0, 1 and 2 can be given")
    header = {"op": "spawn", "launch": _launch_fields(launch, record.folder), "descriptors": sorted(given)}
    answer = await _ask_relay(record, header, [given[target] for target in sorted(given)])
    found = answer.header["process"]
    return KernelProcess(record.kernel_id, found["pid"], found["start_time_ticks"], found["pid"])


async def stop_relay(record: RelayRecord) -> Ended | None:
    """End the relay and its living kernel, and remove its folder; return how the kernel had ended.

    Idempotent: this also removes the remains of a killed relay, and kills a relay that does not
    answer.
    """
    try:
        answer = await _ask_relay(record, {"op": "stop"})
    except RelayUnavailableError:
        if is_anothers(record.folder):
            answer = await _ask_host(record.folder, {"op": "remove"})
        else:
            return await asyncio.to_thread(_remove_by_force, record)
    ended = answer.header.get("ended")
    return None if ended is None else parse_ended(ended)


async def remove_relay(folder: Path) -> None:
    """Have the relay host end a relay of another account and its kernel, whatever its files say."""
    await _ask_host(folder, {"op": "remove"})


async def signal_kernel(record: RelayRecord, number: int) -> None:
    """Signal the process group of a kernel of another account: the relay host may."""
    await _ask_host(record.folder, {"op": "signal", "number": number})


async def limit_kernel(record: RelayRecord, limits: GroupLimits) -> None:
    """Change the limits of the control group of another account's kernel: the relay host may."""
    asked = {"op": "limit", "memory": int(limits.memory), "cpus": limits.cpus, "pids": limits.pids}
    await _ask_host(record.folder, asked)


async def list_kernelspecs(
    runtime: RuntimeDir, account: str, known: str = "", folders: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Return the kernelspecs in the home of an account, or in *folders*, as the account tells them.

    ``mark`` alone where nothing has changed since the mark *known*; else ``specs``, ``problems`` and
    ``left_out``, of any type.
    """
    header = {"op": "kernelspecs", "account": account, "known": known, "folders": list(folders)}
    return (await _ask(runtime.relay_socket, header, "the relay host")).header


async def _ask_host(folder: Path, header: Mapping[str, Any]) -> Record:
    """Ask the host about a kernel of another account, waiting for a host that is being restarted."""
    runtime = RuntimeDir(folder.parent.parent)
    await ensure_relay_host(runtime)
    return await _ask(runtime.relay_socket, {**header, "kernel_id": folder.name}, "the relay host")


async def set_facts(record: RelayRecord, facts: Mapping[str, Any]) -> RelayRecord:
    """Replace the starter's facts in the record; return the new record."""
    return _record(record.folder, await _ask_relay(record, {"op": "set_facts", "facts": dict(facts)}))


def _launch_fields(launch: KernelLaunch, folder: Path) -> dict[str, Any]:
    limits = launch.rlimits
    is_ours = not is_anothers(folder)
    if limits is None and not is_ours:
        limits = {}  # the host gave the relay those of its account
    if limits is None:
        limits = {number: resource.getrlimit(number) for number in _RLIMITS}
    return {
        "argv": list(launch.argv),
        "env": dict(launch.env),
        "cwd": launch.cwd,
        "rlimits": [[number, soft, hard] for number, (soft, hard) in limits.items()],
        "umask": _own_umask() if launch.umask is None and is_ours else launch.umask,
        "program": launch.program,
    }


def _own_umask() -> int:
    """Return this process's umask. os.umask would change it for all threads meanwhile."""
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def _record(folder: Path, answer: Record) -> RelayRecord:
    try:
        record = parse_relay_record(folder, answer.header["record"])
    except (KeyError, UnreadableRecordError) as error:
        raise RelayProtocolError(f"the relay of {folder} answered no record that we can read: {error}") from error
    if record.kernel_id != folder.name:  # it may run as another account
        raise RelayProtocolError(f"the relay of {folder} answered the record of kernel {record.kernel_id!r:.60}")
    return record


def _remove_by_force(record: RelayRecord) -> Ended | None:
    """End the kernel of a relay that does not answer, then the relay, and remove its folder.

    Blocks. The folder goes before the relay: a host finds nothing then to put another relay in
    front of.
    """
    with contextlib.suppress(OSError, UnreadableRecordError):
        record = read_relay_record(record.folder)
    if record.kernel is not None and record.has_living_kernel:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(record.kernel.pid, signal.SIGKILL)
    ended = read_ended(record)
    remove_folder(record.folder)
    if is_process(record.pid, record.start_time_ticks):
        try:
            os.kill(record.pid, signal.SIGKILL)
        except PermissionError as error:
            raise RelayUnavailableError(
                f"the relay of kernel {record.kernel_id} (pid {record.pid}) does not answer; it is another account's"
            ) from error
    return ended


# ---- one question


async def _ask_relay(record: RelayRecord, header: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Record:
    """Ask a relay.

    A living one whose socket has no name makes the name again in a second or two.
    """
    give_up = time.monotonic() + _NAMELESS_SECONDS
    while True:
        try:
            return await _ask(record.link_socket, header, "the relay", descriptors, record.folder)
        except RelayUnavailableError as error:
            is_nameless = isinstance(error.__cause__, (FileNotFoundError, ConnectionRefusedError))
            if not is_nameless or time.monotonic() > give_up or not is_process(record.pid, record.start_time_ticks):
                raise
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


async def _ask(
    path: Path, header: Mapping[str, Any], whom: str, descriptors: Sequence[int] = (), folder: Path | None = None
) -> Record:
    """Connect, greet, ask, read the answer. ``folder``: the relay's, if it is one that is asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            return await within(_converse(connection, path, header, descriptors, folder), _ANSWER_SECONDS)
        except asyncio.TimeoutError:
            raise RelayUnavailableError(f"{whom} at {path} did not answer within {_ANSWER_SECONDS:g} s") from None
        except OSError as error:
            raise RelayUnavailableError(f"{whom} at {path} does not answer: {error.strerror or error}") from error
        except ProtocolError as error:
            raise RelayProtocolError(f"{whom} at {path} cannot be understood: {error}") from error


async def _converse(
    connection: socket.socket, path: Path, header: Mapping[str, Any], descriptors: Sequence[int], folder: Path | None
) -> Record:
    loop = asyncio.get_running_loop()
    await connect(connection, path)
    if folder is not None:
        check_listener(connection, folder)
    reader = RecordReader(LONGEST_QUESTION)
    hello = {"op": "hello", "versions": list(VERSIONS), "role": "control", "pid": os.getpid()}
    await loop.sock_sendall(connection, encode_whole(hello))
    _checked(await _read(connection, reader))
    data = encode_whole(dict(header))
    if descriptors:
        sent = socket.send_fds(connection, [data], list(descriptors))
        data = data[sent:]
    if data:  # sending nothing fails, too, after the answer came and the connection closed
        await loop.sock_sendall(connection, data)
    return _checked(await _read(connection, reader))


async def _read(connection: socket.socket, reader: RecordReader) -> Record:
    loop = asyncio.get_running_loop()
    while True:
        count = await loop.sock_recv_into(connection, reader.buffer())
        if count == 0:
            raise ConnectionResetError("it closed the connection without an answer")
        for record in reader.filled(count):
            return record


def _checked(record: Record) -> Record:
    if record.op == "refused":
        code, message = str(record.header.get("code")), str(record.header.get("message"))
        if code == "version":
            raise RelayProtocolError(message)
        raise RelayRefusedError(message, code)
    return record
