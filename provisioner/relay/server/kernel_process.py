"""Start, watch and end the kernel's process, a child of the relay. Owns the process and its log."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.files import Ended, ProcessId, read_ended_in
from jupyter_aliquot.provisioner.relay.wire.peer import Refusal
from jupyter_aliquot.provisioner.relay.wire.proc import is_process, start_time_ticks

_WORDS_BYTES = 4096
_WORDS_LINES = 20
_HOST_WRITES_SECONDS = 1.0
HOST_LOOK_SECONDS = 0.01
# No parent: 1 makes ipykernel watch none, and expect no reader of its terminal.
_ENDS_FIRST = "300"  # of 1000: a kernel counts for so much of the memory more than its relay
_PARENT = {"JPY_PARENT_PID": "1"}


@dataclass(frozen=True)
class Launch:
    """A checked request to start a process."""

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    rlimits: list[tuple[int, int, int]]
    umask: int  # -1: the relay's own
    program: str = ""
    # Whether the system, where memory runs out, is to end it before its relay, which tells of it.
    ends_first: bool = False


def read_launch(fields: Any) -> Launch:
    """Return the launch in a record's header. Raises Refusal."""
    try:
        argv, env, cwd = fields["argv"], fields["env"], fields["cwd"]
        rlimits = [(int(number), int(soft), int(hard)) for number, soft, hard in fields["rlimits"]]
        umask = -1 if fields["umask"] is None else int(fields["umask"])
        program = str(fields.get("program", ""))
    except (KeyError, TypeError, ValueError) as error:
        raise Refusal("bad_request", f"a launch has argv, env, cwd, rlimits and umask: {error!r}") from error
    texts = [*argv, *env, *env.values()] if isinstance(argv, list) and isinstance(env, dict) else [None]
    if not argv or not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise Refusal("bad_request", "argv is a list of texts that is not empty, env an object of texts; none has NUL")
    if cwd is not None and not isinstance(cwd, str):
        raise Refusal("bad_request", f"cwd is {type(cwd).__name__}, not a text")
    return Launch(argv, env, cwd, rlimits, umask, program)


class RunningKernel:
    """A kernel's process.

    It is a child of this relay, or of the relay host if an earlier relay started it.
    """

    def __init__(self, process: ProcessId, child: subprocess.Popen[bytes] | None) -> None:
        self.id = process
        self._child = child
        self._status: int | None = None
        # The end of a kernel that an earlier relay had started: the host inherits the children of a
        # killed relay.
        self.host_saw: Ended | None = None
        self._host_writes_until: float | None = None
        try:
            self.descriptor: int | None = os.pidfd_open(process.pid)
        except OSError:
            self.descriptor = None  # gone already, or a system without pidfds: ``poll`` finds out

    @property
    def is_child(self) -> bool:
        return self._child is not None

    @property
    def status(self) -> int | None:
        """Return the exit status as in subprocess: a signal is negative.

        None: it runs, or it is not known.
        """
        return None if self._child is None else self._child.returncode

    def has_ended(self) -> bool:
        """Tell whether the process has ended, and reap it."""
        if self._child is not None:
            return self._child.poll() is not None
        return not is_process(self.id.pid, self.id.start_time_ticks)

    def awaits_host(self, folder: Path, now: float) -> bool:
        """Tell whether the host may still write down how this one ended.

        Callers poll it after the end.
        """
        if self.is_child:
            return False
        if self._host_writes_until is None:
            self._host_writes_until = now + _HOST_WRITES_SECONDS
        found = read_ended_in(folder)
        self.host_saw = found if found is not None and found.pid == self.id.pid else None
        return self.host_saw is None and now < self._host_writes_until

    def signal(self, number: int) -> None:
        """Send a signal to the process group; do nothing once the process ended."""
        if self.has_ended():
            return
        try:
            os.killpg(self.id.pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            with contextlib.suppress(OSError):
                os.kill(self.id.pid, number)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def for_account(launch: Launch, account: str) -> Launch:
    """Return the launch as the relay's account can run it: in a folder that it may enter.

    Raises Refusal, in words for the kernel's owner.
    """
    program = _unusable(launch)
    if program is not None:
        name, reason = program
        raise Refusal(
            "launch",
            f"{name!r} cannot be started as {account!r}: {reason}. Its environment must be one that this account can "
            f"read and execute, folders above it included (namei -l {name}). Choose another kernel, or ask an "
            "administrator",
        )
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise Refusal(
            "account", f"The account {account!r} was removed. Ask an administrator to make it again"
        ) from None
    for folder in (launch.cwd, home):
        if folder and os.path.isdir(folder) and os.access(folder, os.X_OK):
            return replace(launch, cwd=folder, ends_first=True)
    reason = "Permission denied" if os.path.lexists(home) else "there is no such folder"
    raise Refusal(
        "launch",
        f"The home {home} of the account {account!r} cannot be entered: {reason}. Ask an administrator to make it "
        f"(install -d -o {account} -m 700 {home}), or to correct its rights",
    )


def _unusable(launch: Launch) -> tuple[str, str] | None:
    """Return the program that this account cannot run, and why."""
    path = launch.env.get("PATH", os.defpath)
    for name in (launch.program, launch.argv[0]):
        if not name or shutil.which(name, path=path) is not None:
            continue
        try:
            os.stat(name if os.path.dirname(name) else launch.argv[0])
        except FileNotFoundError:
            return name, "not found"
        except OSError as error:
            return name, error.strerror or str(error)
        return name, "Permission denied" if os.path.dirname(name) else "not found"
    return None


def start(launch: Launch, log: Path, given: Mapping[int, int]) -> RunningKernel:
    """Start a kernel.

    ``given``: standard descriptors; others are /dev/null and the log. Raises Refusal.
    """
    opened: list[int] = []
    try:
        standard = _standard_descriptors(log, given, opened)
        child = subprocess.Popen(
            launch.argv,
            env={**launch.env, **_PARENT},
            cwd=launch.cwd,
            stdin=standard[0],
            stdout=standard[1],
            stderr=standard[2],
            start_new_session=True,
            umask=launch.umask,
            # ZMQ's threads are C without locks of ours, and this calls nothing that another thread
            # may hold.
            preexec_fn=lambda: _become_kernel(launch),
        )
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Refusal("launch", _failure(launch, error)) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return RunningKernel(ProcessId(child.pid, start_time_ticks(child.pid) or 0), child)


def _standard_descriptors(log: Path, given: Mapping[int, int], opened: list[int]) -> Sequence[int]:
    def file(path: str | Path, flags: int) -> int:
        opened.append(os.open(path, flags | os.O_CLOEXEC, 0o600))
        return opened[-1]

    output = None
    found = []
    for number in (0, 1, 2):
        if number in given:
            found.append(given[number])
        elif number == 0:
            found.append(file(os.devnull, os.O_RDONLY))
        else:
            output = file(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if output is None else output
            found.append(output)
    return found


def _become_kernel(launch: Launch) -> None:
    """Give the child the signal handlers and limits of its starter. Called before exec."""
    if launch.ends_first:
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(_ENDS_FIRST)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    for kind, soft, hard in launch.rlimits:
        with contextlib.suppress(OSError, ValueError):  # above our own hard limit: ours stays
            resource.setrlimit(kind, (soft, hard))


def _failure(launch: Launch, error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and launch.cwd is not None and not os.path.isdir(launch.cwd):
        return f"Requested to start a kernel in {launch.cwd}, but there is no such folder. Create it, or choose another"
    reason = getattr(error, "strerror", None) or error
    return f"{launch.argv[0]!r} cannot be started: {reason}. Check argv in the kernelspec's kernel.json"


def log_size(log: Path) -> int:
    """Return the place in the log at which a new kernel's output begins."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def bound_log(log: Path, most_bytes: int) -> bool:
    """Cut the first half of a log that grew too long; True if it did.

    Output that comes meanwhile is lost.
    """
    with contextlib.suppress(OSError):
        if log.stat().st_size <= most_bytes:
            return False
        with open(log, "r+b") as file:
            file.seek(-most_bytes // 2, os.SEEK_END)
            kept = file.read(most_bytes)
            file.truncate(0)
        with open(log, "ab") as file:
            file.write(kept)
        return True
    return False


def last_words(log: Path, start: int) -> str:
    """Return the log's last lines since the last process began."""
    try:
        with open(log, "rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - _WORDS_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-_WORDS_LINES:])
