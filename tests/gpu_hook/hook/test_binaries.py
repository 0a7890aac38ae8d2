"""The built files: their needs of the machine they run on, and their names."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hook_sources import source

from jupyter_aliquot.gpu_hook import paths

NEWEST_GLIBC = (2, 28)

FILES = [
    "shim/libcuda.so.1",
    "shim/libcuda.so",
    "shim/libnvidia-ml.so.1",
    "shim/libaliquot-audit.so",
    "shim/libaliquot-preload.so",
    "bin/aliquot-kernel-start",
]


def read_elf(file: Path, *options: str) -> str:
    return subprocess.run(["readelf", "-W", *options, str(file)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", FILES)
def test_no_symbol_is_newer_than_the_oldest_glibc_we_support(name: str) -> None:
    text = read_elf(paths.native_dir() / name, "--version-info")
    text = text.partition("Version needs section")[2]  # the preload library also defines versions
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d[\d.]*)", text)}
    assert [one for one in versions if one > NEWEST_GLIBC] == []


@pytest.mark.parametrize("name", FILES)
def test_only_the_c_library_is_needed(name: str) -> None:
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", read_elf(paths.native_dir() / name, "-d")))
    ours = {"libcuda.so.1"} if name == "shim/libcuda.so" else {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
    assert needed <= ours | {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_the_redirector_needs_no_library_for_the_loader_would_load_a_second_one_in_every_program() -> None:
    assert "NEEDED" not in read_elf(paths.shim_dir() / "libaliquot-audit.so", "-d")


def test_the_libraries_carry_the_names_that_programs_ask_for() -> None:
    for name in FILES[:5]:
        text = read_elf(paths.native_dir() / name, "-d")
        assert f"soname: [{Path(name).name}]" in text
    assert "RUNPATH            Library runpath: [$ORIGIN]" in read_elf(paths.shim_dir() / "libcuda.so", "-d").replace(
        "(RUNPATH)", "RUNPATH"
    )


def test_the_preload_library_stands_before_both_versions_of_dlsym() -> None:
    text = read_elf(paths.shim_dir() / "libaliquot-preload.so", "--dyn-syms")
    versions = re.findall(r"FUNC +GLOBAL +DEFAULT +\d+ dlsym@+GLIBC_([\d.]+)", text)
    assert sorted(versions) == ["2.2.5" if platform.machine() == "x86_64" else "2.17", "2.34"]


def test_the_link_name_holds_no_second_hook() -> None:
    assert "aliquot_hook_version" not in read_elf(paths.shim_dir() / "libcuda.so", "--dyn-syms")


@pytest.mark.parametrize("name", FILES[:5])
def test_no_library_can_end_the_program_print_or_take_its_signals(name: str) -> None:
    imported = set(re.findall(r" UND (\w+)", read_elf(paths.native_dir() / name, "--dyn-syms")))
    assert imported & _NOT_A_GUESTS == set()


_NOT_A_GUESTS = {
    *("exit", "_exit", "_Exit", "quick_exit", "abort", "__assert_fail", "kill", "tgkill", "raise", "pthread_kill"),
    *("signal", "sigaction", "__sysv_signal", "sigsuspend", "sigwait", "sigtimedwait", "alarm", "setitimer"),
    *("stdout", "stderr", "printf", "puts", "putchar", "fputs", "fwrite", "perror", "dprintf", "vprintf"),
    *("__printf_chk", "__fprintf_chk", "__vfprintf_chk", "fprintf", "vfprintf", "syslog"),
}


@pytest.mark.parametrize("name", FILES)
def test_no_stack_is_executable(name: str) -> None:
    (row,) = [line for line in read_elf(paths.native_dir() / name, "-l").splitlines() if "GNU_STACK" in line]
    assert "RWE" not in row


@pytest.fixture
def clang() -> str:
    found = shutil.which("clang")
    if found is None:
        pytest.skip("clang is not installed; it is the assembler of the machine that we are not on")
    return found


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("file", ["preload.S", "start.S"])
def test_the_assembly_of_each_machine_assembles(file: str, machine: str, clang: str, tmp_path: Path) -> None:
    command = [clang, f"--target={machine}-linux-gnu", "-c", str(source(file)), "-o", str(tmp_path / "o")]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_forwarders_of_each_machine_assemble(machine: str, clang: str, tmp_path: Path) -> None:
    generator, table = source("generate_entry_points.py"), source("entry_points.txt")
    subprocess.run([sys.executable, str(generator), "cuda", machine, str(tmp_path / "entries"), str(table)], check=True)
    command = [clang, f"--target={machine}-linux-gnu", "-c", str(tmp_path / "entries.S"), "-o", str(tmp_path / "o")]
    subprocess.run(command, check=True)
    assert "cuMemcpyHtoD_v2" in read_elf(tmp_path / "o", "--syms")
