"""The library's surface: symbol queries, unsupported entries, faults, contexts, and unmodified clients."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_QUERY = """
    def query(name, version, flags=0, which=cuda.cuGetProcAddress_v2):
        pointer, status = vp(0x77), ctypes.c_int(9)
        extra = [ctypes.byref(status)] if which is cuda.cuGetProcAddress_v2 else []
        error = which(name, ctypes.byref(pointer), version, u64(flags), *extra)
        return error, pointer.value, status.value
    def at(symbol): return ctypes.cast(getattr(cuda, symbol), vp).value
"""


def test_queries_answer_as_the_genuine_driver(a_machine):
    said = a_machine.run(
        _QUERY
        + """
    assert query(b"cuMemAlloc", 13000) == (0, at("cuMemAlloc_v2"), 0)
    assert query(b"cuMemAlloc", 2000) == (0, at("cuMemAlloc"), 0)
    assert query(b"cuMemAlloc", -1) == (0, at("cuMemAlloc_v2"), 0)
    assert query(b"cuMemAlloc", 0) == (0, None, 2)
    assert query(b"cuMemAlloc", 1999) == (0, None, 2)
    assert query(b"cuMemAlloc_v2", 13000) == (0, None, 1)
    assert query(b"", 0) == (0, None, 1)
    assert query(b"cuNothing", 13000) == (0, None, 1)
    assert query(b"cuMemAlloc", 13000, 4) == (1, 0x77, 9)
    assert query(b"cuLaunchKernel", 13000, 2) == (0, at("cuLaunchKernel_ptsz"), 0)
    assert query(b"cuLaunchKernel", 13000, 1) == (0, at("cuLaunchKernel"), 0)
    assert query(b"cuLaunchKernel", 6000, 2) == (0, None, 2)
    assert query(b"cuMemAlloc", 13000, 2) == (0, at("cuMemAlloc_v2"), 0)
    assert query(b"cuMemcpyHtoD", 13000, 2) == (0, at("cuMemcpyHtoD_v2_ptds"), 0)
    assert query(b"cuCtxCreate", 12050)[1] == at("cuCtxCreate_v4")
    assert query(b"cuCtxGetDevice", 12080)[1] == at("cuCtxGetDevice") != query(b"cuCtxGetDevice", 13000)[1]
    assert query(b"cuGetProcAddress", 11030)[1] == at("cuGetProcAddress")
    assert query(b"cuGetProcAddress", 12000)[1] == at("cuGetProcAddress_v2")
    assert query(b"cuProfilerStart", 13000)[1] == at("cuProfilerStart")
    first = cuda.cuGetProcAddress
    assert query(b"cuNothing", 13000, 0, first) == (500, 0x77, 9)
    assert query(b"cuMemAlloc", 13000, 0, first) == (0, at("cuMemAlloc_v2"), 9)
    say("same")
    """
    )
    assert said == "same"


def test_export_tables_are_not_imitated(a_machine):
    said = a_machine.run("""
        table = vp(1)
        ask = lambda id: cuda.cuGetExportTable(ctypes.byref(table), bytes.fromhex(id.replace("-", "")))
        say(ask("6bd5fb6c-5bf4-e74a-8987-d93912fd9df9"), ask("a094798c-2e74-2e74-93f2-0800200c0a66"), table.value)
    """)
    want_stub_library, want_invalid_value = 34, 1
    assert said == f"{want_stub_library} {want_invalid_value} None"


def test_entries_without_an_implementation_say_so(a_machine, tmp_path):
    said = a_machine.run(
        "ask = lambda: cuda.cuMulticastCreate(None, None)\n"
        "say(ask()); start(); say(ask(), cuda.cuGraphicsUnregisterResource(None))",
        ALIQUOT_SOFTGPU_LOG=str(tmp_path / "log"),
    )
    want_not_initialised, want_not_supported = 3, 801
    assert said.split("\n") == [str(want_not_initialised), f"{want_not_supported} {want_not_supported}"]
    assert "event=unsupported function=cuMulticastCreate" in (tmp_path / "log").read_text()


def test_what_is_destroyed_twice_is_an_error_not_a_crash(a_machine):
    said = a_machine.run("""
        start(); made = vp(); shape = (ctypes.c_size_t * 5)(64, 0, 0, 0x20 | 1 << 32, 0)
        text = b".version 7.0\\n.target sm_75\\n.address_size 64\\n.visible .entry empty()\\n{\\nret;\\n}\\n\\0"
        def twice(create, destroy, *arguments):
            check(getattr(cuda, create)(ctypes.byref(made), *arguments))
            check(getattr(cuda, destroy)(made)); return getattr(cuda, destroy)(made)
        say(twice("cuStreamCreate", "cuStreamDestroy_v2", 0), twice("cuEventCreate", "cuEventDestroy_v2", 0),
            twice("cuModuleLoadData", "cuModuleUnload", text), twice("cuArray3DCreate_v2", "cuArrayDestroy", shape),
            twice("cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", shape, 3),
            twice("cuCtxCreate_v2", "cuCtxDestroy_v2", 0, 0))
    """)
    want_invalid_handle, want_invalid_context = "400", "201"
    assert said.split() == [want_invalid_handle] * 5 + [want_invalid_context]


def test_nothing_is_printed_without_a_log(a_machine):
    client = a_machine.popen("start(); alloc(1 << 50); cuda.cuMulticastCreate(None, None)")
    assert client.communicate(timeout=20) == ("", "")


def test_faults_strike_the_named_call(a_machine):
    said = a_machine.run(
        "start(); say([alloc(512)[0] for _ in range(4)], cuda.cuCtxSynchronize(), free_bytes() == 64 * MIB - 1536)",
        ALIQUOT_SOFTGPU_FAULTS="cuMemAlloc_v2:3=2,cuCtxSynchronize=719",
    )
    assert said == "[0, 0, 2, 0] 719 True"


def test_fault_list_that_cannot_be_read_is_named(a_machine):
    client = a_machine.popen("say(cuda.cuInit(0))", ALIQUOT_SOFTGPU_FAULTS="cuNothing:1=2")
    output, errors = client.communicate(timeout=20)
    assert output == "0\n"
    assert "ALIQUOT_SOFTGPU_FAULTS=cuNothing:1=2" in errors


def test_contexts_stack_per_thread_and_own_their_memory(a_machine):
    said = a_machine.run("""
        import threading
        primary = start(); made, current = vp(), vp()
        check(cuda.cuCtxCreate_v2(ctypes.byref(made), 0, 0)); check(alloc(8 * MIB)[0])
        check(cuda.cuCtxGetCurrent(ctypes.byref(current))); say(current.value == made.value)
        seen = []
        def look():
            c = vp(1); check(cuda.cuCtxGetCurrent(ctypes.byref(c))); seen.append(c.value); seen.append(alloc(512)[0])
        thread = threading.Thread(target=look); thread.start(); thread.join(); say(seen)
        check(cuda.cuCtxDestroy_v2(made)); check(cuda.cuCtxGetCurrent(ctypes.byref(current)))
        say(current.value == primary.value, free_bytes() == 64 * MIB, cuda.cuCtxPushCurrent_v2(made))
        check(alloc(512)[0]); check(cuda.cuDevicePrimaryCtxRelease_v2(0)); say(alloc(512)[0])
    """)
    want_invalid_context, want_destroyed = "201", "709"
    assert said.split("\n") == ["True", "[None, 201]", f"True True {want_invalid_context}", want_destroyed]


def test_handles_that_are_none_are_errors_not_crashes(a_machine):
    said = a_machine.run("""
        start(); odd = vp(0x1234560)
        say(cuda.cuStreamSynchronize(odd), cuda.cuEventQuery(odd), cuda.cuModuleUnload(odd), cuda.cuCtxSetCurrent(odd),
            cuda.cuLaunchKernel(odd, 1, 1, 1, 1, 1, 1, 0, None, None, None), cuda.cuLibraryUnload(odd))
    """)
    assert said == "400 400 400 201 400 400"


def test_capability_attributes_tell_the_truth(a_machine):
    said = a_machine.run("""
        from cuda.bindings import driver as d
        start()
        for name in "MEMORY_POOLS_SUPPORTED", "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", "MANAGED_MEMORY", "WARP_SIZE":
            attribute = getattr(d.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name)
            say(d.cuDeviceGetAttribute(attribute, 0)[1])
        say(cuda.cuMemAddressReserve(None, 0, 0, 0, 0), cuda.cuMemAllocManaged(None, 0, 0))
    """)
    assert said.split("\n") == ["1", "1", "1", "32", "1 1"]


_CORE = """
    import numpy as np
    from cuda.core import Device, EventOptions, LaunchConfig, ObjectCode, launch
    device = Device(); device.set_current(); stream = device.create_stream()
    with open(os.environ["BUILTINS"], "rb") as file: code = ObjectCode.from_ptx(file.read())
    buffer = device.allocate(4 * MIB, stream=stream); config = LaunchConfig(grid=8, block=128)
    timed = EventOptions(timing_enabled=True)
    first = stream.record(options=timed)
    launch(stream, config, code.get_kernel("aliquot_fill"), buffer, np.uint32(9), np.uint64(MIB))
    launch(stream, config, code.get_kernel("aliquot_spin"), np.uint64(20_000_000))
    last = stream.record(options=timed); stream.sync()
    host = np.zeros(MIB, np.uint32)
    check(cuda.cuMemcpyDtoH_v2(vp(host.ctypes.data), u64(int(buffer.handle)), ctypes.c_size_t(host.nbytes)))
    say(device.name, (host == 9).all(), last - first >= 20)
    try: device.allocate(1 << 40, stream=stream)
    except Exception as error: say("OUT_OF_MEMORY" in str(error))
    buffer.close(stream); stream.sync(); kept = free_bytes() // MIB  # cuda.core's pool keeps what it has
    pool = vp(); check(cuda.cuDeviceGetMemPool(ctypes.byref(pool), 0))
    check(cuda.cuMemPoolTrimTo(pool, ctypes.c_size_t(0))); say(kept, free_bytes() // MIB)
"""


def test_cuda_core_runs_unmodified(a_machine):
    pytest.importorskip("cuda.core")
    assert a_machine.run(_CORE).split("\n") == ["Aliquot Software GPU True True", "True", "60 64"]


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas of the CUDA toolkit is not installed")
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_compiled_builtins_are_recognised_too(a_machine, tmp_path, architecture):
    builtins = a_machine.env()["BUILTINS"]
    cubin = tmp_path / "builtins.cubin"
    subprocess.run(["ptxas", f"-arch={architecture}", "-o", str(cubin), builtins], check=True)
    said = a_machine.run(
        'start(); p = alloc(4096)[1]; check(launch("aliquot_axpy", u64(p), u64(p), ctypes.c_float(1), u64(4)))\n'
        'check(launch("aliquot_fill", u64(p), ctypes.c_uint32(6), u64(4))); say(download(p, 4).hex())',
        BUILTINS=str(cubin),
    )
    assert said == "06000000"


def test_linker_keeps_names_and_parameters(a_machine):
    said = a_machine.run("""
        start(); state, cubin, size, module, f = vp(), vp(), ctypes.c_size_t(), vp(), vp()
        with open(os.environ["BUILTINS"], "rb") as file: text = file.read()
        check(cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(state)))
        check(cuda.cuLinkAddData_v2(state, 1, text, ctypes.c_size_t(len(text)), b"x", 0, None, None))
        check(cuda.cuLinkComplete(state, ctypes.byref(cubin), ctypes.byref(size)))
        builtin.module = vp(); check(cuda.cuModuleLoadData(ctypes.byref(builtin.module), cubin))
        check(cuda.cuLinkDestroy(state))
        p = alloc(4096)[1]; check(launch("aliquot_fill", u64(p), ctypes.c_uint32(3), u64(4))); say(download(p, 4).hex())
    """)
    assert said == "03000000"


def test_a_library_of_the_same_names_in_front_does_not_shadow_it(a_machine, tmp_path):
    """A preloaded hook is such a library: the driver's own answers must be its own functions."""
    source, front = tmp_path / "front.c", tmp_path / "front.so"
    source.write_text("int cuMemAlloc_v2(void) { return 77; }\nint nvmlDeviceGetCount_v2(void) { return 77; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(front), str(source)], check=True)
    said = a_machine.run(
        _QUERY + "\n    start(); say(query(b'cuMemAlloc', 13000)[1] == at('cuMemAlloc_v2'), alloc(512)[0])",
        LD_PRELOAD=f"{os.environ.get('LD_PRELOAD', '')} {front}".strip(),
    )
    assert said == "True 0"


def test_without_visible_devices_nothing_is_initialised(a_machine):
    said = a_machine.run("say(cuda.cuInit(0), cuda.cuDeviceGetCount(vp()))", CUDA_VISIBLE_DEVICES="")
    want_no_device, want_not_initialised = 100, 3
    assert said == f"{want_no_device} {want_not_initialised}"


def test_every_error_code_of_the_header_has_its_name_and_a_text(a_machine):
    headers = [Path(folder) / "nvidia/cu13/include/cuda.h" for folder in sys.path]
    header = next((path for path in headers if path.exists()), None)
    if header is None:
        pytest.skip("cuda.h was not found: pip install 'nvidia-cuda-runtime==13.0.*'")
    (codes,) = re.findall(r"typedef enum cudaError_enum \{(.*?)\} CUresult;", header.read_text(), re.DOTALL)
    want = [(int(number), name) for name, number in re.findall(r"^ +(CUDA_\w+) += (\d+)", codes, re.MULTILINE)]
    said = a_machine.run("""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        for code in range(1000):
            if cuda.cuGetErrorName(code, ctypes.byref(name)) == 0:
                check(cuda.cuGetErrorString(code, ctypes.byref(text)))
                assert len(text.value) > 5
                say(code, name.value.decode())
    """)
    assert [(int(code), name) for code, name in (line.split() for line in said.split("\n"))] == sorted(want)
