"""`aliquot serve`: it serves kernels, sessions, kernelspecs and our API to holders of a token.

It serves nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import warm_start
from ports import free_port

START_SECONDS = 90.0
TOKEN = "a-token-of-this-test"


@dataclass
class Gateway:
    process: subprocess.Popen[bytes]
    url: str
    environment: dict[str, str]

    def get(self, path: str, token: str | None = TOKEN, method: str = "GET", body: object = None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=data)
        if token:
            request.add_header("Authorization", f"token {token}")
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@pytest.fixture(scope="module")
def a_gateway() -> Iterator[Gateway]:
    with a_gateway_process() as gateway:
        yield gateway


@contextlib.contextmanager
def a_gateway_process(variables: dict[str, str] | None = None) -> Iterator[Gateway]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER_", "ALIQUOT_", "XDG_"))} | {
        "ALIQUOT_RUNTIME_DIR": str(folder),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
        "HOME": str(folder),
        **({"JUPYTER_TOKEN": TOKEN} if variables is None else variables),
    }
    options = ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={free_port()}", "--ServerApp.port_retries=0"]
    options += [f"--ServerApp.root_dir={folder}", "--allow-root", "--Aliquot.keep_kernels=never"]
    log = (folder / "serve.log").open("wb")
    command = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "serve", *options, "--Aliquot.driver=softgpu"]
    command += ["--Aliquot.agent_options=--overcommit", "--Aliquot.agent_options=1"]  # a fifth kernel waits
    # A test that a shell runs in the background inherits an ignored SIGINT, and so would its
    # server.
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield Gateway(process, _url_when_it_answers(process, folder), environment)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(90)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _url_when_it_answers(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Return the gateway's address as soon as it answers.

    Jupyter writes the file a moment before the server listens.
    """
    told = folder / f"jupyter/jpserver-{process.pid}.json"
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, (folder / "serve.log").read_text()
        assert time.monotonic() < deadline, f"the gateway did not start in time: {(folder / 'serve.log').read_text()}"
        with contextlib.suppress(OSError, ValueError):
            url = str(json.loads(told.read_text())["url"]).rstrip("/")
            urllib.request.urlopen(f"{url}/api", timeout=5).close()
            return url
        time.sleep(0.05)


def test_ctrl_c_without_a_terminal_ends_its_kernels() -> None:
    with a_gateway_process() as gateway:
        code, answer = gateway.get("/api/kernels", method="POST", body={"name": "python3.gpu-0.25"})
        assert code == 201, answer
        gateway.process.send_signal(signal.SIGINT)
        gateway.process.wait(90)
        log = (Path(gateway.environment["HOME"]) / "serve.log").read_text()
        assert "Shutting down 1 extension" in log
        assert "Parent appears to have exited" not in log


def test_the_address_that_it_prints_at_its_start_logs_in() -> None:
    with a_gateway_process(variables={}) as gateway:
        log = Path(gateway.environment["HOME"]) / "serve.log"
        printed = re.findall(r"copy and paste one of these URLs:\s+\S+[?]token=(\S+)", log.read_text())
        assert [gateway.get("/api/status", token=token)[0] for token in printed] == [200], log.read_text()


def test_it_prints_no_token_that_it_was_given(a_gateway: Gateway) -> None:
    log = (Path(a_gateway.environment["HOME"]) / "serve.log").read_text()
    assert "?token=..." in log
    assert TOKEN not in log


def test_a_wrong_knob_in_the_servers_configuration_ends_it_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "jupyter_server_config.py").write_text('c.SharedFolders.roots = ["/etc"]\n')
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path), "ALIQUOT_RUNTIME_DIR": str(tmp_path / "run")}
    command = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "serve", "--port=0", "--allow-root"]
    command += [f"--Aliquot.state_dir={tmp_path / 'state'}", f"--ServerApp.root_dir={tmp_path}"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert ended.returncode == 1
    assert "c.SharedFolders: The root '/etc' is a folder of the system" in ended.stderr


@pytest.mark.parametrize(
    "path", ["/api/kernels", "/api/sessions", "/api/kernelspecs", "/api/status", "/api/me", "/aliquot/api/v1/status"]
)
def test_it_serves_those_with_a_token(a_gateway: Gateway, path: str) -> None:
    assert a_gateway.get(path)[0] == 200
    assert a_gateway.get(path, token=None)[0] == 403
    assert a_gateway.get(path, token="another")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/api/contents",
        "/api/terminals",
        "/lab",
        "/tree",
        "/files/serve.log",
        "/api/config/x",
        "/api/nbconvert",
        "/view/x",
    ],
)
def test_it_serves_no_files_terminals_or_lab(a_gateway: Gateway, path: str) -> None:
    assert a_gateway.get(path)[0] == 404


def test_nobody_ends_it_by_rest(a_gateway: Gateway) -> None:
    assert a_gateway.get("/api/shutdown", method="POST")[0] in (404, 405)
    assert a_gateway.process.poll() is None


def test_it_lists_sizes(a_gateway: Gateway) -> None:
    specs = json.loads(a_gateway.get("/api/kernelspecs")[1])["kernelspecs"]
    assert "python3.gpu-0.25" in specs


def test_the_status_command_shows_who_waits(a_gateway: Gateway) -> None:
    """Start five kernels of a quarter GPU each: the fifth waits."""
    ids = []
    for _ in range(5):
        code, answer = a_gateway.get("/api/kernels", method="POST", body={"name": "python3.gpu-0.25"})
        assert code == 201, answer
        ids.append(json.loads(answer)["id"])
    words = [*warm_start.ALIQUOT, "status"]
    places = {"env": a_gateway.environment, "timeout": START_SECONDS}
    deadline = time.monotonic() + START_SECONDS
    waiting: list[dict[str, object]] = []
    complaint = ""
    while [kernel["id"] for kernel in waiting] != ids[4:] or "0.25 GPU" not in str(waiting[0]["reason"]):
        assert time.monotonic() < deadline, (waiting, complaint)
        told = warm_start.run(warm_start.SERVER, [*words, "--json"], **places)
        # On a busy machine the node agent may start late, or answer late.
        complaint = told.stderr
        waiting = json.loads(told.stdout)["queue"] if told.returncode == 0 else []
    shown = warm_start.run(warm_start.SERVER, words, **places).stdout
    assert "waiting" in shown
    assert str(waiting[0]["reason"]) in " ".join(shown.split())
    for kernel_id in ids:
        assert a_gateway.get(f"/api/kernels/{kernel_id}", method="DELETE")[0] == 204
