"""The place of the runtime folder, its owner, and the choice of the driver."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from second_account import ANOTHER, as_another

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.paths import (
    PathError,
    RuntimeDir,
    find_door,
    find_runtime_dir,
    prepare_runtime_dir,
    prepare_shared_runtime_dir,
    private_opener,
    softgpu_state_path,
)


@pytest.fixture
def a_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an agent that runs as a service, where every account can look for it."""
    with tempfile.TemporaryDirectory(prefix="aliquot-service-", dir="/tmp") as folder:
        monkeypatch.setattr(paths, "_SERVICE_DIR", Path(folder))
        yield Path(folder)


class TestRuntimeDir:
    def test_the_variable_comes_first(self) -> None:
        assert find_runtime_dir({"ALIQUOT_RUNTIME_DIR": "/x/y", "XDG_RUNTIME_DIR": "/tmp"}).path == Path("/x/y")

    def test_an_agent_run_as_a_service_is_found_by_its_own_account(self, a_service: Path) -> None:
        ours = lambda: str(find_runtime_dir({}).path)  # noqa: E731 (asked in another process)
        os.chown(a_service, ANOTHER, ANOTHER) if os.geteuid() == 0 else None
        assert as_another(ours) == f"/tmp/aliquot-{ANOTHER}"
        (a_service / "agent.sock").touch()
        assert as_another(ours) == str(a_service)

    @pytest.mark.parametrize("mode", [0o700, 0o711, 0o755])
    def test_a_service_of_another_account_is_not_ours_whether_or_not_we_may_enter(
        self, mode: int, a_service: Path
    ) -> None:
        (a_service / "agent.sock").touch()
        a_service.chmod(mode)
        assert as_another(lambda: str(find_runtime_dir({}).path)) == f"/tmp/aliquot-{ANOTHER}"

    @pytest.mark.parametrize("mode", [0o700, 0o711, 0o755])
    def test_the_session_folder_of_another_account_is_not_ours(self, mode: int, a_service: Path) -> None:
        a_service.chmod(mode)
        session = {"XDG_RUNTIME_DIR": str(a_service)}
        assert as_another(lambda: str(find_runtime_dir(session).path)) == f"/tmp/aliquot-{ANOTHER}"

    def test_a_session_folder_is_used_when_it_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paths, "_SERVICE_DIR", Path("/nowhere"))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert find_runtime_dir({"XDG_RUNTIME_DIR": "/tmp"}).path == Path("/tmp/aliquot")
        assert find_runtime_dir({"XDG_RUNTIME_DIR": "/nowhere"}).path == Path("/tmp/aliquot-1000")

    def test_the_folder_is_made_private(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paths, "MAX_RUNTIME_DIR", 4096)
        runtime = RuntimeDir(tmp_path / "a" / "b")
        prepare_runtime_dir(runtime)
        prepare_runtime_dir(runtime)
        assert runtime.path.stat().st_mode & 0o777 == 0o700
        assert runtime.kernels.is_dir()

    @pytest.mark.parametrize("before", [0o755, 0o777, 0o701])
    def test_what_was_open_is_closed_save_the_way_to_kernels(
        self, before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paths, "MAX_RUNTIME_DIR", 4096)
        runtime = RuntimeDir(tmp_path / "a")
        prepare_runtime_dir(runtime)
        runtime.path.chmod(before)
        prepare_runtime_dir(runtime)
        assert runtime.path.stat().st_mode & 0o777 == 0o700
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        # skips the check of its owner
        monkeypatch.setattr(paths, "check_runtime_dir", lambda runtime: None)
        prepare_runtime_dir(runtime, is_service=True)
        prepare_runtime_dir(runtime)
        assert [path.stat().st_mode & 0o777 for path in (runtime.path, runtime.kernels)] == [0o711, 0o711]

    def test_a_log_is_read_by_its_owner_alone_also_one_that_was_open_to_others(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.write_text("before\n")
        log.chmod(0o644)
        with open(log, "a", opener=private_opener) as file:
            file.write("after\n")
        assert (log.read_text(), log.stat().st_mode & 0o777) == ("before\nafter\n", 0o600)

    def test_a_link_in_place_of_the_folder_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paths, "MAX_RUNTIME_DIR", 4096)
        (tmp_path / "link").symlink_to(tmp_path)
        with pytest.raises(PathError, match="is no folder"):
            prepare_runtime_dir(RuntimeDir(tmp_path / "link"))

    def test_each_folder_has_a_software_gpu_of_its_own(self) -> None:
        first, second = softgpu_state_path(RuntimeDir(Path("/tmp/a"))), softgpu_state_path(RuntimeDir(Path("/tmp/b")))
        assert first != second
        assert first.parents[2] == Path("/dev/shm")


class TestDriver:
    @pytest.fixture
    def a_driver(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Make a folder with driver libraries, and a device file."""
        for name in ("libcuda.so.1", "libnvidia-ml.so.1", "nvidiactl"):
            (tmp_path / name).touch()
        monkeypatch.setattr(paths, "_DRIVER_DEVICES", (str(tmp_path / "nvidiactl"),))
        monkeypatch.setattr(paths, "_DRIVER_DIRS", (str(tmp_path),))
        monkeypatch.setattr(paths, "_cached_libraries", lambda name: [])
        return tmp_path

    def test_a_library_and_a_device_make_a_driver(self, a_driver: Path) -> None:
        want = paths.Driver("nvidia", a_driver / "libcuda.so.1", a_driver / "libnvidia-ml.so.1")
        assert paths.choose_driver("auto") == paths.choose_driver("nvidia") == want

    @pytest.mark.parametrize("missing", ["libcuda.so.1", "libnvidia-ml.so.1", "nvidiactl"])
    def test_without_one_of_them_there_is_no_driver(self, a_driver: Path, missing: str) -> None:
        (a_driver / missing).unlink()
        assert paths.nvidia_driver() is None
        with pytest.raises(PathError, match="Install the driver, or use --driver softgpu"):
            paths.choose_driver("nvidia")

    def test_a_libcuda_that_the_loader_would_choose_first_is_the_driver(
        self, a_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """NVIDIA's images have it for forward compatibility, with no NVML beside it."""
        compat = tmp_path / "cuda" / "compat"
        compat.mkdir(parents=True)
        (compat / "libcuda.so.1").touch()
        monkeypatch.setattr(paths, "_cached_libraries", lambda name: [a_driver / name])
        monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{compat}")
        want = paths.Driver("nvidia", compat / "libcuda.so.1", a_driver / "libnvidia-ml.so.1")
        assert paths.choose_driver("nvidia") == want
        monkeypatch.setattr(paths, "shim_dir", lambda: compat)
        assert paths.choose_driver("nvidia").cuda == a_driver / "libcuda.so.1", "our own shim is no driver"

    def test_the_hook_of_another_installation_is_not_taken_for_the_driver(
        self, a_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A node agent that is started from a kernel has it in LD_LIBRARY_PATH."""
        other = tmp_path / "other" / "shim"
        other.mkdir(parents=True)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libaliquot-preload.so"):
            (other / name).touch()
        monkeypatch.setenv("LD_LIBRARY_PATH", str(other))
        want = paths.Driver("nvidia", a_driver / "libcuda.so.1", a_driver / "libnvidia-ml.so.1")
        assert paths.choose_driver("nvidia") == want

    @pytest.mark.parametrize("by_link", [True, False])
    def test_our_software_gpu_is_not_taken_for_the_driver_by_whatever_name(
        self, a_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_link: bool
    ) -> None:
        """An editable installation is a folder of links."""
        real, link = tmp_path / "real" / "softgpu", tmp_path / "native"
        real.mkdir(parents=True)
        link.symlink_to(tmp_path / "real")
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (real / name).touch()
        monkeypatch.setattr(paths, "native_dir", lambda: link)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(link / "softgpu" if by_link else real))
        assert paths.choose_driver("nvidia").cuda == a_driver / "libcuda.so.1"

    def test_our_own_hook_is_not_taken_for_the_driver(self, a_driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paths, "shim_dir", lambda: a_driver)
        assert paths.nvidia_driver() is None

    def test_an_installation_without_libraries_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paths, "native_dir", lambda: tmp_path)
        with pytest.raises(PathError, match="is missing; install aliquot again"):
            paths.softgpu_driver()

    def test_an_unknown_driver_is_refused(self) -> None:
        with pytest.raises(PathError, match="Choose auto, nvidia or softgpu"):
            paths.choose_driver("amd")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root prepares a folder for another account")
def test_root_gives_a_shared_folder_away_by_its_descriptor(a_service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_path(*_: object, **__: object) -> None:
        raise AssertionError("another account may put a link in the place of a path")

    runtime = RuntimeDir(a_service / "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "chown", by_path)
        patch.setattr(Path, "chmod", by_path)
        prepare_shared_runtime_dir(runtime, 2999)
    found = [(stat.S_IMODE(one.stat().st_mode), one.stat().st_gid) for one in (runtime.path, runtime.relays)]
    assert found == [(0o1771, 2999), (0o751, 2999)]
    elsewhere = a_service / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    runtime.relays.rmdir()
    runtime.relays.symlink_to(elsewhere)
    with pytest.raises(PathError, match="is not a folder of root; remove it"):
        prepare_shared_runtime_dir(runtime, 2999)
    assert (stat.S_IMODE(elsewhere.stat().st_mode), elsewhere.stat().st_gid) == (0o700, 0)


class TestDoor:
    def test_the_door_is_a_folder_of_root_for_a_gateway_and_for_no_member_of_its_group(self, a_service: Path) -> None:
        door = lambda: str(find_door({}))  # noqa: E731 (asked in another process)
        assert as_another(door) == "None"
        prepare_shared_runtime_dir(RuntimeDir(a_service), ANOTHER + 1)
        assert as_another(door) == str(RuntimeDir(a_service))
        prepare_shared_runtime_dir(RuntimeDir(a_service), ANOTHER)
        assert as_another(door) == "None"
        assert find_door({}) is None

    def test_an_account_that_chose_another_folder_asks_there_alone(self, a_service: Path) -> None:
        assert as_another(lambda: str(find_door({}))) == "None"
        prepare_shared_runtime_dir(RuntimeDir(a_service), ANOTHER + 1)
        assert as_another(lambda: str(find_door({"ALIQUOT_RUNTIME_DIR": "/tmp/mine"}))) == "None"
        chosen = {"ALIQUOT_RUNTIME_DIR": str(a_service)}
        assert as_another(lambda: str(find_door(chosen))) == str(RuntimeDir(a_service))
