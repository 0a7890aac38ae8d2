"""Devices as CUDA and NVML show them: names, visibility, agreement, loss."""

from __future__ import annotations

import json
import os

import pytest

_NVML = """
import json, pynvml as n
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
"""
_AGREE = """
from cuda.bindings import driver as d
start(1); check(alloc(5 * MIB)[0])
text = lambda answer: answer[1].split(b"\\0")[0].decode()
rows = []
for i, h in enumerate(handles):
    pci, memory = n.nvmlDeviceGetPciInfo(h), n.nvmlDeviceGetMemoryInfo(h)
    second = n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
    bus = text(d.cuDeviceGetPCIBusId(64, i))
    capability = tuple(d.cuDeviceGetAttribute(a, i)[1] for a in (75, 76))
    rows.append([
        n.nvmlDeviceGetName(h) == text(d.cuDeviceGetName(64, i)) == "Aliquot Software GPU",
        n.nvmlDeviceGetUUID(h).replace("GPU-", "").replace("-", "") == d.cuDeviceGetUuid(i)[1].bytes.hex(),
        pci.busId.endswith(bus), int(d.cuDeviceGetByPCIBusId(bus.encode())[1]) == i,
        memory.total == second.total == d.cuDeviceTotalMem(i)[1] == 96 * MIB,
        memory.used == second.used, memory.used // MIB,
        [p.usedGpuMemory // MIB for p in n.nvmlDeviceGetComputeRunningProcesses(h) if p.pid == os.getpid()],
        n.nvmlDeviceGetCudaComputeCapability(h) == capability,
    ])
assert n.nvmlSystemGetCudaDriverVersion() == d.cuDriverGetVersion()[1]
say(json.dumps(rows))
"""


def test_cuda_and_nvml_agree(make_machine):
    machine = make_machine(DEVICES="2", MEMORY="96MiB")
    said = machine.run(_NVML + _AGREE)
    want_idle = [True, True, True, True, True, True, 0, [], True]
    want_busy = [True, True, True, True, True, True, 6, [6], True]
    assert json.loads(said) == [want_idle, want_busy]


def test_all_versions_of_the_process_list_answer(a_machine):
    said = a_machine.run("""
        import pynvml as n
        n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0); start(); check(alloc(2 * MIB)[0])
        lib = ctypes.CDLL("libnvidia-ml.so.1"); count = ctypes.c_uint(0)
        say(lib.nvmlDeviceGetComputeRunningProcesses(h, ctypes.byref(count), None), count.value)
        for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2",
                     "nvmlDeviceGetComputeRunningProcesses_v3"):
            buffer = (ctypes.c_uint64 * 8)(); count.value = 2
            say(getattr(lib, name)(h, ctypes.byref(count), buffer), count.value, buffer[0] == os.getpid(), buffer[1])
        say(n.nvmlDeviceGetGraphicsRunningProcesses(h))
    """)
    want_insufficient = "7 1"
    assert said.split("\n") == [want_insufficient, *["0 1 True 2097152"] * 3, "[]"]


def test_utilisation_follows_the_busy_process(a_machine):
    said = a_machine.run("""
        import pynvml as n
        n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0); start(); builtin("aliquot_spin")
        since = int(time.time() * 1e6)
        for _ in range(12): check(launch("aliquot_spin", u64(50_000_000)))
        check(cuda.cuCtxSynchronize())
        samples = n.nvmlDeviceGetProcessUtilization(h, since)
        share, = [(s.smUtil * (s.timeStamp - since)) / 100 for s in samples if s.pid == os.getpid()]
        say(round(share / 1e6, 1), n.nvmlDeviceGetUtilizationRates(h).gpu > 10, n.nvmlDeviceGetTemperature(h, 0) > 30)
        try: n.nvmlDeviceGetProcessUtilization(h, int(time.time() * 1e6) + 10_000_000)
        except n.NVMLError_NotFound: say("none")
    """)
    want_busy_seconds = "0.6"
    assert said.split("\n") == [f"{want_busy_seconds} True True", "none"]


def test_dead_process_leaves_nvml_at_once(a_machine):
    holder = a_machine.popen("start(); check(alloc(32 * MIB)[0]); say('held'); signal.pause()")
    assert holder.stdout.readline() == "held\n"
    watcher = a_machine.popen("""
        import pynvml as n
        n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
        read = lambda: say(n.nvmlDeviceGetMemoryInfo(h).used // MIB, len(n.nvmlDeviceGetComputeRunningProcesses(h)))
        read(); wait_for_go(); read()
    """)
    assert watcher.stdout.readline() == "32 1\n"
    holder.kill()
    holder.communicate()
    assert watcher.communicate("go\n", timeout=20)[0] == "0 0\n"


def test_unknown_questions_are_not_supported(a_machine):
    said = a_machine.run("""
        import pynvml as n
        n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
        for ask in (n.nvmlDeviceGetFanSpeed, n.nvmlDeviceGetMigMode, n.nvmlDeviceGetEncoderUtilization):
            try: ask(h)
            except n.NVMLError_NotSupported: say("not supported")
    """)
    assert said.split("\n") == ["not supported"] * 3


@pytest.mark.parametrize(
    ("visible", "want"),
    [
        ("", "[]"),
        ("0", "[0]"),
        ("2,0", "[2, 0]"),
        ("1,7,0", "[1]"),
        ("-1", "[]"),
        ("1,1", "[]"),
        ("{uuid2}", "[2]"),
        ("{uuid2},{uuid0}", "[2, 0]"),
        ("GPU-616c", "[]"),
        ("GPU-0123", "[]"),
        ("NoDevFiles", "[]"),
    ],
)
def test_visible_devices_are_read_as_the_driver_reads_them(make_machine, visible, want):
    machine = make_machine(DEVICES="3")
    uuids = json.loads(machine.run(_NVML + "say(json.dumps([n.nvmlDeviceGetUUID(h) for h in handles]))"))
    said = machine.run(
        """
        from cuda.bindings import driver as d
        error, = d.cuInit(0)
        count = d.cuDeviceGetCount()[1] if error == 0 else 0
        say(int(error), [d.cuDeviceGetUuid(i)[1].bytes[15] for i in range(count)])
        """,
        CUDA_VISIBLE_DEVICES=visible.format(uuid0=uuids[0], uuid2=uuids[2]),
    )
    want_code = 100 if want == "[]" else 0
    assert said == f"{want_code} {want}"


def test_uuid_prefix_of_a_single_device_selects_it(a_machine):
    assert a_machine.run("start(); say(cuda.cuInit(0))", CUDA_VISIBLE_DEVICES="GPU-616c6971") == "0"


def test_vanished_device_is_an_error_everywhere_and_can_come_back(a_machine):
    user = a_machine.popen("""
        context = start(); p = alloc(MIB)[1]; say("up")
        fill = lambda: cuda.cuMemsetD8_v2(u64(p), 1, ctypes.c_size_t(1))
        while wait_for_go(): say(alloc(512)[0], cuda.cuCtxSynchronize(), fill())
    """)
    assert user.stdout.readline() == "up\n"
    code = """
        import pynvml as n
        n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
        check(ctypes.CDLL("libnvidia-ml.so.1").aliquot_softgpu_set_lost(0, 1))
        for ask in (n.nvmlDeviceGetMemoryInfo, n.nvmlDeviceGetUUID):
            try: ask(h)
            except n.NVMLError_GpuIsLost: say("lost")
    """
    assert a_machine.run(code).split("\n") == ["lost", "lost"]
    user.stdin.write("try\n")
    user.stdin.flush()
    want_unavailable = "46 46 46\n"
    assert user.stdout.readline() == want_unavailable
    assert a_machine.run("cuda.cuInit(0); c = vp(); say(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0))") == "46"
    a_machine.run("""
        lib = ctypes.CDLL("libnvidia-ml.so.1"); check(lib.nvmlInit_v2()); check(lib.aliquot_softgpu_set_lost(0, 0))
        assert lib.aliquot_softgpu_set_lost(5, 1) == -1
    """)
    assert user.communicate("again\n", timeout=10)[0] == "0 0 0\n"


_SET_MODE = """
    import pynvml as n
    n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
    def set_mode(mode): n.nvmlDeviceSetComputeMode(h, mode); say(n.nvmlDeviceGetComputeMode(h))
"""
_FOR_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root sets a compute mode")


@_FOR_ROOT
def test_an_exclusive_device_has_the_contexts_of_one_process_alone(a_machine):
    holder = a_machine.popen("""
        start(); say("up")
        retain = lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(vp()), 0)
        while wait_for_go(): say(retain(), cuda.cuCtxCreate_v2(ctypes.byref(vp()), 0, 0))
    """)
    assert holder.stdout.readline() == "up\n"
    assert a_machine.run(f"{_SET_MODE}    set_mode(3)") == "3"
    asks = """
        mode = ctypes.c_int(); check(cuda.cuInit(0)); check(cuda.cuDeviceGetAttribute(ctypes.byref(mode), 20, 0))
        context = ctypes.byref(vp())
        say(mode.value, cuda.cuDevicePrimaryCtxRetain(context, 0), cuda.cuCtxCreate_v2(context, 0, 0))
    """
    want_unavailable = "3 46 46"
    assert a_machine.run(asks) == want_unavailable
    holder.stdin.write("again\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "0 0\n", "the process that has the device makes further contexts"
    holder.kill()
    holder.wait()
    assert a_machine.run(asks) == "3 0 0", "a process that was killed leaves the device to the next"
    assert a_machine.run(f"{_SET_MODE}    set_mode(0)") == "0"


@_FOR_ROOT
def test_a_prohibited_device_has_no_context(a_machine):
    assert a_machine.run(f"{_SET_MODE}    set_mode(2)") == "2"
    assert a_machine.run("check(cuda.cuInit(0)); say(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(vp()), 0))") == "46"
    assert a_machine.run(f"{_SET_MODE}    set_mode(0); start(); say(free_bytes() > 0)") == "0\nTrue"


@_FOR_ROOT
def test_a_refused_context_takes_no_memory(make_machine):
    a_machine = make_machine(CONTEXT="4MiB")
    holder = a_machine.popen("start(); say(free_bytes()); wait_for_go()")
    before = holder.stdout.readline()
    assert a_machine.run(f"{_SET_MODE}    set_mode(3)") == "3"
    a_machine.run("check(cuda.cuInit(0)); [cuda.cuDevicePrimaryCtxRetain(ctypes.byref(vp()), 0) for _ in range(3)]")
    used = a_machine.run(f"{_SET_MODE}    info = n.nvmlDeviceGetMemoryInfo(h); say(info.free)")
    assert f"{used}\n" == before
    holder.communicate("\n", timeout=10)


def test_no_other_mode_can_be_set(a_machine):
    said = a_machine.run(f"""{_SET_MODE}
    for mode, wants in ((1, n.NVML_ERROR_NOT_SUPPORTED), (4, n.NVML_ERROR_INVALID_ARGUMENT)):
        try: n.nvmlDeviceSetComputeMode(h, mode)
        except n.NVMLError as error: say(error.value == wants)
    say(n.nvmlDeviceGetComputeMode(h))
    """)
    assert said.split("\n") == ["True", "True", "0"]
