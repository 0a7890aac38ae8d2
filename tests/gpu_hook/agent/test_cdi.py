"""The specs for container engines keep the standard's rules.

They describe the hook and the software GPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.devices.cdi import HOOK_KIND, SOFTGPU_KIND, hook_spec, softgpu_spec, write_specs
from jupyter_aliquot.gpu_hook.agent.devices.libraries import Libraries, installed, mounted_folders, prune, publish
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import Driver, PathError, RuntimeDir, native_dir, softgpu_state_path

# The JSON schema of CDI 0.5.0, as far as we use it: unknown keys make engines refuse the whole file.
SPEC_KEYS = {"cdiVersion", "kind", "devices", "containerEdits"}
EDIT_KEYS = {"env", "mounts"}
MOUNT_KEYS = {"hostPath", "containerPath", "options"}
KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]")
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*[A-Za-z0-9]|[A-Za-z0-9]")
LIBRARIES = Libraries(Path("/lib/aliquot/1-abc"), is_copy=True)
FOLDERS = (LIBRARIES.folder,)


def check(spec: Any) -> None:
    assert set(spec) <= SPEC_KEYS
    assert spec["cdiVersion"] == "0.5.0", "docker refuses names that begin with a digit below it"
    assert KIND.fullmatch(spec["kind"])
    names = [device["name"] for device in spec["devices"]]
    assert names
    assert len(set(names)) == len(names)
    check_edits(spec.get("containerEdits", {}))
    for device in spec["devices"]:
        assert set(device) == {"name", "containerEdits"}
        assert DEVICE.fullmatch(device["name"])
        assert device["containerEdits"], "a device without edits is invalid"
        check_edits(device["containerEdits"])


def check_edits(edits: Any) -> None:
    assert set(edits) <= EDIT_KEYS
    assert all(re.fullmatch(r"[A-Z0-9_]+=.*", word) for word in edits.get("env", ()))
    for mount in edits.get("mounts", ()):
        assert set(mount) == MOUNT_KEYS
        assert mount["hostPath"].startswith("/")
        assert mount["containerPath"].startswith("/")


def test_the_hook_is_seen_where_the_grant_says_and_cannot_be_written() -> None:
    spec = hook_spec(FOLDERS, Path("/run/aliquot/ld.so.preload"))
    check(spec)
    assert spec["kind"] == HOOK_KIND
    (mount,) = spec["containerEdits"]["mounts"]
    assert mount["hostPath"] == mount["containerPath"] == "/lib/aliquot/1-abc"
    assert "ro" in mount["options"]
    shim, preload = spec["devices"]
    assert (shim["name"], "mounts" in shim["containerEdits"]) == ("shim", False)
    (loader,) = preload["containerEdits"]["mounts"]
    assert (loader["hostPath"], loader["containerPath"]) == ("/run/aliquot/ld.so.preload", "/etc/ld.so.preload")


def test_each_software_gpu_is_a_device_and_the_machine_is_shared() -> None:
    spec = softgpu_spec(FOLDERS, Path("/dev/shm/a/machine/state"), [1, 0])
    check(spec)
    assert spec["kind"] == SOFTGPU_KIND
    assert [device["name"] for device in spec["devices"]] == ["0", "1", "all"]
    machine = spec["containerEdits"]["mounts"][-1]
    assert machine["hostPath"] == machine["containerPath"] == "/dev/shm/a/machine"
    assert "rw" in machine["options"]
    assert "ro" in spec["containerEdits"]["mounts"][0]["options"]


def test_specs_are_replaced_whole_and_only_ours(tmp_path: Path) -> None:
    (tmp_path / "nvidia.json").write_text("theirs")
    hook = hook_spec(FOLDERS, tmp_path / "loader")
    write_specs(tmp_path, [hook, softgpu_spec(FOLDERS, tmp_path / "m" / "state", [0])])
    write_specs(tmp_path, [hook])
    assert {path.name for path in tmp_path.iterdir()} == {"nvidia.json", "aliquot.dev-hook.json"}
    assert json.loads((tmp_path / "aliquot.dev-hook.json").read_text()) == hook


class TestPublishedLibraries:
    @pytest.fixture
    def native(self, tmp_path: Path) -> Path:
        for name in ("shim/libcuda.so.1", "bin/aliquot-kernel-start", "softgpu/libcuda.so.1"):
            path = tmp_path / "native" / name
            path.parent.mkdir(parents=True)
            path.write_text(name)
            path.chmod(0o755)
        return tmp_path / "native"

    def test_a_copy_is_named_by_what_it_holds_and_made_once(self, native: Path, tmp_path: Path) -> None:
        first = publish(native, tmp_path / "lib")
        made = first.shim.stat().st_ctime_ns
        assert publish(native, tmp_path / "lib") == first
        assert first.shim.stat().st_ctime_ns == made
        assert (first.folder / "bin" / "aliquot-kernel-start").stat().st_mode & 0o777 == 0o755
        assert first.folder.stat().st_mode & 0o777 == 0o755
        (native / "shim" / "libcuda.so.1").write_text("another release")
        second = publish(native, tmp_path / "lib")
        assert second.folder != first.folder
        assert (first.shim / "libcuda.so.1").read_text() == "shim/libcuda.so.1", "kernels of before keep theirs"
        assert mounted_folders(second) == tuple(sorted((first.folder, second.folder))), "for grants of before, too"
        assert mounted_folders(installed(native)) == tuple(native / part for part in ("shim", "bin", "softgpu"))

    def test_a_copy_that_lost_files_gets_them_again_beside_those_that_kernels_use(
        self, native: Path, tmp_path: Path
    ) -> None:
        (native / "shim" / "libaliquot-audit.so").write_text("audit")
        folder = publish(native, tmp_path / "lib").folder
        (folder / "shim" / "libcuda.so.1").write_text("cut")
        (folder / "shim" / "libaliquot-audit.so").unlink()
        kept, start = folder / "softgpu" / "libcuda.so.1", folder / "bin" / "aliquot-kernel-start"
        start.chmod(0o000)
        before = kept.stat()
        with (folder / "shim" / "libcuda.so.1").open() as mapped:
            assert publish(native, tmp_path / "lib").folder == folder
            assert mapped.read() == "cut", "a running kernel maps that file: it is replaced, not written to"
        for part in native.iterdir():
            for path in part.iterdir():
                copy = folder / part.name / path.name
                assert (copy.read_text(), copy.stat().st_mode) == (path.read_text(), path.stat().st_mode)
        assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert [path.name for path in (tmp_path / "lib").iterdir()] == [folder.name]

    def test_a_copy_that_cannot_be_repaired_is_served_and_told(self, native: Path, tmp_path: Path) -> None:
        library = publish(native, tmp_path / "lib").shim / "libcuda.so.1"
        library.unlink()
        library.mkdir()
        found = publish(native, tmp_path / "lib")
        assert found.shim == library.parent
        assert str(library.with_name("libcuda.so")) in found.problem

    def test_what_no_kernel_was_given_is_removed_and_nothing_else(self, native: Path, tmp_path: Path) -> None:
        folders = []
        for release in ("1", "2", "3"):
            (native / "shim" / "libcuda.so.1").write_text(release)
            folders.append(publish(native, tmp_path / "lib").folder)
        (tmp_path / "lib" / "somebody's").mkdir()
        prune(Libraries(folders[2], is_copy=True), {folders[0].name})
        assert {path.name for path in (tmp_path / "lib").iterdir()} == {
            folders[0].name,
            folders[2].name,
            "somebody's",
        }
        prune(installed(native), ())
        assert native.exists()

    def test_a_folder_that_cannot_be_written_is_told(self, native: Path) -> None:
        with pytest.raises(PathError, match=r"cannot publish .* in /proc/lib: .*choose a --library-dir"):
            publish(native, Path("/proc/lib"))

    def test_the_software_gpu_is_reached_in_the_copy_and_the_driver_where_it_is(self) -> None:
        own = Driver("softgpu", Path("/native/softgpu/libcuda.so.1"), Path("/native/softgpu/libnvidia-ml.so.1"))
        assert LIBRARIES.driver(own).cuda == Path("/lib/aliquot/1-abc/softgpu/libcuda.so.1")
        theirs = Driver("nvidia", Path("/usr/lib/libcuda.so.1"), Path("/usr/lib/libnvidia-ml.so.1"))
        assert LIBRARIES.driver(theirs) == theirs


class TestAgent:
    @pytest.fixture
    def start(self, an_idle_node: Any) -> Iterator[Any]:
        if not (native_dir() / "softgpu" / "libcuda.so.1").exists():
            pytest.skip(f"no software GPU in {native_dir()}")

        def start_one(*arguments: str) -> None:
            command = [sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--runtime-dir"]
            log = ["--log-file", str(an_idle_node.folder / "agent.log")]
            an_idle_node.process = subprocess.Popen([*command, str(an_idle_node.folder), *log, *arguments])
            an_idle_node.until(an_idle_node.answers)

        yield start_one
        remove_state(softgpu_state_path(RuntimeDir(an_idle_node.folder)))

    def test_an_agent_writes_specs_and_grants_name_what_they_mount(
        self, an_idle_node: Any, start: Any, open_holder: Any, tmp_path: Path
    ) -> None:
        cdi, libraries = tmp_path / "cdi", tmp_path / "lib"
        start("--cdi-dir", str(cdi), "--library-dir", str(libraries), "--softgpu-devices", "2")
        specs = {path.name: json.loads(path.read_text()) for path in cdi.iterdir()}
        for spec in specs.values():
            check(spec)
        assert set(specs) == {"aliquot.dev-hook.json", "aliquot.dev-softgpu.json"}
        grant = open_holder().reserve()["grant"]["env"]
        folder = next(libraries.iterdir())
        assert grant["LD_LIBRARY_PATH_PREPEND"] == str(folder / "shim")
        assert grant["LD_AUDIT_PREPEND"] == str(folder / "shim" / "libaliquot-audit.so")
        assert grant["ALIQUOT_REAL_CUDA"] == str(folder / "softgpu" / "libcuda.so.1")
        mounted = [mount["hostPath"] for spec in specs.values() for mount in spec["containerEdits"]["mounts"]]
        assert {str(folder), str(Path(grant["ALIQUOT_SOFTGPU_STATE"]).parent)} == set(mounted)
        loader = (an_idle_node.folder / "ld.so.preload").read_text().split()
        want = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libaliquot-preload.so"]
        assert [Path(path).name for path in loader] == want
        assert all(Path(path).exists() for path in loader)
        an_idle_node.end()
        assert len(list(cdi.iterdir())) == 2, "kernels may start while the next agent does"

    def test_libraries_of_an_older_agent_stay_as_long_as_its_kernels(
        self, an_idle_node: Any, start: Any, open_holder: Any, tmp_path: Path
    ) -> None:
        start("--library-dir", str(tmp_path))
        (mine,) = tmp_path.iterdir()
        holder = open_holder()
        holder.reserve()
        an_idle_node.end(9)
        older = mine.rename(tmp_path / "0-of-before")
        journal = an_idle_node.folder / "kernels" / "k" / "grant.json"
        journal.write_text(journal.read_text().replace(mine.name, older.name))
        start("--library-dir", str(tmp_path))
        assert {path.name for path in tmp_path.iterdir()} == {older.name, mine.name}
        again = open_holder().reserve()["grant"]["env"]["LD_LIBRARY_PATH_PREPEND"]
        assert again == str(mine / "shim"), "what starts from now on gets today's"
        open_holder().ask("release", kernel_id="k")
        an_idle_node.end(9)
        start("--library-dir", str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == [mine.name]

    def test_a_folder_for_specs_that_cannot_be_made_ends_the_agent_with_one_line(self, an_idle_node: Any) -> None:
        result = subprocess.run(
            an_idle_node.command("--cdi-dir", "/proc/cdi", "--log-file", "/dev/null"),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert result.returncode == 1
        assert "/proc/cdi" in result.stderr
        assert result.stderr.count("\n") == 1
