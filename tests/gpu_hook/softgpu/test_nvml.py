"""NVML of the software GPU as its clients ask it: names, struct versions, sizes of lists, handles."""

from __future__ import annotations

import inspect
import json
import re

import pynvml
import pytest

_START = """
import pynvml as n
uint, many = ctypes.c_uint, ctypes.POINTER
def fields(*named): return type("Fields", (ctypes.Structure,), {"_fields_": named})
def version(struct, number=1): return ctypes.sizeof(struct) | number << 24
lib = ctypes.CDLL("libnvidia-ml.so.1")
n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
"""
_LISTS = [
    f"nvmlDeviceGet{kind}RunningProcesses{v}"
    for kind in ("Compute", "Graphics", "MPSCompute")
    for v in ("", "_v2", "_v3")
]


def test_every_name_that_pynvml_knows_is_there(a_machine):
    names = sorted(set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', inspect.getsource(pynvml))))
    assert len(names) > 350
    said = a_machine.run(f"""
        import json
        lib = ctypes.CDLL("libnvidia-ml.so.1")
        say(json.dumps([name for name in {names!r} if not hasattr(lib, name)]))
        say(hasattr(lib, "nvmlNoSuchFunction"))
    """)
    assert said.split("\n") == ["[]", "False"]


def test_what_the_device_lacks_is_not_supported_and_logged(a_machine, tmp_path):
    said = a_machine.run(
        """
        import pynvml as n
        lib = ctypes.CDLL("libnvidia-ml.so.1"); say(lib.nvmlDeviceGetFanSpeed(None, None)); n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        for ask in (n.nvmlDeviceGetFanSpeed, n.nvmlDeviceGetMigMode, n.nvmlDeviceGetEncoderUtilization,
                    n.nvmlDeviceGetAccountingPids, n.nvmlDeviceGetEccMode, n.nvmlDeviceGetSerial):
            try: ask(h)
            except n.NVMLError_NotSupported: say("not supported")
        say(n.nvmlDeviceIsMigDeviceHandle(h).value)
        say(n.nvmlDeviceGetMaxMigDeviceCount(h), n.nvmlDeviceGetAccountingMode(h))
        """,
        ALIQUOT_SOFTGPU_LOG=str(tmp_path / "log"),
    )
    want_uninitialised = "1"
    assert said.split("\n") == [want_uninitialised, *["not supported"] * 6, "0", "0 0"]
    assert "event=unsupported function=nvmlDeviceGetMigMode" in (tmp_path / "log").read_text()


def test_structures_of_another_version_are_refused(a_machine):
    said = a_machine.run(
        _START
        + """
for name in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetPciInfoExt",
             "nvmlDeviceGetRunningProcessDetailList", "nvmlDeviceGetProcessesUtilizationInfo"):
    for version in (0, 0x7000028):
        buffer = (ctypes.c_uint32 * 64)(version); say(getattr(lib, name)(h, buffer))
buffer = (ctypes.c_uint32 * 64)(7); say(lib.nvmlDeviceGetHandleByUUIDV(buffer, ctypes.byref(vp())))
"""
    )
    want_version_mismatch = "25"
    assert said.split("\n") == [want_version_mismatch] * 11


def test_lists_that_do_not_fit_say_how_long_they_are(a_machine):
    said = a_machine.run(
        _START
        + f"""
start(); check(alloc(2 * MIB)[0])
for name in {_LISTS!r}:
    count, buffer = ctypes.c_uint(0), (u64 * 8)()
    first = getattr(lib, name)(h, ctypes.byref(count), None), count.value
    second = getattr(lib, name)(h, ctypes.byref(count), buffer), count.value
    say(*first, *second, buffer[0] == os.getpid(), buffer[1], getattr(lib, name)(h, None, None))
"""
    )
    want_one, want_none = "7 1 0 1 True 2097152 2", "0 0 0 0 False 0 2"
    assert said.split("\n") == [want_one] * 3 + [want_none] * 6


def test_detailed_list_has_the_same_processes(a_machine):
    said = a_machine.run(
        _START
        + """
start(); check(alloc(2 * MIB)[0])
Detail = fields(("pid", uint), ("used", u64), ("instances", uint * 2), ("protected", u64))
List = fields(("version", uint), ("mode", uint), ("count", uint), ("items", many(Detail)))
def ask(mode, room):
    items = (Detail * 4)(); asked = List(version(List), mode, room, items)
    return lib.nvmlDeviceGetRunningProcessDetailList(h, ctypes.byref(asked)), asked.count, items[0].used
say(ask(0, 0), ask(0, 4), ask(1, 4), ask(2, 4), ask(3, 4)[0])
"""
    )
    assert said == "(7, 1, 0) (0, 1, 2097152) (0, 0, 0) (0, 0, 0) 2"


def test_utilisation_of_processes_in_both_forms(a_machine):
    said = a_machine.run(
        _START
        + """
start(); builtin("aliquot_spin")
since = int(time.time() * 1e6)
for _ in range(6): check(launch("aliquot_spin", u64(50_000_000)))
check(cuda.cuCtxSynchronize())
Info = fields(("time", u64), ("pid", uint), ("percent", uint * 6))
Asked = fields(("version", uint), ("count", uint), ("since", u64), ("items", many(Info)))
items = (Info * 4)(); asked = Asked(version(Asked), 0, since, None)
say(lib.nvmlDeviceGetProcessesUtilizationInfo(h, ctypes.byref(asked)), asked.count)
asked.items = items; say(lib.nvmlDeviceGetProcessesUtilizationInfo(h, ctypes.byref(asked)), asked.count)
old, = n.nvmlDeviceGetProcessUtilization(h, since)
say(items[0].pid == old.pid == os.getpid(), round(items[0].percent[0] * (items[0].time - since) / 1e8, 1))
asked.since = int(time.time() * 1e6) + 10_000_000
say(lib.nvmlDeviceGetProcessesUtilizationInfo(h, ctypes.byref(asked)))
"""
    )
    want_busy_seconds, want_not_found = 0.3, 6
    assert said.split("\n") == ["7 1", "0 1", f"True {want_busy_seconds}", str(want_not_found)]


def test_devices_are_found_by_every_name_whatever_cuda_may_see(make_machine):
    machine = make_machine(DEVICES="3")
    said = machine.run(
        _START
        + """
import json
rows = []
UUID = fields(("version", uint), ("type", uint), ("value", ctypes.c_char * 41))
Pci = fields(("version", uint), ("domain", uint), ("bus", uint), ("rest", uint * 13))
def by_uuid(kind, value):
    asked, made = UUID(version(UUID), kind), vp()
    ctypes.memmove(ctypes.addressof(asked) + 8, value, len(value))
    check(lib.nvmlDeviceGetHandleByUUIDV(ctypes.byref(asked), ctypes.byref(made)))
    return made
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    uuid, bus, pci = n.nvmlDeviceGetUUID(h), n.nvmlDeviceGetPciInfo(h).busId, Pci(version(Pci))
    check(lib.nvmlDeviceGetPciInfoExt(h, ctypes.byref(pci)))
    found = [h, n.nvmlDeviceGetHandleByUUID(uuid), n.nvmlDeviceGetHandleByPciBusId(bus),
             by_uuid(1, uuid.encode()), by_uuid(2, bytes.fromhex(uuid[4:].replace("-", "")))]
    rows.append([len({ctypes.cast(one, vp).value for one in found}), n.nvmlDeviceGetIndex(h), pci.bus])
say(json.dumps(rows))
for ask, value in ((n.nvmlDeviceGetHandleByIndex, 3), (n.nvmlDeviceGetHandleByUUID, "GPU-0"),
                   (n.nvmlDeviceGetHandleByPciBusId, "0000A11C:07:00.0")):
    try: ask(value)
    except n.NVMLError as error: say(error.value)
""",
        CUDA_VISIBLE_DEVICES="1",
    )
    want_invalid, want_not_found = "2", "6"
    assert json.loads(said.split("\n")[0]) == [[1, i, i] for i in range(3)]
    assert said.split("\n")[1:] == [want_invalid, want_not_found, want_not_found]


def test_field_values_succeed_with_each_field_unsupported(a_machine):
    said = a_machine.run(
        _START
        + "say([v.nvmlReturn for v in n.nvmlDeviceGetFieldValues(h, [n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1])])"
    )
    assert said == "[3, 3]"


@pytest.mark.parametrize(("domain", "want"), [("0", "[0, 0, 0, 0]"), ("2", "[0, 0, 1, 1]"), ("3", "[0, 0, 0, 1]")])
def test_devices_of_one_domain_have_nvlink_and_one_switch(make_machine, domain, want):
    said = make_machine(DEVICES="4", DOMAIN=domain).run("""
        import pynvml as n
        from jupyter_aliquot.gpu_hook.agent.devices.links import domains
        n.nvmlInit()
        handles = [n.nvmlDeviceGetHandleByIndex(at) for at in range(4)]
        say(domains(handles))
        say(n.nvmlDeviceGetTopologyCommonAncestor(handles[0], handles[1]))
        say(n.nvmlDeviceGetP2PStatus(handles[0], handles[3], n.NVML_P2P_CAPS_INDEX_WRITE))
        try: n.nvmlDeviceGetP2PStatus(handles[0], handles[3], 99)
        except n.NVMLError_InvalidArgument: say("refused")
    """)
    assert said.split("\n") == [want, str(pynvml.NVML_TOPOLOGY_SINGLE), "0", "refused"]
