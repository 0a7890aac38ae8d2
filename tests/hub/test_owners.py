"""Kernels of the Hub's gateway run as their owners: accounts, folders, files, and what others may not."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from hub_accounts import WITH_LAB, AccountUsers, HubOfAccounts, accounts_problem
from hub_kernels import run_cell
from hub_process import until
from made_accounts import GATEWAY, UIDS, MadeAccounts

from jupyter_aliquot.provisioner.control_groups import MOUNTED, ControlGroups

sys.path.insert(0, str(Path(__file__).parents[1] / "labextension"))
if TYPE_CHECKING:
    from tests.labextension.hub_pages import Person
    from tests.labextension.lab_process import BROWSER, BUNDLE, CHROMIUM_ARGS
    from tests.labextension.server_processes import an_empty_notebook
else:
    from hub_pages import Person
    from lab_process import BROWSER, BUNDLE, CHROMIUM_ARGS
    from server_processes import an_empty_notebook

SECONDS = 120.0
_MEMORY = """
import ctypes
cuda, free, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_size_t()
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value >> 20)
"""


class Users(AccountUsers):
    """The users of the Hub, with a kernel of a quarter of a GPU each."""

    def __init__(self, hub: HubOfAccounts) -> None:
        project = MadeAccounts.make_folder(UIDS["ada"], hub.folder_of("ada", "project"))
        for name, text in (("data.csv", "ada's data"), ("helpers.py", "answer = 42")):
            (project / name).write_text(text)
            os.chown(project / name, UIDS["ada"], UIDS["ada"])
        super().__init__(hub, "ada", "bob")
        for user, path in (("ada", "project/a.ipynb"), ("bob", "b.ipynb")):
            self.kernels[user] = self.start(user, name="python3.gpu-0.25", path=path)


@pytest.fixture(scope="module")
def users() -> Iterator[Users]:
    if problem := accounts_problem():
        pytest.skip(problem)
    with HubOfAccounts("--HostLimits.most_cpus=2", "--HostLimits.most_memory=2GiB") as hub:
        yield Users(hub)


@pytest.mark.soak(alone="starts one more Hub")
def test_the_hub_says_that_kernels_are_their_owners_by_default(users: Users) -> None:
    assert "run_kernels_as" not in (users.hub.home / "jupyterhub_config.py").read_text()
    assert "kernels run as their owners' accounts, as LocalProcessSpawner starts the servers" in users.hub.log


def test_a_kernel_is_its_owners_in_the_notebooks_folder(users: Users) -> None:
    code = """
import os, getpass, json, helpers
open("made.txt", "w").write("x")
print(json.dumps([os.getuid(), os.getgid(), os.getcwd(), open("data.csv").read(), helpers.answer,
    os.path.expanduser("~"), getpass.getuser(), os.stat("made.txt").st_uid]))
"""
    uid, home = UIDS["ada"], str(users.hub.folder_of("ada"))
    assert json.loads(users.cell("ada", code)) == [
        uid, uid, f"{home}/project", "ada's data", 42, home, "ada", uid
    ]  # fmt: skip


def test_a_kernel_has_nothing_of_the_gateways_environment(users: Users) -> None:
    names = json.loads(users.cell("ada", "import os, json; print(json.dumps(sorted(os.environ)))"))
    own = {"HOME", "LOGNAME", "PATH", "SHELL", "USER"}
    assert own <= set(names)
    foreign = [name for name in names if name.startswith(("JUPYTERHUB_", "KERNEL_", "JUPYTER_GATEWAY", "TMPDIR"))]
    assert foreign == []


def test_a_kernel_has_its_share_of_the_gpu_and_the_quota_holds(users: Users) -> None:
    assert int(users.cell("ada", _MEMORY)) == 4096
    with pytest.raises(urllib.error.HTTPError) as caught:
        users.start("ada", name="python3.gpu-0.75")
    assert "may have 0.5" in caught.value.read().decode()


def test_a_kernel_has_a_control_group_outside_of_the_hubs_with_the_memory_of_its_share(users: Users) -> None:
    if not ControlGroups().are_prepared():
        pytest.skip("this system gives root no control groups to make")
    kernel_id, uid = users.kernels["ada"], UIDS["ada"]
    groups = users.cell("ada", "print(open('/proc/self/cgroup').read())").splitlines()
    named = [line for line in groups if line.endswith(f":/aliquot.slice/user-{uid}/kernel-{kernel_id}")]
    assert [line for line in named if ":memory:" in line or line.startswith("0::")]
    for host in processes_of(0, "jupyter_aliquot.provisioner.relay", str(users.hub.home / "run")):
        assert "aliquot.slice" not in Path(f"/proc/{host}/cgroup").read_text(), "a service of the Hub stays in its unit"
    use = ControlGroups().memory_use(uid, kernel_id)
    assert use is not None
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert use.limit == pytest.approx(whole * 0.8 * 0.25, rel=0.01)


def test_a_kernel_that_takes_more_memory_than_it_has_is_ended_with_words(users: Users) -> None:
    if not ControlGroups().are_prepared():
        pytest.skip("this system gives root no control groups to make")
    kernel_id = users.start("bob", name="python3")
    found = crash_of_taking(400, users, kernel_id)
    assert found["code"] == "oom"
    assert "of 256 MiB host memory, and was ended for it" in found["message"]


def test_a_kernel_has_the_cpus_and_memory_that_its_name_chooses_and_no_more(users: Users) -> None:
    if not ControlGroups().are_prepared():
        pytest.skip("this system gives root no control groups to make")
    kernel_id, uid = users.start("bob", name="python3.gpu-0.1-2cpu-1ram"), UIDS["bob"]
    users.cell("bob", "pass", kernel_id)  # it has started
    use = ControlGroups().memory_use(uid, kernel_id)
    assert use is not None
    assert use.limit == 1 << 30
    group = f"aliquot.slice/user-{uid}/kernel-{kernel_id}"
    told = [MOUNTED / "cpu" / group / "cpu.shares", MOUNTED / group / "cpu.weight"]
    # Kernels share the CPUs by these, while they compete for them: a hundred, or 1,024, for each.
    assert [file.read_text().strip() for file in told if file.exists()] in (["2048"], ["200"])
    found = crash_of_taking(1500, users, kernel_id)
    assert found["code"] == "oom"
    assert "of 1 GiB host memory, and was ended for it" in found["message"]


def crash_of_taking(mebibytes: int, users: Users, kernel_id: str) -> dict[str, Any]:
    """Let a kernel of bob's take so much memory of the host, and return the report of its end."""

    def take_too_much() -> None:
        with suppress(Exception):  # no answer comes, and the websocket goes with the kernel
            users.cell("bob", f"block = b'x' * ({mebibytes} << 20)", kernel_id)

    Thread(target=take_too_much, daemon=True).start()
    found: dict[str, Any] = until(lambda: users.crash_of("bob", kernel_id), SECONDS)
    users.ask("bob", f"api/kernels/{kernel_id}", "DELETE")
    return found


def test_bob_reads_ends_and_reaches_nothing_of_adas(users: Users) -> None:
    run, kernel_id = users.hub.home / "run", users.kernels["ada"]
    code = f"""
import json, os, signal, socket
def said(does):
    try:
        return repr(does())
    except OSError as error:
        return type(error).__name__
pid, relay, home = {users.pid("ada")}, {str(run / "relays" / kernel_id)!r}, {str(users.hub.folder_of("ada"))!r}
tries = [
    lambda: os.listdir(home), lambda: open(home + "/project/data.csv").read(), lambda: os.kill(pid, signal.SIGKILL),
    lambda: open(f"/proc/{{pid}}/environ").read(), lambda: os.listdir(os.path.dirname(relay)),
    lambda: os.listdir(relay), lambda: open(relay + "/relay.json").read(),
    lambda: open(relay + "/k/connection.json").read(), lambda: open({str(run / "agent.log")!r}).read(),
]
for name in ("link.sock", "f-1", "k/s-1"):
    tries.append(lambda name=name: socket.socket(socket.AF_UNIX).connect(relay + "/" + name))
tries.append(lambda: socket.socket(socket.AF_UNIX).connect({str(run / "relay.sock")!r}))
print(json.dumps([said(one) for one in tries]))
"""
    assert set(json.loads(users.cell("bob", code))) == {"PermissionError"}
    assert users.cell("ada", "print('lives')") == "lives"


def test_the_agent_hears_bobs_processes_of_bobs_kernel_alone(users: Users) -> None:
    run, kernel_id = users.hub.home / "run", users.kernels["ada"]
    code = f"""
import json, socket
hook = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
hook.connect({str(run / "kernels" / kernel_id / "hook.sock")!r})
refused = hook.recv(4096)
control = socket.socket(socket.AF_UNIX)
control.connect({str(run / "agent.sock")!r})
lines = control.makefile("rw")
def ask(**fields):
    lines.write(json.dumps({{"id": 1, **fields}}) + "\\n")
    lines.flush()
    answer = json.loads(lines.readline())
    return [answer["ok"], answer.get("message", "")]
print(json.dumps([b"is of the account {UIDS["ada"]}" in refused, ask(op="release", kernel_id={kernel_id!r}),
    ask(op="activity", kernel_id={kernel_id!r}, open=0, work=0, since=None, input=None), ask(op="status"),
    ask(op="bind", kernel_id={users.kernels["bob"]!r}, pid={users.pid("ada")}, start_time_ticks=1),
    ask(op="activity", kernel_id={users.kernels["bob"]!r}, open=0, work=0, since=None, input=None)]))
"""
    refused, release, activity, status, bind, own = json.loads(users.cell("bob", code))
    bob = UIDS["bob"]
    assert refused
    assert (release[0], status[0], own[0]) == (False, False, True)
    assert f"The account {bob} may ask for" in release[1]
    assert activity == [False, f"no kernel {kernel_id} is reserved here for the account {bob}"]
    assert f"is none of the account {bob}" in bind[1]


def test_the_relay_of_a_kernel_tells_the_agent(users: Users) -> None:
    log = users.hub.home / "run" / "agent.log"
    until(lambda: f"relay {users.kernels['ada']}" in log.read_text(errors="replace"), SECONDS)


def test_a_kernel_is_interrupted_and_restarted_as_its_owner(users: Users) -> None:
    kernel_id = users.kernels["bob"]
    marker = users.hub.folder_of("bob", "working")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(users.cell, "bob", f"import time\nopen({str(marker)!r}, 'w').close()\ntime.sleep(1000)")
        until(marker.exists, SECONDS)
        users.ask("bob", f"api/kernels/{kernel_id}/interrupt", "POST")
        with pytest.raises(AssertionError, match="KeyboardInterrupt"):
            running.result(SECONDS)
    before = users.pid("bob")
    users.ask("bob", f"api/kernels/{kernel_id}/restart", "POST")
    found = json.loads(users.cell("bob", "import os, json; print(json.dumps([os.getpid(), os.getuid(), os.getcwd()]))"))
    assert found[0] != before
    assert found[1:] == [UIDS["bob"], str(users.hub.folder_of("bob"))]


def test_a_kernel_that_is_ended_leaves_no_process_and_no_folder(users: Users) -> None:
    kernel_id = users.start("bob", name="python3")
    pid = int(users.cell("bob", "import os; print(os.getpid())", kernel_id))
    users.ask("bob", f"api/kernels/{kernel_id}", "DELETE")
    until(lambda: not Path(f"/proc/{pid}").exists(), SECONDS)
    until(lambda: not (users.hub.home / "run" / "relays" / kernel_id).exists(), SECONDS)


def test_a_user_of_another_name_has_the_account_that_the_table_says(users: Users) -> None:
    token = users.hub.token_of("ada.lovelace")
    kernel_id = users.hub.gateway("api/kernels", "POST", {"name": "python3"}, token=token)["id"]
    found = run_cell(users.hub.gateway_url, token, kernel_id, "import os; print(os.getuid(), os.getcwd())").split()
    assert found == [str(UIDS["ada"]), str(users.hub.folder_of("ada"))]


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("carol", "has no such account"),
        ("door", "may not log in"),
        ("twin", "has the same number"),
        ("low", "number 101"),
        ("dockhand", "whose members can become root"),
    ],
)
def test_a_user_without_an_account_of_their_own_is_told_so(user: str, words: str, users: Users) -> None:
    token = users.hub.token_of(user)
    with pytest.raises(urllib.error.HTTPError) as caught:
        users.hub.gateway("api/kernels", "POST", {"name": "python3"}, token=token)
    assert (caught.value.code, words in caught.value.read().decode()) == (403, True)


def test_a_python_that_the_owner_may_not_run_is_said_with_what_to_do(users: Users) -> None:
    program = users.hub.folder_of("bob", "python")
    program.symlink_to("/usr/bin/env")
    spec = users.hub.folder_of(GATEWAY, ".local/share/jupyter/kernels/closed")
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps({"argv": [str(program), "{connection_file}"], "display_name": "C"}))
    for path in (spec, *spec.parents):
        if path == users.hub.folder_of(GATEWAY):
            break
        os.chown(path, UIDS[GATEWAY], UIDS[GATEWAY])
    with pytest.raises(urllib.error.HTTPError) as caught:
        users.start("ada", name="closed")
    said = caught.value.read().decode()
    assert "cannot be started as 'ada': Permission denied" in said
    assert "namei -l" in said


def prepare_lab(hub: HubOfAccounts) -> None:
    """Give the user with JupyterLab a notebook, a file beside it, and the bundle of this checkout."""
    uid, project = UIDS[WITH_LAB], MadeAccounts.make_folder(UIDS[WITH_LAB], hub.folder_of(WITH_LAB, "project"))
    (project / "data.csv").write_text("her data")
    an_empty_notebook(project, "train.ipynb", "python3", "import os; print(open('data.csv').read(), os.getuid())")
    settings = MadeAccounts.make_folder(uid, hub.folder_of(WITH_LAB, ".jupyter"))
    (settings / "jupyter_server_config.json").write_text('{"LabApp": {"expose_app_in_browser": true}}')
    place = hub.folder_of(WITH_LAB)
    for part in (".local", "share", "jupyter", "labextensions", "@jupyter-aliquot"):
        place = MadeAccounts.make_folder(uid, place / part)
    (place / "labextension").symlink_to(BUNDLE)
    for file in (*project.iterdir(), *settings.iterdir()):
        os.chown(file, uid, uid)


@pytest.mark.browser
@pytest.mark.skipif(not BROWSER.exists(), reason="Chromium is not installed: tools/setup.py test")
@pytest.mark.skipif(not Path("/etc/pam.d/login").exists(), reason="this system has no log-in by PAM")
def test_an_account_logs_in_by_its_password_and_runs_a_cell_on_the_gpu_that_the_spawn_page_gave(users: Users) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    prepare_lab(users.hub)
    with (
        api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=str(BROWSER), headless=True, args=CHROMIUM_ARGS) as browser,
    ):
        page = browser.new_page()
        page.set_default_timeout(SECONDS * 1000)
        eve = Person(page, WITH_LAB, users.hub)
        eve.log_in()
        eve.choose("0.25 GPU")
        eve.wait_for_lab().open_notebook("project/train.ipynb", "python3")
        eve.lab.finish_command("notebook:run-all-cells")
        page.locator(".jp-OutputArea-output").filter(has_text=f"her data {UIDS[WITH_LAB]}").wait_for()
        eve.lab.panel.get_by_role("list", name="GPU kernels").get_by_text("train.ipynb").wait_for()
        eve.lab.panel.get_by_text("Your GPU limit: 0.25 of 0.5 GPU held, 0.25 left").wait_for()
        eve.lab.start_command("notebook:change-kernel")
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("combobox").select_option(label="Python 3 (ipykernel)")
        dialog.get_by_role("radio", name="0.5 GPU").first.check()
        dialog.get_by_role("button", name="Select Kernel").click()
        eve.run("import os; print('larger', os.getuid(), os.getcwd())")
        want = f"larger {UIDS[WITH_LAB]} {users.hub.folder_of(WITH_LAB, 'project')}"
        page.locator(".jp-OutputArea-output").filter(has_text=want).wait_for()
        eve.lab.panel.get_by_text("Your GPU limit: 0.5 of 0.5 GPU held, 0 left").wait_for()
    users.hub.stop_server(WITH_LAB)
    token = users.hub.token_of(WITH_LAB)
    for kernel in users.hub.gateway("api/kernels", token=token):
        users.hub.gateway(f"api/kernels/{kernel['id']}", "DELETE", token=token)


def processes_of(uid: int, *words: str) -> list[int]:
    """Return the processes of an account whose commands have all these words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                is_its = f"\nUid:\t{uid}\t" in (entry / "status").read_text()
            except OSError:
                continue
            if is_its and all(word in command for word in words):
                found.append(int(entry.name))
    return found


def test_kernels_outlive_gateway_and_relay_host(users: Users) -> None:
    run = str(users.hub.home / "run")
    users.cell("ada", "kept = 'kept'")
    (gateway,) = processes_of(UIDS[GATEWAY], "\0serve\0", run)
    hosts = processes_of(0, "jupyter_aliquot.provisioner.relay", run)
    for pid in (*hosts, gateway):
        os.kill(pid, signal.SIGKILL)
    until(lambda: set(processes_of(UIDS[GATEWAY], "\0serve\0", run)) - {gateway}, SECONDS)
    until(lambda: set(processes_of(0, "jupyter_aliquot.provisioner.relay", run)) - set(hosts), SECONDS)
    users.hub.wait_for_gateway()
    assert users.cell("ada", "import os; print(kept, os.getuid())") == f"kept {UIDS['ada']}"
    kernel_id = users.start("ada", name="python3", path="project/c.ipynb")
    assert users.cell("ada", "print(open('data.csv').read())", kernel_id) == "ada's data"


def test_a_record_that_bob_forged_gives_bob_nothing_after_a_restart(users: Users) -> None:
    kernel_id = users.kernels["bob"]
    code = f"""
import json
path = {str(users.hub.home / "run" / "relays" / kernel_id / "relay.json")!r}
fields = json.load(open(path))
facts = fields["facts"]
assert facts["owner"] == "bob" and facts["grant"]["hundredths"] == 25
facts["teams"], facts["owner"], facts["label"] = ["staff"], "ada", "forged"
facts["grant"]["hundredths"] = facts["grant"]["devices"][0]["hundredths"] = 1
fields["front"]["ip"] = "/tmp/elsewhere"
json.dump(fields, open(path, "w"))
kept = "kept"
"""
    users.cell("bob", code)
    run = str(users.hub.home / "run")
    (gateway,) = processes_of(UIDS[GATEWAY], "\0serve\0", run)
    os.kill(gateway, signal.SIGKILL)
    until(lambda: set(processes_of(UIDS[GATEWAY], "\0serve\0", run)) - {gateway}, SECONDS)
    users.hub.wait_for_gateway()
    assert users.cell("bob", "print(kept)") == "kept"
    (found,) = users.hub.gateway("aliquot/api/v1/status", token=users.tokens["bob"])["kernels"]
    assert (found["id"], found["owner"], found["gpus"]) == (kernel_id, "bob", 0.25)
    assert found["label"] != "forged"
    with pytest.raises(urllib.error.HTTPError) as caught:
        users.start("bob", name="python3.gpu-0.5")
    assert "may have 0.5" in caught.value.read().decode()
