"""The accounts of kernels' owners: their names, their environment, and whose record a relay's is."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.kernels.owner_accounts import OwnerAccounts, requested_folder
from jupyter_aliquot.provisioner.errors import AccountError

_NUMBERS = {"ada": 3001, "bob": 3002}


@pytest.fixture(autouse=True)
def accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pytest asks for this account's name
    def entry(name: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", _NUMBERS[name], _NUMBERS[name], "", f"/home/{name}", "/bin/zsh"))

    monkeypatch.setattr(pwd, "getpwnam", entry)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry(next(n for n in _NUMBERS if _NUMBERS[n] == uid)))


def test_a_user_has_the_account_of_the_same_name_or_the_one_in_the_table() -> None:
    accounts = OwnerAccounts({"ada@example.org": "ada"})
    assert [accounts.of(name).name for name in ("bob", "ada@example.org")] == ["bob", "ada"]
    assert accounts.uid_of("ada@example.org") == 3001
    with pytest.raises(AccountError, match="'carol', but this machine has no such account"):
        accounts.of("carol")
    assert accounts.uid_of("carol") is None


def test_a_function_names_the_account_and_one_that_names_none_is_refused() -> None:
    assert OwnerAccounts(lambda user: user.partition("@")[0]).of("ada@example.org").name == "ada"
    with pytest.raises(AccountError, match="returned None"):
        OwnerAccounts(lambda user: None).of("ada")  # type: ignore[arg-type,return-value]


def test_a_start_has_the_accounts_environment_and_the_notebooks_folder() -> None:
    env = {"LANG": "de_DE.UTF-8", "LC_ALL": "C", "SECRET": "x", "HOME": "/home/aliquot", "JPY_SESSION_NAME": "a.ipynb"}
    found = OwnerAccounts({}).start_arguments(
        "ada", "/opt/env/bin/python", env, {"KERNEL_WORKING_DIR": "/home/ada/project"}
    )
    assert (found["account"], found["cwd"]) == ("ada", "/home/ada/project")
    path = found["env"].pop("PATH")
    assert path.split(os.pathsep)[0] == "/opt/env/bin"
    assert found["env"] == {
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "JPY_SESSION_NAME": "a.ipynb",
        "HOME": "/home/ada",
        "USER": "ada",
        "LOGNAME": "ada",
        "SHELL": "/bin/zsh",
    }


@pytest.mark.parametrize("error", [KeyError("3001"), PermissionError("the list is away")], ids=repr)
def test_an_account_whose_number_cannot_be_looked_up_is_refused(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(uid: int) -> pwd.struct_passwd:
        raise error

    monkeypatch.setattr(pwd, "getpwuid", fail)
    with pytest.raises(AccountError, match="finds no account by its number 3001"):
        OwnerAccounts({}).of("ada")


@pytest.mark.parametrize("folder", ["", "project", "/home/\0"])
def test_a_folder_that_is_no_path_is_the_home(folder: str) -> None:
    arguments = OwnerAccounts({}).start_arguments("ada", "python", {}, {"KERNEL_WORKING_DIR": folder})
    assert arguments["cwd"] == "/home/ada"


def test_of_a_request_the_folder_alone_is_kept() -> None:
    assert requested_folder({"KERNEL_WORKING_DIR": "/a", "LD_PRELOAD": "x"}) == {"KERNEL_WORKING_DIR": "/a"}
    assert requested_folder({"LD_PRELOAD": "x"}) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another account")
def test_a_folder_is_of_its_account_alone(tmp_path: Path) -> None:
    os.chown(tmp_path, 3001, 3001)
    accounts = OwnerAccounts({})
    assert [accounts.has_folder(name, tmp_path) for name in ("ada", "bob")] == [True, False]
    with pytest.raises(AccountError, match="no such account"):
        accounts.has_folder("carol", tmp_path)
    assert not accounts.has_folder("ada", tmp_path / "gone")
