"""Run commands of the pages in a shell as they are printed.

A gateway with users and its own node agent runs next to them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ports import free_port

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.command_table import RUN, RUN_AGENTS, RUN_ALONE, RUN_TOGETHER
    from tests.documents.printed_commands import exports_before, printed
    from tests.documents.reader_environment import variables_of
    from tests.documents.reader_server import PATIENCE_SECONDS, a_folder, answers, started
else:
    from command_table import RUN, RUN_AGENTS, RUN_ALONE, RUN_TOGETHER
    from printed_commands import exports_before, printed
    from reader_environment import variables_of
    from reader_server import PATIENCE_SECONDS, a_folder, answers, started

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "alices-token-of-this-test"
ADMIN_TOKEN = "adas-token-of-this-test"
CONFIGURATION = f"""
c.AliquotIdentityProvider.users = {{
    "alice": {{"token": "{TOKEN}"}},
    "bob": {{"token": "bobs", "teams": ["vision"]}},
    "ada": {{"token": "{ADMIN_TOKEN}", "role": "admin"}},
}}
c.Aliquot.driver = "softgpu"
c.Aliquot.agent_options = ["--softgpu-memory", "16GiB"]
c.Aliquot.keep_kernels = "never"
"""
# The output or file by which a command shows that it did as its page promises. A command without a
# row needs to end with 0.
SAYS = {
    "aliquot status": "train.ipynb",
    ".venv/bin/aliquot status": "train.ipynb",
    "aliquot status --json": '"kernels"',
    "aliquot sizes": "python3.gpu-0.25",
    "aliquot agent --help": "--compute-actuators",
    "aliquot doctor": "enforcer",
    "aliquot doctor | grep actuator": "pacing: in force",
    "aliquot doctor | grep enforcer": "hook: in force",
    "aliquot sizes --install 0.5-8g": "python3.gpu-0.5-8g",
    "aliquot resize train.ipynb 0.5 --memory 12GiB --priority low": "0.5 GPU",
    "aliquot share train.ipynb --user bob": "bob",
    "aliquot share train.ipynb": "vision",
    "aliquot capacity --gpus 4 --gpu-memory 80GiB --host-memory 512GiB": "overcommit: 1.30",
    "make help": "List the targets",
    "jupyter console --kernel python3.gpu-0.25": "sized: True",
    **{
        f"pip install {package}": f"Requirement already satisfied: {package}"
        for package in ("papermill", "ipykernel", "jupyter-console")
    },
}
# Commands that a gateway refuses to others than administrators.
FOR_ADMINISTRATORS = ("aliquot holders", "aliquot message ")
# The lines that a user types into a program that asks.
TYPED = {
    "jupyter console --kernel python3.gpu-0.25": "import os; print('sized:', 'ALIQUOT_KERNEL_DIR' in os.environ)\n",
}
README = "README.md"
PRINTED = printed()
# Files that a command writes into its folder, and a pattern that they then match.
WRITES = {
    'curl -H "Authorization: token $TOKEN" "$SERVER/aliquot/api/v1/usage?by=team&format=csv" > usage.csv': (
        "usage.csv",
        r"^team,working_gpu_hours",
    ),
    'curl -H "Authorization: token $TOKEN" "$SERVER/aliquot/api/v1/history?range=day&format=csv" > day.csv': (
        "day.csv",
        r"^[a-z_]+,[a-z_]+",
    ),
    'echo "ALIQUOT_TOKEN=$(openssl rand -hex 32)" > .env && chmod 600 .env': (".env", r"^ALIQUOT_TOKEN=[0-9a-f]{64}$"),
    "jupyter execute --kernel_name=python3.gpu-0.25 notebook.ipynb": ("notebook.ipynb", "nbformat"),
    ".venv/bin/jupyter execute --kernel_name=python3.gpu-0.25 notebook.ipynb": ("notebook.ipynb", "nbformat"),
    "papermill -k python3.gpu-0.5-8g in.ipynb out.ipynb": ("out.ipynb", r'"1\\n"'),
    "papermill --kernel python3.gpu-0.5 --start-timeout 120 in.ipynb out.ipynb -p epochs 3": ("out.ipynb", r'"3\\n"'),
    "jupyter labextension disable @jupyter-aliquot/labextension:picker": (
        "venv/etc/jupyter/labconfig/page_config.json",
        r'"@jupyter-aliquot/labextension:picker": true',
    ),
    "aliquot sizes --install --user": (
        ".local/share/jupyter/kernels/python3.gpu-0.25/kernel.json",
        '"provisioner_name": "aliquot"',
    ),
    "aliquot sizes --install python3.gpu-2.5-low --sys-prefix": (
        "venv/share/jupyter/kernels/python3.gpu-2.5-low/kernel.json",
        '"provisioner_name": "aliquot"',
    ),
}
# Commands that change nothing: one run serves each page that prints them, also with a path or a pipe.
SHOWS = frozenset(f"aliquot {word}" for word in ("status", "sizes", "doctor"))


@dataclass
class Scene:
    folder: Path
    port: int
    environment: dict[str, str]
    shown: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)

    def ask(self, path: str, body: object) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=json.dumps(body).encode())
        request.add_header("Authorization", f"token {TOKEN}")
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return json.loads(answer.read())

    def in_new_terminal(self) -> Scene:
        """Return the same place, in a shell without an activated environment."""
        bare = variables_of(None, self.folder)
        return Scene(self.folder, self.port, {**self.environment, "PATH": bare["PATH"]}, self.shown)

    def as_administrator(self) -> Scene:
        """Return the same place, in a shell of the gateway's administrator."""
        own = {"JUPYTER_GATEWAY_AUTH_TOKEN": ADMIN_TOKEN, "TOKEN": ADMIN_TOKEN}
        return Scene(self.folder, self.port, self.environment | own)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run the command in a shell; this gateway's address replaces the page's."""
        first, pipe, rest = command.partition(" | ")
        name = first.removeprefix(".venv/bin/")
        if name not in SHOWS:
            return self._run(command, TYPED.get(command.splitlines()[-1], ""))
        if name not in self.shown:
            self.shown[name] = self._run(first)
        done = self.shown[name]
        return self._run(rest, done.stdout) if pipe else done

    def _run(self, command: str, told: str = "") -> subprocess.CompletedProcess[str]:
        here = f"http://127.0.0.1:{self.port}"
        line = command.replace("http://localhost:8888", here).replace("https://gpu.example.org:8890", here)
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.environment,
            input=told,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = f"aliquot serve --config gateway.py --port {port} --allow-root --ServerApp.port_retries=0"
    with a_folder() as folder:
        (folder / "gateway.py").write_text(CONFIGURATION)
        with started(command, folder, lambda _: answers(f"{url}/api")):
            told = {"JUPYTER_GATEWAY_URL": url, "JUPYTER_GATEWAY_AUTH_TOKEN": TOKEN, "SERVER": url, "TOKEN": TOKEN}
            own = {"ADMIN_TOKEN": ADMIN_TOKEN}
            found = Scene(folder, port, variables_of(folder / "venv", folder) | told | own)
            body = {"path": "train.ipynb", "name": "train.ipynb", "type": "notebook"}
            session = found.ask("/api/sessions", body | {"kernel": {"name": "python3.gpu-0.25"}})
            found.environment["KERNEL"] = session["kernel"]["id"]
            yield found


@pytest.mark.parametrize("command", RUN)
def test_a_printed_command_works(scene: Scene, command: str) -> None:
    program = command.split(" ")[0]
    if program in ("papermill", "curl", "make") and shutil.which(program, path=scene.environment["PATH"]) is None:
        pytest.skip(f"{program} is not installed")
    if README in PRINTED[command]:
        # Its readers have activated no environment yet; readers of a how-to page have.
        done = scene.in_new_terminal().run("\n".join([*exports_before(README, command), command]))
    elif command.startswith(FOR_ADMINISTRATORS):
        done = scene.as_administrator().run(command)
    else:
        done = scene.run(command)
    said = done.stdout + done.stderr
    # doctor ends with 1 when it found something wrong with this machine, which is not its page's
    # claim.
    assert done.returncode in ((0, 1) if command.endswith("aliquot doctor") else (0,)), said
    assert "Traceback" not in said
    assert SAYS.get(command, "") in said
    if command in WRITES:
        path, want = WRITES[command]
        assert re.search(want, (scene.folder / path).read_text(), re.MULTILINE), said
    if program == "curl" and command not in WRITES and "metrics" not in command:
        assert "id" in json.loads(done.stdout), said


def test_a_new_terminal_has_none_of_the_environments_commands(scene: Scene) -> None:
    path = scene.in_new_terminal().environment["PATH"]
    assert [shutil.which(program, path=path) for program in ("aliquot", "papermill")] == [None, None]


def test_a_clone_of_the_repository_is_a_checkout(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("these tests run without a repository")
    (tmp_path / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")  # the account of the tests may own no checkout
    command = "git clone REPOSITORY aliquot && cd aliquot"
    assert command in RUN_ALONE
    done = run_alone(f"{command.replace('REPOSITORY', ROOT.as_uri())} && make help", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "List the targets" in done.stdout
    assert (tmp_path / "aliquot" / "pyproject.toml").read_text().startswith("[build-system]")


def test_clean_removes_what_was_built_and_no_source(tmp_path: Path) -> None:
    assert "make clean" in RUN_ALONE
    shutil.copy(ROOT / "Makefile", tmp_path)
    built = [".venv/bin", "build/editable-x", "node_modules/a", ".yarn", "labextension/lib"]
    sources = ["labextension/src", "labextension/dist", "tests", "docs/build"]
    for folder in (*built, *sources):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").touch()
    done = run_alone("make clean", tmp_path)
    assert done.returncode == 0, done.stderr
    left = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("file")}
    assert left == set(sources)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "docs", "labextension", "tests"]


def run_alone(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = variables_of(None, folder)
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_the_command_of_the_environment_is_the_one_that_the_path_finds(scene: Scene) -> None:
    found = shutil.which("aliquot", path=scene.environment["PATH"])
    assert found is not None
    assert Path(found).samefile(scene.folder / ".venv/bin/aliquot")


def test_lines_that_need_each_other_work_as_one_script(scene: Scene) -> None:
    done = scene.run("\n".join(("set -e", *RUN_TOGETHER)))
    assert done.returncode == 0, done.stderr
    link = scene.folder / "venv/share/jupyter/labextensions/@jupyter-aliquot/labextension"
    assert link.resolve() == (scene.folder / "labextension/dist").resolve()


@pytest.mark.parametrize("command", RUN_AGENTS)
def test_a_printed_agent_starts(command: str) -> None:
    with a_folder() as folder, started(command, folder, lambda said: "event=started" in said):
        pass
    assert not folder.exists()
