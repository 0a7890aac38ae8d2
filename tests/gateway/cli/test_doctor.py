"""`aliquot doctor`: its findings on this machine, and its advice."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from second_account import ANOTHER, as_another

from jupyter_aliquot.gateway.doctor import host as doctor_host, jupyter as doctor_jupyter, node as doctor_node
from jupyter_aliquot.gateway.doctor.messages import check_messages
from jupyter_aliquot.gateway.doctor.runner import FAIL, OK, WARN, Finding, all_well, examine
from jupyter_aliquot.gateway.status.devices import A_TEAM_THERE
from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.client.agent_process import find_agent
from jupyter_aliquot.gpu_hook.client.client import AgentUnreachable, query
from jupyter_aliquot.gpu_hook.client.residency_reports import MODE_IS_OFF, ResidencyStatus
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, prepare_shared_runtime_dir


def a_check_that_breaks() -> list[Finding]:
    raise RuntimeError("the disk is on fire")


def test_a_check_that_breaks_hides_none_of_the_others() -> None:
    found = examine([a_check_that_breaks, lambda: [Finding("weather", OK, "fine")]])
    assert [finding.state for finding in found] == [FAIL, OK]
    assert "the disk is on fire" in found[0].found
    assert found[0].remedy


def test_warnings_are_no_failure() -> None:
    assert all_well([Finding("a", OK, ""), Finding("b", WARN, "", "do")])
    assert not all_well([Finding("a", OK, ""), Finding("b", FAIL, "", "do")])


@pytest.fixture
def the_folder(monkeypatch: pytest.MonkeyPatch, a_runtime_folder: Path) -> RuntimeDir:
    monkeypatch.setenv("ALIQUOT_RUNTIME_DIR", str(a_runtime_folder))
    return RuntimeDir(a_runtime_folder)


def test_the_choice_of_the_runtime_folder_is_explained(the_folder: RuntimeDir) -> None:
    (found,) = doctor_host.check_runtime_folder()
    assert found.state == OK
    assert f"{the_folder.path} (ALIQUOT_RUNTIME_DIR names it)" in found.found


def test_a_runtime_folder_with_too_long_a_name_fails() -> None:
    (found,) = doctor_host.check_runtime_folder({"ALIQUOT_RUNTIME_DIR": "/tmp/" + "x" * 60})
    assert found.state == FAIL
    assert "at most" in found.found


@pytest.mark.parametrize("below", ["", "below"])
def test_a_folder_of_another_account_is_no_defect_of_the_doctor(
    below: str, a_runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_runtime_folder.chmod(0o700)
    monkeypatch.setenv("ALIQUOT_RUNTIME_DIR", str(a_runtime_folder / below))

    def examined() -> str:
        looks = (doctor_host.check_runtime_folder, doctor_host.check_agent, doctor_host.check_gateway)
        facts = find_agent()
        assert (facts.answers, facts.log) == (False, None)
        return "\n".join(f"{one.state} {one.found}" for one in examine(looks))

    found = as_another(examined).splitlines()
    assert len(found) == 3, found
    assert found[0].startswith(FAIL)
    assert ("cannot look at the runtime folder" if below else "belongs to user 0") in found[0]
    assert all(line.startswith(f"{OK} none runs") for line in found[1:])


@pytest.fixture
def the_machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[RuntimeDir]:
    """Give the folder of a gateway of a third account, which starts every account's kernels."""
    with tempfile.TemporaryDirectory(prefix="aliquot-service-", dir="/tmp") as folder:
        monkeypatch.setattr(paths, "_SERVICE_DIR", Path(folder))
        monkeypatch.delenv("ALIQUOT_RUNTIME_DIR")
        prepare_shared_runtime_dir(RuntimeDir(Path(folder)), ANOTHER + 1)
        yield RuntimeDir(Path(folder))


def test_an_account_learns_of_the_machines_gateway(the_folder: RuntimeDir, the_machines: RuntimeDir) -> None:
    def found() -> str:
        return "\n".join(
            f"{one.state} {one.found}" for one in (*doctor_host.check_agent(), *doctor_host.check_gateway())
        )

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(the_machines.gateway_socket))
        the_machines.gateway_socket.chmod(0o666)
        listening.listen(1)
        agent, gateway = as_another(found).splitlines()
    assert agent == f"{OK} none of this account runs; it needs none beside {the_machines.path}"
    assert gateway.startswith(f"{OK} the machine's: pid {os.getpid()} of ")
    _, gateway = as_another(found).splitlines()
    assert gateway == f"{WARN} the machine's does not answer at {the_machines.gateway_socket}"


def test_a_command_for_the_agent_names_the_machines_gateway(the_folder: RuntimeDir, the_machines: RuntimeDir) -> None:
    def asked() -> str:
        with pytest.raises(AgentUnreachable) as refused:
            query("status", seconds=3)
        return str(refused.value)

    told = as_another(asked)
    assert f"run at the machine's gateway ({the_machines.path})" in told
    assert "aliquot agent" not in told


@pytest.mark.parametrize("check", [doctor_host.check_agent, doctor_host.check_gateway])
def test_a_stale_socket_is_a_warning_with_a_remedy(check, the_folder: RuntimeDir) -> None:
    path = the_folder.agent_socket if check is doctor_host.check_agent else the_folder.gateway_socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
    (found,) = check()
    assert found.state == WARN
    assert "stale" in found.found
    assert f"rm {path}" in found.remedy


@pytest.mark.parametrize("check", [doctor_host.check_agent, doctor_host.check_gateway])
def test_no_socket_is_in_order(check, the_folder: RuntimeDir) -> None:
    assert [finding.state for finding in check()] == [OK]


def test_a_running_agent_is_named_with_its_owner(the_folder: RuntimeDir, an_agent) -> None:
    (found,) = doctor_host.check_agent()
    assert found.state == OK
    assert f"pid {an_agent.pid} of " in found.found


def test_a_driver_that_does_not_answer_the_agent_fails_with_its_reason(
    the_folder: RuntimeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    the_folder.agent_socket.touch()
    answer = {"driver": "nvidia", "kernels": [], "driver_problem": "the driver has not answered for 5 s"}
    monkeypatch.setattr(doctor_host, "query", lambda *words, **fields: answer)
    monkeypatch.setattr(doctor_host, "peer_words", lambda path: "pid 7 of root")
    running, found = doctor_host.check_agent()
    assert (running.state, found.state) == (OK, FAIL)
    assert found.found == "the node agent counts them as lost: the driver has not answered for 5 s"


@pytest.mark.parametrize("is_gvisor", [True, False])
def test_gvisor_is_said_to_be_unsupported(is_gvisor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_host, "is_gvisor", lambda: is_gvisor)
    found = [one for one in doctor_host.check_driver() if one.state == FAIL]
    assert [one.found.startswith("gVisor: unsupported") for one in found] == [True] * is_gvisor


def test_a_gateway_that_listens_is_named_with_its_owner(the_folder: RuntimeDir) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(the_folder.gateway_socket))
        listening.listen(1)
        (found,) = doctor_host.check_gateway()
    assert f"pid {os.getpid()} of " in found.found


def test_doctor_tells_what_a_gateway_says_of_itself_and_of_teams(
    the_folder: RuntimeDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            lowered = {"index": 0, "overcommit": 1.5, "overcommit_reason": f"{A_TEAM_THERE} has overcommit 1.5"}
            node = {"message": "The node agent that runs has --overcommit 1"}
            text = json.dumps({"node": node, "devices": [lowered, {**lowered, "overcommit_reason": None}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with (
        HTTPServer(("127.0.0.1", 0), Gateway) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        listening.bind(str(the_folder.gateway_socket))
        listening.listen(1)
        the_folder.gateway_lock.write_text(f"{os.getpid()}\n")
        address = {"url": f"http://127.0.0.1:{server.server_port}/", "token": "t"}
        (tmp_path / f"jpserver-{os.getpid()}.json").write_text(json.dumps(address))
        try:
            running, shared = doctor_host.check_gateway()
            (told,) = check_messages()
            monkeypatch.setenv("JUPYTER_GATEWAY_URL", "http://127.0.0.1:9")
            _, of_this_machine, _ = doctor_host.check_gateway()
        finally:
            server.shutdown()
    assert (running.state, told.state, of_this_machine.state) == (OK, WARN, WARN)
    assert "has --overcommit 1" in told.found
    assert "has --overcommit 1" in of_this_machine.found, (
        "the messages are those of the gateway that the variable names"
    )
    assert shared.found == f"gpu0: overcommit: 1.5 times its memory; {A_TEAM_THERE} has overcommit 1.5"


@pytest.mark.parametrize("an_agent", [["--library-dir", "{folder}/libraries"]], indirect=True)
def test_a_library_that_the_agents_copy_lost_fails(the_folder: RuntimeDir, an_agent) -> None:
    """The package's own are whole: the line of a kernel that failed its self-check leads here."""
    (library,) = the_folder.path.glob("libraries/*/shim/libcuda.so.1")
    library.unlink()
    assert [found.state for found in doctor_host.check_native_libraries()] == [OK, OK]
    found = doctor_host.check_agent()[-1]
    assert (found.about, found.state) == ("hook", FAIL)
    assert f"The hook cannot hold memory limits: {library} is missing or cannot be read. Install" in found.found


def test_missing_hook_libraries_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor_host, "native_dir", lambda: tmp_path)
    found = doctor_host.check_native_libraries()[0]
    assert (found.about, found.state) == ("hook", FAIL)
    assert str(tmp_path / "shim" / "libcuda.so.1") in found.found


def test_an_engine_without_a_socket_is_a_warning_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor_host.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor_host, "_engine_sockets", lambda environ: [tmp_path / "docker.sock"])
    (found,) = doctor_host.check_container_engine({})
    assert (found.state, bool(found.remedy)) == (WARN, True)


def test_an_engine_is_reached_by_docker_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A relative address: a test's own folder may be too deep for a socket's path.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind("engine.sock")
        listening.listen(1)
        (found,) = doctor_host.check_container_engine({"DOCKER_HOST": "unix://engine.sock"})
    assert found.state == OK
    assert "engine.sock" in found.found


def test_another_kernel_manager_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = ["c.ServerApp.kernel_manager_class = 'their.KernelManager'"]
    (tmp_path / "jupyter_server_config.py").write_text("\n".join(lines))
    enabled = {"ServerApp": {"jpserver_extensions": {"jupyter_aliquot.gateway": True}}}
    (tmp_path / "jupyter_server_config.json").write_text(json.dumps(enabled))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    by_name = {finding.about: finding for finding in doctor_jupyter.check_server()}
    found = by_name["server classes"]
    assert found.state == WARN
    assert "their.KernelManager" in found.found
    assert "c.ServerApp.kernel_manager_class" in found.remedy


def test_a_disabled_lab_extension_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    extension = tmp_path / "data/labextensions/@jupyter-aliquot/labextension"
    extension.mkdir(parents=True)
    (extension / "package.json").write_text(json.dumps({"version": "0.1.0"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    assert doctor_jupyter.check_lab_extension()[0].state == OK
    (tmp_path / "labconfig").mkdir()
    settings = {"disabledExtensions": {"@jupyter-aliquot/labextension": True}}
    (tmp_path / "labconfig/page_config.json").write_text(json.dumps(settings))
    (found,) = doctor_jupyter.check_lab_extension()
    assert found.state == WARN
    assert "disabled" in found.found


def test_a_kernel_with_an_unknown_driver_function_is_named_with_what_to_do() -> None:
    reasons = ("unknown driver function cuFoo", MODE_IS_OFF, "")
    kernels = [SimpleNamespace(residency=ResidencyStatus(mode_reason=reason)) for reason in reasons]
    status: Any = SimpleNamespace(kernels=[*kernels, SimpleNamespace(residency=None)])
    (found,) = doctor_node.obstacles(status)
    assert (found.state, found.found) == (WARN, "1 kernel is not swappable: unknown driver function cuFoo")
    assert found.remedy


def test_the_whole_examination_ends_by_what_it_found(run_aliquot) -> None:
    done = run_aliquot("doctor", "--json")
    told = json.loads(done.stdout)
    by_name = {finding["about"]: finding for finding in told["findings"]}
    assert by_name["self-check"]["state"] == OK, by_name["self-check"]
    assert "Aliquot Software GPU" in by_name["devices"]["found"] or by_name["driver"]["state"] == OK
    enforcers = [finding["found"] for finding in told["findings"] if finding["about"] == "enforcer"]
    assert [line.split(":")[0] for line in enforcers] == ["hook", "driver (experimental)", "mps (experimental)"]
    assert enforcers[0] == "hook: in force"
    actuators = [finding["found"] for finding in told["findings"] if finding["about"] == "actuator"]
    want_names = ["pacing", "mps (experimental)"]
    assert [line.split(":")[0] for line in actuators] == want_names
    assert actuators[0] == "pacing: in force"
    assert done.returncode == (0 if told["ok"] else 1)
    assert all(finding["remedy"] for finding in told["findings"] if finding["state"] == WARN)
