"""A user's own environments on a Hub of accounts: kernelspecs in a home, for that user alone, with GPU sizes."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_accounts import AccountUsers, HubOfAccounts, accounts_problem
from hub_process import until
from made_accounts import UIDS

SECONDS = 120.0
PYTHON = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
_FOLDER = ".local/share/jupyter/kernels"


def write_spec(hub: HubOfAccounts, user: str, name: str, **fields: Any) -> Path:
    """Write a kernelspec into a user's home, as the user's."""
    text = json.dumps({"argv": PYTHON, "display_name": name, "language": "python", **fields})
    return write_text(hub, user, name, text)


def write_text(hub: HubOfAccounts, user: str, name: str, text: str) -> Path:
    folder = hub.folder_of(user, _FOLDER, name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(text)
    for path in (folder / "kernel.json", folder, *folder.parents):
        if path == hub.folder_of(user):
            break
        os.chown(path, UIDS[user], UIDS[user])
    return folder


@pytest.fixture(scope="module")
def users() -> Iterator[AccountUsers]:
    if problem := accounts_problem():
        pytest.skip(problem)
    with HubOfAccounts() as hub:
        write_spec(hub, "ada", "ada-env", env={"OF_SPEC": "${HOME}", "STOLEN": "${JUPYTERHUB_API_TOKEN}"})
        yield AccountUsers(hub, "ada", "bob")


def listed(users: AccountUsers, user: str) -> dict[str, Any]:
    found: dict[str, Any] = users.ask(user, "api/kernelspecs")["kernelspecs"]
    return found


def refused(users: AccountUsers, user: str, name: str) -> str:
    with pytest.raises(urllib.error.HTTPError) as caught:
        users.start(user, name=name)
    return caught.value.read().decode()


def test_a_kernelspec_in_a_home_is_offered_to_its_user_alone_with_sizes(users: AccountUsers) -> None:
    want = {"ada-env", "ada-env.gpu-0.25", "ada-env.gpu-0.5", "ada-env.gpu-1", "ada-env.gpu-0.25-low"}
    found = listed(users, "ada")
    assert {name for name in found if "ada-env" in name} == want, "and no second one without GPU, as local.ada-env"
    assert "local.python3" in found, "what runs on the server itself stays listed"
    assert not [name for name in listed(users, "bob") if "ada" in name]
    sizes = {one["name"] for one in users.ask("ada", "aliquot/api/v1/sizes")["sizes"]}
    assert want - {"ada-env"} <= sizes


def test_a_kernel_of_it_is_its_owners_with_its_environment_and_its_share(users: AccountUsers) -> None:
    kernel_id = users.start("ada", name="ada-env.gpu-0.25")
    code = "import os, json; print(json.dumps([os.getuid(), os.environ['OF_SPEC'], os.environ['STOLEN']]))"
    found = json.loads(users.cell("ada", code, kernel_id))
    assert found == [UIDS["ada"], str(users.hub.folder_of("ada")), "${JUPYTERHUB_API_TOKEN}"]
    (kernel,) = users.ask("ada", "aliquot/api/v1/status")["kernels"]
    assert (kernel["id"], kernel["gpus"]) == (kernel_id, 0.25)
    users.ask("ada", f"api/kernels/{kernel_id}/restart", "POST")
    assert users.cell("ada", "import os; print(os.environ['OF_SPEC'])", kernel_id) == found[1]
    users.ask("ada", f"api/kernels/{kernel_id}", "DELETE")


def test_the_name_of_the_second_one_is_answered_with_the_one_that_has_sizes(users: AccountUsers) -> None:
    listed(users, "ada")
    assert "Choose ada-env.gpu-0.25, the same kernelspec with a size" in refused(users, "ada", "local.ada-env.gpu-0.25")


def test_another_user_has_no_kernel_of_it(users: AccountUsers) -> None:
    assert "no kernelspec named 'ada-env' is installed" in refused(users, "bob", "ada-env.gpu-0.25")
    with pytest.raises(urllib.error.HTTPError) as caught:
        users.hub.gateway("api/kernelspecs/ada-env", token=users.tokens["bob"])
    assert caught.value.code == 404


def test_a_kernelspec_that_changes_or_goes_is_seen_at_the_next_look(users: AccountUsers) -> None:
    folder = write_spec(users.hub, "bob", "changing", display_name="one")
    assert listed(users, "bob")["changing.gpu-0.5"]["spec"]["display_name"] == "one · 0.5 GPU"
    write_spec(users.hub, "bob", "changing", display_name="another")
    assert listed(users, "bob")["changing"]["spec"]["display_name"] == "another"
    (folder / "kernel.json").unlink()
    folder.rmdir()
    assert "changing" not in listed(users, "bob")
    assert "no kernelspec named 'changing'" in refused(users, "bob", "changing.gpu-0.25")


def test_a_file_that_is_no_json_hides_no_other_and_its_request_says_where_it_is(users: AccountUsers) -> None:
    folder = write_text(users.hub, "ada", "broken", '{"argv": [')
    found = listed(users, "ada")
    assert "ada-env.gpu-0.25" in found
    assert "broken.gpu-0.25" not in found
    for name in ("broken", "broken.gpu-0.25"):
        said = refused(users, "ada", name)
        assert f"{folder}/kernel.json: Expecting value" in said
        assert "Correct it, or remove the folder" in said


def test_a_kernelspec_of_a_user_starts_nothing_as_the_gateway(users: AccountUsers) -> None:
    stanza = {"kernel_provisioner": {"provisioner_name": "local-provisioner"}, "aliquot": {"image": "x"}}
    write_spec(users.hub, "bob", "taking", metadata=stanza)
    kernel_id = users.start("bob", name="taking")
    assert users.cell("bob", "import os; print(os.getuid())", kernel_id) == str(UIDS["bob"])
    users.ask("bob", f"api/kernels/{kernel_id}", "DELETE")


def test_a_python_that_the_owner_may_not_run_is_said_with_what_to_do(users: AccountUsers) -> None:
    program = users.hub.folder_of("bob", "python")
    program.symlink_to("/usr/bin/env")
    write_spec(users.hub, "ada", "bobs", argv=[str(program), "-m", "ipykernel_launcher", "-f", "{connection_file}"])
    said = refused(users, "ada", "bobs")
    assert "cannot be started as 'ada': Permission denied" in said
    assert "namei -l" in said


def test_an_environment_without_ipykernel_is_said(users: AccountUsers) -> None:
    argv = [sys.executable, "-S", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    write_spec(users.hub, "ada", "bare", argv=argv)
    kernel_id = users.start("ada", name="bare")
    said = until(lambda: users.crash_of("ada", kernel_id), SECONDS)["message"]
    users.ask("ada", f"api/kernels/{kernel_id}", "DELETE")
    assert "No module named ipykernel_launcher" in said
    assert f"{sys.executable} -m pip install ipykernel" in said
