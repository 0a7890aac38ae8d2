"""The names that redirector and preload library leave alone.

These are other interposers, the driver's own requests, and unrelated names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook import paths

CLIENTS = Path(__file__).parent / "clients"
SHIM = paths.shim_dir()
PRELOADED = [str(SHIM / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libaliquot-preload.so")]
AUDIT = str(SHIM / "libaliquot-audit.so")


def compile_library(source: Path, library: Path, *flags: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    subprocess.run([compiler, "-w", "-shared", "-fPIC", str(source), "-o", str(library), *flags, "-ldl"], check=True)
    return library


def run(code: str, **env: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "ALIQUOT_", "CUDA_"))}
    done = subprocess.run([sys.executable, "-c", code], env={**kept, **env}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("interposers", [0, 1, 2])
@pytest.mark.parametrize("is_first", [True, False])
def test_other_interposers_find_the_next_function(interposers: int, is_first: bool, a_folder: Path) -> None:
    others = [
        str(compile_library(CLIENTS / "interposer.c", a_folder / f"interposer{index}.so"))
        for index in range(interposers)
    ]
    order = [*others, *PRELOADED] if is_first else [*PRELOADED, *others]
    said = run("import ctypes; print(ctypes.CDLL(None).atoi(b'40'))", LD_PRELOAD=":".join(order))
    assert said == str(40 + interposers)


@pytest.mark.parametrize("mechanism", ["LD_PRELOAD", "LD_AUDIT"])
def test_the_drivers_own_requests_lead_to_the_driver(mechanism: str, a_folder: Path) -> None:
    driver = compile_library(CLIENTS / "own_calls.c", a_folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    (a_folder / "other.c").write_text("int is_the_other;")
    other = compile_library(a_folder / "other.c", a_folder / "libcuda.so.1.1")
    env = {mechanism: ":".join(PRELOADED) if mechanism == "LD_PRELOAD" else AUDIT}
    env.update(ALIQUOT_REAL_CUDA=str(driver), ALIQUOT_KERNEL_DIR=str(a_folder), LD_LIBRARY_PATH=str(SHIM))
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    assert run(code, OTHER_DRIVER_FILE=str(other), **env) == "0"


def test_the_redirector_changes_only_names_of_the_driver(a_folder: Path) -> None:
    (a_folder / "other.c").write_text("int is_the_other;")
    for name in ("libcuda.so.bak", "libcuda.so.1.old", "libcudart.so.13", "mylibcuda.so.1", "libnvidia-ml.a.so"):
        library = compile_library(a_folder / "other.c", a_folder / name)
        assert (
            run(f"import ctypes; ctypes.c_int.in_dll(ctypes.CDLL({str(library)!r}), 'is_the_other')", LD_AUDIT=AUDIT)
            == ""
        )
    for name in (
        "libcuda.so",
        "libcuda.so.1",
        "libcuda.so.580.65.06",
        "libnvidia-ml.so.1",
        "libnvidia-ml.so.580.65.06",
    ):
        code = f"import ctypes; print(ctypes.CDLL({str(a_folder / name)!r}).aliquot_hook_version() > 0)"
        assert run(code, LD_AUDIT=AUDIT) == "True"


OPEN_THE_HOOK = "import ctypes; print(ctypes.CDLL('/a/driver/libcuda.so.1').aliquot_hook_version() > 0)"
WRITE_OVER_THE_START = """
import ctypes
start = ctypes.c_void_p.in_dll(ctypes.CDLL(None), 'environ').value
ours = [at for at in iter(iter((ctypes.c_void_p * 100000).from_address(start)).__next__, None)
        if ctypes.string_at(at).startswith(b'LD_AUDIT=')]
for address in ours:
    ctypes.memset(address, 32, len(ctypes.string_at(address)))
assert ours
"""


def test_the_redirector_knows_its_folder_in_a_program_that_wrote_its_title_over_its_environment() -> None:
    assert run(WRITE_OVER_THE_START + OPEN_THE_HOOK, LD_AUDIT=AUDIT) == "True"


def test_the_redirector_works_behind_another_one_and_with_all_names_bound_at_the_start(a_folder: Path) -> None:
    (a_folder / "audit.c").write_text("unsigned la_version(unsigned version) { return version; }")
    other = compile_library(a_folder / "audit.c", a_folder / "audit.so")
    assert run(OPEN_THE_HOOK, LD_AUDIT=f"{other}:{AUDIT}", LD_BIND_NOW="1") == "True"


def test_the_redirector_works_in_a_program_that_was_given_to_the_loader(a_folder: Path) -> None:
    program = Path(os.path.realpath(sys.executable))
    text = subprocess.run(["readelf", "-lW", str(program)], capture_output=True, text=True, check=True).stdout
    loader = re.search(r"interpreter: (\S+)]", text)
    assert loader
    done = subprocess.run(
        [loader[1], str(program), "-c", OPEN_THE_HOOK],
        env={"LD_AUDIT": AUDIT},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "True", done.stderr


def test_an_incomplete_shim_folder_redirects_nothing(a_folder: Path) -> None:
    copy = shutil.copy(AUDIT, a_folder)
    (a_folder / "other.c").write_text("int is_the_other;")
    (a_folder / "driver").mkdir()
    library = compile_library(a_folder / "other.c", a_folder / "driver" / "libcuda.so.1")
    code = f"import ctypes; ctypes.c_int.in_dll(ctypes.CDLL({str(library)!r}), 'is_the_other')"
    assert run(code, LD_AUDIT=str(copy)) == ""


def test_the_preload_library_alone_disturbs_nobody() -> None:
    code = "import ctypes; print(ctypes.CDLL(None).dlsym is not None, ctypes.CDLL('libc.so.6').abs(-3))"
    assert run(code, LD_PRELOAD=PRELOADED[2]) == "True 3"


@pytest.mark.parametrize("meanwhile", ["1", None])
def test_a_list_of_devices_that_is_chosen_during_cu_init_stays(meanwhile: str | None, a_folder: Path) -> None:
    driver = compile_library(CLIENTS / "choosing.c", a_folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    env = {"ALIQUOT_REAL_CUDA": str(driver), "ALIQUOT_KERNEL_DIR": str(a_folder), "LD_LIBRARY_PATH": str(SHIM)}
    env.update(ALIQUOT_VISIBLE_DEVICES="GPU-1,GPU-2", CUDA_VISIBLE_DEVICES="0")
    env.update({"CHOSEN_MEANWHILE": meanwhile} if meanwhile else {})
    code = "from ctypes import *; get = CDLL(None).getenv; get.restype = c_char_p"
    code += "; print(CDLL('libcuda.so.1').cuInit(0), get(b'CUDA_VISIBLE_DEVICES'))"
    assert run(code, **env) == f"0 {meanwhile and meanwhile.encode()}"


def test_what_the_preload_library_looks_for_in_vain_is_no_error_of_the_callers(a_folder: Path) -> None:
    """dlsym, then dlerror, is how programs tell a missing name: here another library has what the driver lacks."""
    driver = compile_library(CLIENTS / "own_calls.c", a_folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    (a_folder / "other.c").write_text("int cuEGLApiInit(void) { return 7; }")
    other = compile_library(a_folder / "other.c", a_folder / "other.so")
    code = f"""
from ctypes import *
dlsym, dlerror, handle = CDLL(None).dlsym, CDLL(None).dlerror, CDLL({str(other)!r})._handle
dlsym.restype, dlerror.restype, dlsym.argtypes = c_void_p, c_char_p, [c_void_p, c_char_p]
print(CFUNCTYPE(c_int)(dlsym(handle, b"cuEGLApiInit"))(), dlerror())
"""
    env = {"ALIQUOT_REAL_CUDA": str(driver), "ALIQUOT_KERNEL_DIR": str(a_folder), "LD_LIBRARY_PATH": str(a_folder)}
    assert run(code, LD_PRELOAD=":".join(PRELOADED), **env) == "7 None"
