from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.provisioner.launch_spec import LaunchSettings, LaunchSpec, launch_spec
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

SHIM = "/opt/aliquot/native/shim"
COMMAND = ["python", "-m", "ipykernel_launcher", "-f", "connection.json"]


def a_grant(**env: str) -> Grant:
    return Grant(
        kernel_id="k1",
        owner="ada",
        request=Request(GpuShare(25)),
        node="n",
        quotas=(Quota("GPU-0", 0, GpuShare(25), Bytes(1 << 30)),),
        kernel_dir="/run/aliquot/kernels/k1",
        env=tuple({"LD_LIBRARY_PATH_PREPEND": SHIM, "CUDA_VISIBLE_DEVICES": "GPU-0", **env}.items()),
    )


def a_spec(env: dict[str, str], grant: Grant | None = None, program: str | None = None, **rest: Any) -> LaunchSpec:
    return launch_spec("k1", COMMAND, env, grant, LaunchSettings(program), **rest)


def test_a_launch_without_a_grant_is_the_kernelspec_own() -> None:
    spec = a_spec({"PATH": "/bin"}, program="/opt/start", cwd="/home")
    want_env = (("ALIQUOT_KERNEL_ID", "k1"), ("PATH", "/bin"))
    want_spec = LaunchSpec("k1", tuple(COMMAND), want_env, "/home", program="python")
    assert spec == want_spec


def test_the_start_program_comes_first_when_it_is_there() -> None:
    assert a_spec({}, a_grant(), "/opt/start").argv == ("/opt/start", *COMMAND)
    assert a_spec({}, a_grant(), None).argv == tuple(COMMAND)


@pytest.mark.parametrize(
    ("before", "want_path"),
    [
        ({}, SHIM),
        ({"LD_LIBRARY_PATH": ""}, SHIM),
        ({"LD_LIBRARY_PATH": "/a:/b"}, f"{SHIM}:/a:/b"),
        ({"LD_LIBRARY_PATH": f"/a:{SHIM}:/b"}, f"{SHIM}:/a:/b"),
    ],
)
def test_the_shim_folder_is_first_and_once(before: dict[str, str], want_path: str) -> None:
    env = dict(a_spec(before, a_grant()).env)
    assert env["LD_LIBRARY_PATH"] == want_path
    assert "LD_LIBRARY_PATH_PREPEND" not in env


def test_a_users_own_audit_libraries_stay_behind_the_redirector() -> None:
    grant = a_grant(LD_AUDIT_PREPEND="/shim/audit.so")
    assert dict(a_spec({"LD_AUDIT": "/own.so"}, grant).env)["LD_AUDIT"] == "/shim/audit.so:/own.so"


def test_a_users_own_choice_of_devices_does_not_win() -> None:
    env = dict(a_spec({"CUDA_VISIBLE_DEVICES": "7"}, a_grant()).env)
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-0"


def test_a_kernel_within_a_kernel_gets_its_own_folder() -> None:
    env = dict(a_spec({"ALIQUOT_KERNEL_DIR": "/outer"}, a_grant(ALIQUOT_KERNEL_DIR="/inner")).env)
    assert env["ALIQUOT_KERNEL_DIR"] == "/inner"


def test_the_callers_environment_is_left_alone() -> None:
    before = {"A": "1"}
    a_spec(before, a_grant())
    assert before == {"A": "1"}
