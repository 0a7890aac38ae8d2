"""Kernelspecs in a home, as a relay host of root has them listed: by a child that is the account."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from made_accounts import UIDS
from owners_house import an_owners_house

from jupyter_aliquot.provisioner.errors import RelayRefusedError
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.host.own_kernelspecs import (
    FOLDER,
    LONGEST_SPEC,
    MOST_SPECS,
    folders_in,
    list_kernelspecs,
)

SPEC = {"argv": ["/bin/python", "{resource_dir}/run", "{connection_file}"], "display_name": "A", "language": "python"}


def write(home: Path, name: str, text: str | None = None, **fields: Any) -> Path:
    folder = home / FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(json.dumps({**SPEC, **fields}) if text is None else text)
    return folder


def test_a_home_without_kernelspecs_has_none(tmp_path: Path) -> None:
    found = list_kernelspecs(tmp_path, "")
    assert (found["specs"], found["problems"], found["left_out"]) == ({}, {}, 0)


def test_a_gateway_is_told_what_runs_and_no_other_metadata(tmp_path: Path) -> None:
    folder = write(tmp_path, "Env", metadata={"debugger": True, "kernel_provisioner": {}}, other=1, env={"A": "b"})
    assert list_kernelspecs(tmp_path, "")["specs"] == {
        "env": {
            **SPEC,
            "argv": ["/bin/python", f"{folder}/run", "{connection_file}"],
            "env": {"A": "b"},
            "debugger": True,
        }
    }


def test_files_are_read_again_only_when_one_has_changed(tmp_path: Path) -> None:
    write(tmp_path, "a")
    mark = list_kernelspecs(tmp_path, "")["mark"]
    assert list_kernelspecs(tmp_path, mark) == {"mark": mark}
    write(tmp_path, "a", display_name="longer")
    changed = list_kernelspecs(tmp_path, mark)
    assert changed["specs"]["a"]["display_name"] == "longer"
    write(tmp_path, "b")
    assert set(list_kernelspecs(tmp_path, changed["mark"])["specs"]) == {"a", "b"}


def test_kernelspecs_are_looked_for_in_each_folder_and_the_first_of_a_name_counts(tmp_path: Path) -> None:
    """Folders of JUPYTER_DATA_DIR and JUPYTER_PATH, which an administrator names."""
    home, shared = tmp_path / "home", tmp_path / "data" / "ada"
    write(home, "a", display_name="of the home")
    for name in ("a", "b"):
        (shared / name).mkdir(parents=True)
        (shared / name / "kernel.json").write_text(json.dumps({**SPEC, "display_name": "shared"}))
    folders = folders_in([str(FOLDER), f"{tmp_path}/data/{{account}}", "no-such", 7, "nul\0"], "ada")
    assert folders == (FOLDER, shared, Path("no-such"))
    found = list_kernelspecs(home, "", folders)
    assert {name: spec["display_name"] for name, spec in found["specs"].items()} == {"a": "of the home", "b": "shared"}
    assert list_kernelspecs(home, found["mark"], folders) == {"mark": found["mark"]}
    assert list_kernelspecs(home, found["mark"], folders[1:])["specs"]["a"]["display_name"] == "shared"
    assert folders_in(None, "ada") == folders_in([], "ada") == (FOLDER,)


def test_what_is_no_kernelspec_is_told_and_hides_no_other(tmp_path: Path) -> None:
    write(tmp_path, "good")
    for name, text in {"cut": '{"argv": [', "list": "[]", "deep": "[" * 50_000, "latin": "\udce9"}.items():
        (write(tmp_path, name) / "kernel.json").write_bytes(text.encode(errors="surrogateescape"))
    write(tmp_path, "huge", "x" * (LONGEST_SPEC + 1))
    (write(tmp_path, "pipe") / "kernel.json").unlink()
    os.mkfifo(tmp_path / FOLDER / "pipe" / "kernel.json")
    (tmp_path / FOLDER / "loop").symlink_to("loop")
    (tmp_path / FOLDER / "a-file").write_text("x")
    found = list_kernelspecs(tmp_path, "")
    assert set(found["specs"]) == {"good"}
    assert set(found["problems"]) == {"cut", "list", "deep", "latin", "huge", "pipe"}
    assert found["problems"]["list"] == f"{tmp_path / FOLDER}/list/kernel.json: it is no JSON object"
    assert "more than 64 KiB" in found["problems"]["huge"]


def test_names_that_no_kernel_can_have_are_left_alone(tmp_path: Path) -> None:
    for name in ("a b", "ü", "a\nb", "x" * 101, "a$b"):
        write(tmp_path, name)
    os.mkdir(os.fsencode(tmp_path / FOLDER) + b"/\xff")
    found = list_kernelspecs(tmp_path, "")
    assert (found["specs"], found["problems"]) == ({}, {})


def test_of_a_thousand_the_first_are_listed_and_the_others_counted(tmp_path: Path) -> None:
    for number in range(1000):
        write(tmp_path, f"env-{number:04}")
    found = list_kernelspecs(tmp_path, "")
    assert list(found["specs"]) == [f"env-{number:04}" for number in range(MOST_SPECS)]
    assert found["left_out"] == 1000 - MOST_SPECS


def test_an_answer_is_short_whatever_the_files_have(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path, f"env-{number:02}", env={"LONG": "x" * 30_000})
    found = list_kernelspecs(tmp_path, "")
    assert len(json.dumps(found)) < 100_000
    assert (len(found["specs"]), found["left_out"]) == (3, 17)


def test_a_host_of_root_lists_as_the_account_for_the_gateway_alone() -> None:
    with an_owners_house() as house:
        home = house.accounts.homes / "ada"
        write(home, "env")
        for path in (home / FOLDER / "env", *(home / FOLDER / "env").parents):
            if path == home:
                break
            os.chown(path, UIDS["ada"], UIDS["ada"])
            path.chmod(0o700)
        secret = house.accounts.homes / "bob" / "secret.json"
        secret.write_text(json.dumps(SPEC))
        secret.chmod(0o600)
        stolen = write(home, "stolen") / "kernel.json"
        stolen.unlink()
        stolen.symlink_to(secret)

        async def scene() -> None:
            await house.start()
            found = await client.list_kernelspecs(house.runtime, "ada")
            assert set(found["specs"]) == {"env"}, "root could have read bob's file"
            assert set(await client.list_kernelspecs(house.runtime, "ada", found["mark"])) == {"op", "mark"}
            elsewhere = await client.list_kernelspecs(house.runtime, "ada", folders=[str(house.accounts.homes / "bob")])
            assert elsewhere["specs"] == {}, "it looks as ada, who may not"
            for name, words in (("root", "number 0"), ("no-such", "no such account"), ("", "host of root alone")):
                with pytest.raises(RelayRefusedError, match=words):
                    await client.list_kernelspecs(house.runtime, name)

        asyncio.run(scene())
