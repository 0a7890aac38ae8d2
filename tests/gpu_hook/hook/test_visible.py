"""CUDA_VISIBLE_DEVICES in a kernel: an index counts the kernel's own devices.

Another kernel's are out of reach.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.ledger.journal import show_devices

MIB = 1 << 20
QUOTAS = (32 * MIB, 64 * MIB, 96 * MIB)
NO_DEVICE = 100
DEADLINE_SECONDS = 60.0
BEGIN = "[init(), [uuid(index) for index in range(count())]]"


class Kernel:
    """A kernel with the third, first and fourth of a node's four devices, in this order."""

    def __init__(self, node: Any) -> None:
        self.node = node
        outsider = node.outsider()
        outsider("begin()")
        self.all = [outsider(f"uuid({index})") for index in range(4)]
        outsider.close()
        self.own = [self.all[index] for index in (2, 0, 3)]
        node.grant(*zip(self.own, QUOTAS, strict=True))
        self.granted = ",".join(map(self.text, self.own))

    @staticmethod
    def text(uuid: str) -> str:
        return "GPU-" + "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))

    def program(self, **env: str) -> Any:
        return self.node.program(CUDA_VISIBLE_DEVICES=self.granted, ALIQUOT_VISIBLE_DEVICES=self.granted, **env)

    @staticmethod
    def until(claim: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not claim():
            assert time.monotonic() < deadline, "the claim did not come true in time"
            time.sleep(0.005)

    def seen(self, program: Any) -> list[str]:
        code, uuids = program(BEGIN)
        assert code == (0 if uuids else NO_DEVICE)
        return uuids


@pytest.fixture
def a_kernel(make_node: Callable[..., Any]) -> Kernel:
    return Kernel(make_node(devices=4, memory="128MiB"))


def choose(program: Any, value: str | None) -> None:
    """Choose devices as a notebook does, before CUDA begins."""
    if value is None:
        program("os.environ.pop('CUDA_VISIBLE_DEVICES')")
    else:
        program(f"os.environ.__setitem__('CUDA_VISIBLE_DEVICES', {value!r})")


@pytest.mark.parametrize(
    ("chosen", "want"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("0", [0]),
        ("1,0", [1, 0]),
        (" 2 , 0", [2, 0]),
        ("0,1,2", [0, 1, 2]),
        ("1,3,0", [1]),
        ("3", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("1,1", []),
        ("0,", [0]),
        ("NoDevFiles", []),
        ("0x1", []),
        ("99999999999999999999", []),
        ("{own2},{own0}", [2, 0]),
        ("{OWN1}", [1]),
        ("{own0},1", [0, 1]),
        ("{other},0", []),
        ("0,{other}", [0]),
        ("GPU-", []),
    ],
)
def test_a_choice_means_the_kernels_own_devices(chosen: str | None, want: list[int], a_kernel: Kernel) -> None:
    program = a_kernel.program()
    names = {f"own{index}": a_kernel.text(uuid) for index, uuid in enumerate(a_kernel.own)}
    names["OWN1"] = "GPU-" + names["own1"][4:].upper()
    value = chosen and chosen.format(**names, other=a_kernel.text(a_kernel.all[1]))
    choose(program, value)
    assert a_kernel.seen(program) == [a_kernel.own[index] for index in want]


def test_a_beginning_of_a_uuid_names_a_device_if_it_fits_one_of_the_kernels(a_kernel: Kernel) -> None:
    first, second, _ = map(a_kernel.text, a_kernel.own)
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    program = a_kernel.program()
    choose(program, first[: shared + 1])
    assert a_kernel.seen(program) == [a_kernel.own[0]]
    ambiguous = a_kernel.program()
    choose(ambiguous, first[:shared])
    assert a_kernel.seen(ambiguous) == []


def test_a_list_of_any_length_is_the_kernels_own(a_kernel: Kernel) -> None:
    """Untranslated, an index would count the node's devices."""
    program = a_kernel.program()
    choose(program, ",".join(["1"] * 2000))
    program("init()")
    (line,) = [line for line in a_kernel.node.log.read_text().splitlines() if "event=visible_devices" in line]
    assert 'chosen="1,1,1,' in line


def test_the_users_value_is_restored(a_kernel: Kernel) -> None:
    ask = "(lambda get: (setattr(get, 'restype', ctypes.c_char_p), (get(b'CUDA_VISIBLE_DEVICES') or b'-').decode())[1])"
    ask += "(ctypes.CDLL(None).getenv)"
    for value, want in (("1,0", "1,0"), (None, "-"), ("", "-"), (a_kernel.granted, a_kernel.granted)):
        program = a_kernel.program()
        choose(program, value)
        program("init()")
        assert program(ask) == want


def test_three_devices_have_their_own_quotas_in_the_chosen_order(a_kernel: Kernel) -> None:
    program = a_kernel.program()
    assert a_kernel.seen(program) == a_kernel.own
    assert program("[total(i)[1] for i in range(3)]") == list(QUOTAS)
    reordered = a_kernel.program()
    choose(reordered, "2,0")
    reordered("init()")
    assert reordered("[total(i)[1] for i in range(2)]") == [QUOTAS[2], QUOTAS[0]]
    assert reordered(f"use(0) or alloc({QUOTAS[2]})[0]") == 0
    assert reordered(f"use(1) or alloc({QUOTAS[0] + MIB})[0]") == 2


def test_children_choose_among_the_kernels_devices_too(a_kernel: Kernel) -> None:
    code = "import json; from cuda.bindings import driver as d; d.cuInit(0); count = d.cuDeviceGetCount()[1]"
    code += "; print(json.dumps([bytes(d.cuDeviceGetUuid(i)[1].bytes).hex() for i in range(count)]))"
    program = a_kernel.program()
    choose(program, "2,1")
    want = [a_kernel.own[2], a_kernel.own[1]]
    run = f"__import__('subprocess').check_output([sys.executable, '-c', {code!r}], text=True)"
    assert json.loads(program(run)) == want  # before CUDA began here
    assert a_kernel.seen(program) == want
    assert json.loads(program(run)) == want  # and after


def test_a_library_that_was_imported_before_the_choice_sees_it(a_kernel: Kernel) -> None:
    """PyTorch programs do so: import, choose, and only then use."""
    code = """
import json, os
from cuda.bindings import driver as d
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
d.cuInit(0)
print(json.dumps([bytes(d.cuDeviceGetUuid(i)[1].bytes).hex() for i in range(d.cuDeviceGetCount()[1])]))
"""
    env = {**a_kernel.node.hooked_env}
    env.update(CUDA_VISIBLE_DEVICES=a_kernel.granted, ALIQUOT_VISIBLE_DEVICES=a_kernel.granted)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [a_kernel.own[1]]


def test_many_threads_may_begin_at_once(a_kernel: Kernel) -> None:
    program = a_kernel.program()
    choose(program, "1,0")
    assert program("in_threads(16, init)") == [0] * 16
    assert a_kernel.seen(program) == [a_kernel.own[1], a_kernel.own[0]]
    assert program("os.environ['CUDA_VISIBLE_DEVICES']") == "1,0"


def test_a_child_that_is_forked_while_another_thread_begins_cuda_begins_it_by_itself(
    a_kernel: Kernel, tmp_path: Path
) -> None:
    """The hook holds a lock, and a list in the environment, while the driver's cuInit runs."""
    hold, log = tmp_path / "hold", tmp_path / "driver.log"
    hold.touch()
    faults = {"ALIQUOT_SOFTGPU_FAULTS": "cuInit:1=hold", "ALIQUOT_SOFTGPU_HOLD": str(hold)}
    program = a_kernel.program(ALIQUOT_SOFTGPU_LOG=str(log), **faults)
    choose(program, "2,0")
    assert program("__import__('builtins').__setattr__('begun', in_background(init))") is None
    a_kernel.until(lambda: log.exists() and "event=fault function=cuInit" in log.read_text())
    given = "(signal.alarm(30), ctypes.CDLL(None).getenv)[1]"  # a child that hangs ends
    given = (
        f"(lambda get: (setattr(get, 'restype', ctypes.c_char_p), get(b'CUDA_VISIBLE_DEVICES').decode())[1])({given})"
    )
    told = program(f"in_fork(lambda: [{given}, {BEGIN}])")
    assert told == ["2,0", [0, [a_kernel.own[2], a_kernel.own[0]]]]
    hold.unlink()
    assert program("begun()") == 0
    assert a_kernel.seen(program) == [a_kernel.own[2], a_kernel.own[0]]


@pytest.fixture
def guarded(a_kernel: Kernel, tmp_path: Path, include_dir: Path) -> Callable[..., list[str]]:
    """Run environment.c with a choice; return the devices it sees, its choice and its grant."""
    program = tmp_path / "environment"
    source = Path(__file__).parent / "clients" / "environment.c"
    driver = Path(a_kernel.node.hooked_env["ALIQUOT_REAL_CUDA"]).parent
    command = ["cc", "-w", "-rdynamic", "-D_GNU_SOURCE", f"-I{include_dir}", str(source), "-o", str(program)]
    subprocess.run([*command, f"-L{driver}", "-l:libcuda.so.1"], check=True)

    def run(chosen: str | None, *arguments: str) -> list[str]:
        env = {**a_kernel.node.hooked_env, "ALIQUOT_VISIBLE_DEVICES": a_kernel.granted}
        if chosen is not None:
            env["CUDA_VISIBLE_DEVICES"] = chosen
        done = subprocess.run([program, *arguments], env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize(("chosen", "want"), [("1,0", [1, 0]), (None, [0, 1, 2])])
def test_no_thread_that_reads_the_environment_meets_a_change_of_it(
    chosen: str | None, want: list[int], a_kernel: Kernel, guarded: Callable[..., list[str]]
) -> None:
    """The program ends where it calls setenv and unsetenv.

    These move the memory that another thread's getenv reads. A child that another thread starts has
    its grant at any time.
    """
    uuids, now, grant = guarded(chosen)
    assert uuids.split() == ["0", *(a_kernel.own[place] for place in want)]
    assert (now, grant) == (chosen or "deleted", a_kernel.granted)


def test_without_memory_for_the_choice_there_is_no_device_and_the_choice_stays(
    a_kernel: Kernel, guarded: Callable[..., list[str]]
) -> None:
    translated = f"CUDA_VISIBLE_DEVICES={a_kernel.text(a_kernel.own[1])}"
    want = [str(NO_DEVICE), "1", a_kernel.granted]
    assert guarded("1", str(len(translated) + 1)) == want


def test_each_device_that_a_kernel_had_means_its_present_one(a_kernel: Kernel) -> None:
    """CUDA told its programs each of them, and they start workers by what it told."""
    start, between, present = map(a_kernel.text, a_kernel.own)
    other, folder = a_kernel.text(a_kernel.all[1]), a_kernel.node.kernel_dir
    for uuid in (between, start, between, present):
        show_devices(folder, [uuid])
    assert os.readlink(folder / "devices") == present, "what a hook of an earlier release reads"

    def seen(chosen: str) -> list[str]:
        program = a_kernel.node.program(CUDA_VISIBLE_DEVICES=chosen, ALIQUOT_VISIBLE_DEVICES=start)
        return a_kernel.seen(program)

    for chosen in (start, between, present, between[:-4], f"{between},{present}", "0"):
        assert seen(chosen) == [a_kernel.own[2]], chosen
    for chosen in (other, f"{other},{between}", "1", "", "-1"):
        assert seen(chosen) == [], chosen
    (folder / "devices-before").unlink()  # as an earlier agent leaves it
    assert [seen(chosen) for chosen in (start, between, present)] == [[a_kernel.own[2]], [], [a_kernel.own[2]]]


def test_where_nothing_was_granted_the_drivers_own_meaning_stays(a_kernel: Kernel) -> None:
    program = a_kernel.node.program(CUDA_VISIBLE_DEVICES="1")
    program("init()")
    assert program("uuid(0)") == a_kernel.all[1]
