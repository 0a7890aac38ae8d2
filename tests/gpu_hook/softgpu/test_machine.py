"""The machine behind the devices.

Processes share it, it survives their deaths, and it reports its limits.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
from pathlib import Path

import pytest

_CHURN = """
    import random
    start(); held = []; r = random.Random(os.getpid()); say("up")
    while True:
        if held and (r.random() < 0.5 or len(held) > 20):
            cuda.cuMemFree_v2(u64(held.pop()))
        else:
            error, p = alloc(r.choice([512, 4096, MIB, 3 * MIB]))
            if error == 0: held.append(p)
"""


SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))


@pytest.mark.soak
@pytest.mark.timeout(max(300, 120 * SOAK))
def test_nothing_is_leaked_after_a_storm_of_kills(a_machine):
    clients, kills = [], 60 * SOAK
    observer = a_machine.popen("start()\nwhile wait_for_go(): say(free_bytes() // MIB)")
    for number in range(kills):
        clients.append(a_machine.popen(_CHURN))
        if len(clients) == 4 or number == kills - 1:
            for client in clients:
                assert client.stdout.readline() == "up\n"
            random.shuffle(clients)
            for client in clients:
                client.kill()
                client.communicate()
            clients = []
            observer.stdin.write("free\n")
            observer.stdin.flush()
            assert observer.stdout.readline() == "64\n"
    observer.communicate("\n", timeout=10)
    assert a_machine.run("start(); say(alloc(64 * MIB)[0])") == "0"


def test_killed_owner_frees_its_memory_although_its_child_lives_on(a_machine):
    owner = a_machine.popen("""
        start(); check(alloc(40 * MIB)[0])
        child = os.fork()
        if child == 0:
            signal.pause()
        say(child); signal.pause()
    """)
    child = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    try:
        assert a_machine.run("start(); say(free_bytes() // MIB)") == "64"
    finally:
        os.kill(child, signal.SIGKILL)
        owner.communicate()


def test_forked_child_of_an_initialised_process_is_refused(a_machine):
    said = a_machine.run("""
        start(); p = alloc(MIB)[1]
        child = os.fork()
        if child == 0:
            os._exit(100 + cuda.cuInit(0) * 10 + alloc(512)[0])
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), cuda.cuMemFree_v2(u64(p)))
    """)
    want_not_initialised = 3
    assert said == f"{100 + 11 * want_not_initialised} 0"


def test_child_forked_before_init_works(a_machine):
    said = a_machine.run("""
        child = os.fork()
        if child == 0:
            start(); os._exit(alloc(MIB)[0])
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert said == "0"


_HOLD = """
    start(); check(alloc(8 * MIB)[0])
    nvml = ctypes.CDLL("libnvidia-ml.so.1"); check(nvml.nvmlInit_v2())
    check(nvml.aliquot_softgpu_hold_lock(1)); say("holds"); signal.pause()
"""


def test_stopped_holder_of_the_lock_delays_others_and_loses_nothing(a_machine):
    holder = a_machine.popen(_HOLD)
    assert holder.stdout.readline() == "holds\n"
    holder.send_signal(signal.SIGSTOP)
    reader = a_machine.popen("""
        import pynvml as n
        n.nvmlInit(); say(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).used // MIB)
    """)
    assert reader.stdout.readline() == "8\n"
    reader.communicate(timeout=10)
    waiter = a_machine.popen("say('begin'); start(); say(alloc(60 * MIB)[0], alloc(56 * MIB)[0])")
    assert waiter.stdout.readline() == "begin\n"
    holder.send_signal(signal.SIGCONT)
    holder.kill()
    holder.communicate()
    output, errors = waiter.communicate(timeout=20)
    assert output in ("0 2\n", "2 0\n"), errors


def test_state_file_of_another_version_is_refused_with_a_remedy(a_machine):
    a_machine.run("start()")
    with open(a_machine.state, "r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", 99))
    client = a_machine.popen("say(cuda.cuInit(0), ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())")
    output, errors = client.communicate(timeout=20)
    want_cuda, want_nvml = 803, 18
    assert output == f"{want_cuda} {want_nvml}\n"
    assert "is of version 99" in errors
    assert "remove it" in errors


def test_state_file_of_another_size_is_refused(a_machine):
    a_machine.state.write_bytes(b"x" * 100)
    assert a_machine.run("say(cuda.cuInit(0))") == "803"


def test_half_made_state_file_is_made_anew(a_machine):
    a_machine.run("start()")
    with open(a_machine.state, "r+b") as file:
        file.write(b"\0" * 8)
    assert a_machine.run("start(); say(free_bytes() // MIB)") == "64"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a full tmpfs needs root")
def test_full_shared_memory_is_an_error_not_a_crash(a_machine, tmp_path: Path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mount is not permitted: {mounted.stderr.decode().strip()}")
    try:
        client = a_machine.popen(
            "say(cuda.cuInit(0), ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())",
            ALIQUOT_SOFTGPU_STATE=str(tmp_path / "state"),
        )
        output, errors = client.communicate(timeout=20)
        want_cuda, want_nvml = 304, 23
        assert output == f"{want_cuda} {want_nvml}\n"
        assert "make room" in errors
        assert not (tmp_path / "state").exists()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize("bad", [("MEMORY", "12x"), ("DEVICES", "0"), ("DEVICES", "9"), ("LINK_GBPS", "fast")])
def test_bad_setting_is_named(make_machine, bad):
    machine = make_machine(**{bad[0]: bad[1]})
    client = machine.popen("say(cuda.cuInit(0))")
    output, errors = client.communicate(timeout=20)
    want_not_ready = 802
    assert output == f"{want_not_ready}\n"
    assert f"ALIQUOT_SOFTGPU_{bad[0]}={bad[1]}" in errors


def test_first_process_fixes_the_shape(make_machine):
    machine = make_machine(MEMORY="128MiB", DEVICES="2", SM_COUNT="10")
    machine.run("start()")
    said = machine.run(
        "start(); n = ctypes.c_int(); cuda.cuDeviceGetCount(ctypes.byref(n)); say(n.value, free_bytes() // MIB)",
        ALIQUOT_SOFTGPU_MEMORY="1GiB",
        ALIQUOT_SOFTGPU_DEVICES="1",
    )
    assert said == "2 128"
