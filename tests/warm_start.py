"""Start Python programs from a process that has imported what they need.

Most of the time of an agent's or a server's start is imports, the same in each of hundreds of tests.
Here each program is a process of its own as ever, with its own words, variables, folder and files; a
process that waits for this forks it after the imports, once for each pytest worker. Use it where the
start is not what the test is about: words and variables in /proc are those of the forking process.
"""

from __future__ import annotations

import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

AGENT = ("jupyter_aliquot.gpu_hook.agent.main",)
SERVER = (
    "jupyter_aliquot.gateway.serverapp.lazy_rfc3987",
    "jupyter_server.serverapp",
    "jupyter_aliquot.gateway.extension",
)
# The words of `aliquot`, as the installed script has them.
ALIQUOT = ("-c", "import sys; from jupyter_aliquot.gateway.cli.app import main; sys.exit(main())")
# The loader and the interpreter read these when a program is executed, and the modules above the others
# when they are imported; a program whose values differ is executed.
READ_EARLY = ("LD_", "PYTHON", "MALLOC_", "GLIBC_", "PYZMQ_", "TORNADO_", "TRAITLETS_", "PROMETHEUS_", "prometheus_")
READ_EARLY += ("JUPYTER_GATEWAY_", "JUPYTER_PLATFORM_DIRS", "JUPYTER_ALLOW_INSECURE_WRITES", "KERNEL_LAUNCH_TIMEOUT")
READ_EARLY += ("LANG", "LC_", "USER")
_IS_READ_AGAIN = ("send2trash.plat_other",)  # where the trash is, by HOME
_LENGTH_BYTES = 8


class WarmProcess:
    """A forked program, with the part of `subprocess.Popen` that tests of a server use."""

    def __init__(self, parent: _Parent, pid: int, words: Sequence[str]) -> None:
        self.pid = pid
        self.args = list(words)
        self.returncode: int | None = None
        self._parent = parent
        self._end = os.pidfd_open(pid)  # its parent does not reap it before it is asked to

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            if poll.poll(None if seconds is None else seconds * 1000):
                self.returncode = self._parent.ask({"reap": self.pid})
                os.close(self._end)
        return self.returncode


def start(
    imports: tuple[str, ...],
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> subprocess.Popen[bytes] | WarmProcess:
    """Start `python *words*` as `subprocess.Popen` does, without pipes.

    Args:
        imports: The modules that the forking process has imported; without any, the program is executed.
        words: The words after `python`: a file, -m and a module, or -c and code, and the program's own.
        env: The program's variables; by default those of this process.
        cwd: The program's folder; by default this process's.
        stdin: A file or `subprocess.DEVNULL`, as for the other two; by default this process's.
        stdout: As above.
        stderr: As above, and `subprocess.STDOUT`.
    """
    variables = dict(os.environ if env is None else env)
    if not imports or _early(variables) != _early(os.environ):
        command = [sys.executable, *words]
        return subprocess.Popen(command, env=variables, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
    parent = _parent(imports, os.getpid(), *sorted(_early(os.environ).items()))
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        files = [_number(file, number, nowhere) for number, file in enumerate((stdin, stdout))]
        files.append(files[1] if stderr == subprocess.STDOUT else _number(stderr, 2, nowhere))
        request = {"words": list(words), "env": variables, "cwd": os.fspath(cwd or Path.cwd())}
        return WarmProcess(parent, parent.ask(request, files), words)
    finally:
        os.close(nowhere)


def run(
    imports: tuple[str, ...],
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """Run `python *words*` to its end, as `subprocess.run` does, and return what it wrote; its input is empty."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(imports, words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(words), code, out.read(), err.read())


def _early(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(READ_EARLY)}


def _number(file: int | IO[Any] | None, inherited: int, nowhere: int) -> int:
    if file is None:
        return inherited
    if file == subprocess.DEVNULL:
        return nowhere
    number = file if isinstance(file, int) else file.fileno()
    assert number >= 0, "a forked program has no pipes: start it with subprocess"
    return number


class _Parent:
    """The process that forks, seen from a pytest worker. It ends with the worker."""

    def __init__(self, imports: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        self._socket, self._lock = ours, threading.Lock()
        with theirs:
            subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *imports],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> int:
        """Return the pid of a new process, or how one ended."""
        with self._lock:
            _send(self._socket, request, files)
            answer, _ = _receive(self._socket)
        if answer is None:
            raise RuntimeError("the process that forks programs has ended: see its error in this test's output")
        return int(answer["answer"])


@functools.cache
def _parent(imports: tuple[str, ...], _pid: int, *_early: tuple[str, str]) -> _Parent:
    return _Parent(imports)


def _send(connection: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(connection, [len(data).to_bytes(_LENGTH_BYTES, "big")], list(files))
    connection.sendall(data)


def _receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    head, files, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 3, socket.MSG_WAITALL)
    if len(head) < _LENGTH_BYTES:
        return None, files
    data = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    message: dict[str, Any] = json.loads(data)
    return message, files


def _fork_on_request(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Fork a process for each request; return the request in the new process, None at the end."""
    while True:
        request, files = _receive(connection)
        if request is None:
            return None, []
        if "reap" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                connection.close()
                return request, files
            for file in files:
                os.close(file)
        _send(connection, {"answer": answer})


def _run(request: dict[str, Any], files: list[int]) -> None:
    """Be the program of the request."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for name in _IS_READ_AGAIN:
        if name in sys.modules:
            importlib.reload(sys.modules[name])
    _execute(request["words"])


def _execute(words: list[str]) -> None:
    """Do what `python *words*` does: run a module (-m), code (-c), or a file."""
    if words[0] == "-m":
        sys.path[0], sys.argv = os.getcwd(), words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), vars(main))
        return
    sys.path[0], sys.argv, main.__file__ = os.path.dirname(words[0]), words, words[0]
    with io.open_code(words[0]) as file:
        code = compile(file.read(), words[0], "exec")
    exec(code, vars(main))


def _main(descriptor: str, imports: Sequence[str]) -> None:
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    for name in imports:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a thread would be missing after the fork"
    gc.collect()
    gc.freeze()
    request, files = _fork_on_request(connection)
    if request is not None:
        _run(request, files)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
