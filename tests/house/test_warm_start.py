"""A forked program is what an executed one is, as far as tests of agents and servers can tell."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_start

LIGHT = ("json",)
SLEEP = ("-c", "import time; time.sleep(1000)")
PROGRAM = """import atexit, json, os, sys
atexit.register(print, "left")
print(json.dumps([sys.argv[1:], os.environ.get("A_WORD"), os.environ.get("HOME"), os.getcwd(), sys.stdin.read()]))
print(__name__, file=sys.stderr)
sys.exit(7)
"""
STARTER = f"""import sys
sys.path.insert(0, {str(Path(warm_start.__file__).parent)!r})
import warm_start
program = warm_start.start({LIGHT!r}, {SLEEP!r}).pid
print(program, open(f"/proc/{{program}}/stat").read().rsplit(")", 1)[1].split()[1], flush=True)
sys.stdin.readline()
"""
READS = f"""import importlib, os, sys
read, find = set(), type(os.environ).__getitem__
def seen(variables, name):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in ("os", "collections.abc", "posixpath"):
        frame = frame.f_back
    read.add((os.fsdecode(name), frame.f_globals["__name__"]))
    return find(variables, name)
type(os.environ).__getitem__ = seen
for name in {(*warm_start.AGENT, *warm_start.SERVER, "httpx")!r}:
    importlib.import_module(name)
print(*("=".join(one) for one in sorted(read)))
"""
# These decide nothing in tests: the build's own, the user's site-packages, CGI, other systems' folders, and what is
# read again after the fork.
READ_IN_VAIN = ("_editable_skbc_jupyter_aliquot", "sysconfig", "wsgiref.handlers", "send2trash.plat_other")
NAMES_IN_VAIN = ("ANDROID_DATA", "JUPYTER_USE_PROGRAMDATA")


@pytest.fixture(params=["forked", "executed"])
def a_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to start a program: variables of the loader and of Python need the second."""
    if request.param == "executed":
        monkeypatch.setattr(warm_start, "_early", lambda variables: {"": str(id(variables))})
    return str(request.param)


@pytest.mark.parametrize("kind", ["file", "module", "code"])
def test_a_program_has_its_own_words_variables_folder_and_files(a_way: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "a_program.py").write_text(PROGRAM)
    (tmp_path / "in").write_text("given")
    words = {"file": [str(tmp_path / "a_program.py")], "module": ["-m", "a_program"], "code": ["-c", PROGRAM]}[kind]
    env = {**os.environ, "A_WORD": "mine"}
    env.pop("HOME", None)
    with (tmp_path / "in").open() as told, (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as error:
        files = {"stdin": told, "stdout": out, "stderr": error}
        process = warm_start.start(LIGHT, [*words, "one", "-two"], env=env, cwd=tmp_path, **files)
    assert isinstance(process, warm_start.WarmProcess) == (a_way == "forked")
    assert process.wait(60) == 7
    want = f'[["one", "-two"], "mine", null, "{tmp_path}", "given"]'
    assert (tmp_path / "out").read_text().splitlines() == [want, "left"]
    assert (tmp_path / "err").read_text() == "__main__\n"


def test_a_program_that_is_run_to_its_end_is_told_with_all_that_it_wrote(tmp_path: Path) -> None:
    words = ["-c", "import sys; print(sys.stdin.read() + 'out'); print('err', file=sys.stderr); sys.exit(3)"]
    done = warm_start.run(LIGHT, words, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_a_process_keeps_its_number_until_its_end_is_asked_for(a_way: str) -> None:
    process = warm_start.start(LIGHT, SLEEP)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    end = os.pidfd_open(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert select.select([end], [], [], 60)[0]
    os.close(end)
    assert Path(f"/proc/{process.pid}").exists()
    assert process.wait(60) == process.poll() == process.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()
    process.terminate()


def test_a_program_holds_no_file_of_the_process_that_forks(tmp_path: Path) -> None:
    first = warm_start.start(LIGHT, SLEEP)
    code = "import os; print(sorted(int(one) for one in os.listdir('/proc/self/fd')))"
    with (tmp_path / "out").open("w") as out:
        assert warm_start.start(LIGHT, ["-c", code], stdout=out, stdin=subprocess.DEVNULL).wait(60) == 0
    first.kill()
    first.wait(60)
    assert (tmp_path / "out").read_text() == "[0, 1, 2, 3]\n", "3 is the folder that it reads"


def test_variables_that_count_at_an_execution_have_one(tmp_path: Path) -> None:
    (tmp_path / "a_module_of_this.py").touch()
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = warm_start.start(LIGHT, ["-c", "import a_module_of_this"], env=env)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(60) == 0


def test_the_forking_process_ends_with_its_worker_and_programs_go_on() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", STARTER], stdin=pipe, stdout=pipe, text=True) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        program, forking = (os.pidfd_open(int(pid)) for pid in starter.stdout.readline().split())
        starter.stdin.close()
    assert select.select([forking], [], [], 60)[0]
    assert not select.select([program], [], [], 0)[0]
    signal.pidfd_send_signal(program, signal.SIGKILL)
    os.close(program)
    os.close(forking)


def test_the_modules_read_no_variable_early_but_those_that_have_a_program_executed() -> None:
    said = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=True).stdout.split()
    read = [one.split("=") for one in said]
    assert {"KERNEL_LAUNCH_TIMEOUT", "HOME"} <= {name for name, _ in read}, "variables are seen"
    counts = {name for name, module in read if module not in READ_IN_VAIN and name not in NAMES_IN_VAIN}
    assert {name for name in counts if not name.startswith(warm_start.READ_EARLY)} == set()
