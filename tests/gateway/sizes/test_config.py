"""Settings of the gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Application, Config

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gateway.extension import AliquotExtension
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.gateway.serverapp.config_warnings import refuse_unknown
from jupyter_aliquot.provisioner.resources import GpuShare

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from reference.configuration_page import CLASSES


@pytest.mark.parametrize(
    ("knob", "value", "want"),
    [
        ("presets", ["0.333"], "more than two decimals"),
        ("presets", ["9"], "more than the 8 GPUs"),
        ("normal_priority_for", ["@"], "teams as @team"),
        ("normal_priority_for", [""], "names of users"),
        ("largest_gpus", 0.0, "from 0.01"),
        ("largest_gpus", 0.001, "steps of 0.01"),
        ("user_limit_gpus", -1.0, "from 0"),
        ("user_limit_gpus", float("nan"), "from 0"),
        ("user_limits", {"alice": "1"}, "a number of GPUs from 0 to 9999 in steps of 0.01 for 'alice'"),
        ("user_limits", {"": 1.0}, "such as {'alice': 1.0}"),
        ("team_limits", {"vision": None}, "a number of GPUs from 0 to 9999 in steps of 0.01 for 'vision'"),
        ("team_limits", {"vision": 0.001}, "steps of 0.01"),
        ("driver", "amd", "one of auto, nvidia, softgpu"),
        ("account_of", {"alice": 7}, "a table of accounts"),
        ("account_of", {"alice": ""}, "a table of accounts"),
        ("runtime_dir", "here", "an absolute path"),
        ("runtime_dir", "/" + "x" * 60, "at most 50 bytes"),
        ("softgpu_memory", "lots", "such as 4GiB"),
        ("softgpu_memory", "1k", "16MiB or more"),
        ("softgpu_devices", -1, "0 or more"),
        ("softgpu_link_gbps", float("inf"), "0 or more"),
        ("agent_wait_seconds", -1.0, "0 or more"),
        ("status_refresh_seconds", 0.0, "above 0"),
    ],
)
def test_a_wrong_value_is_refused_by_the_knobs_name(knob: str, value: Any, want: str) -> None:
    with pytest.raises(TraitError) as caught:
        Aliquot(config=Config({"Aliquot": {knob: value}}))
    assert f"c.Aliquot.{knob}" in str(caught.value)
    assert want in str(caught.value)


def test_presets_are_read_once_each() -> None:
    settings = Aliquot(config=Config({"Aliquot": {"presets": ["0.5", "0.50", "1"]}}))
    assert [request.gpus for request in settings.preset_requests()] == [GpuShare(50), GpuShare(100)]


def test_a_larger_largest_allows_larger_presets() -> None:
    settings = Aliquot(config=Config({"Aliquot": {"presets": ["16"], "largest_gpus": 16.0}}))
    assert settings.largest() == GpuShare(1600)


def test_no_limit_is_none() -> None:
    assert Aliquot().gpu_caps() == GpuCaps()
    assert Aliquot(user_limit_gpus=1.5).gpu_caps().of_user("anybody") == GpuShare(150)


def test_a_users_own_limit_comes_before_everybodys() -> None:
    caps = Aliquot(user_limit_gpus=1.5, user_limits={"ada": 2, "bob": None, "eve": 0}).gpu_caps()
    assert [caps.of_user(name) for name in ("ada", "bob", "eve")] == [GpuShare(200), None, GpuShare(0)]
    assert Aliquot(team_limits={"vision": 0.5}).gpu_caps().teams == {"vision": GpuShare(50)}


def test_every_knob_has_a_help_line() -> None:
    for cls in CLASSES:
        silent = [name for name, trait in cls.class_own_traits(config=True).items() if not trait.help]
        assert not silent


def test_who_may_have_production_is_told_by_names_or_a_function_and_on_the_command_line() -> None:
    class Server(Application):
        classes = [Aliquot]

    server = Server()
    server.initialize(["--Aliquot.normal_priority_for=alice", "--Aliquot.normal_priority_for=@serving"])
    assert Aliquot(parent=server).normal_priority_for == ["alice", "@serving"]
    policy = Aliquot(
        config=Config({"Aliquot": {"normal_priority_for": lambda user: user.name == "bob"}})
    ).class_policy()
    assert [policy.may_have_normal_priority(User(name, "admin")) for name in ("alice", "bob")] == [False, True]
    with pytest.raises(TraitError, match="normal_priority_for"):
        Aliquot(config=Config({"Aliquot": {"normal_priority_for": 5}}))


def test_a_gateway_refuses_a_setting_that_does_not_exist_and_names_the_likely_one() -> None:
    refuse_unknown(Config({"Aliquot": {"driver": "softgpu"}, "Other": {"drivr": 1}}), CLASSES)
    with pytest.raises(TraitError, match=r"c\.Aliquot\.drivr: there is no such setting\. Did you mean driver\?"):
        refuse_unknown(Config({"Aliquot": {"drivr": "softgpu"}}), CLASSES)


def test_a_setting_that_a_class_takes_under_the_name_of_another_is_none_that_does_not_exist() -> None:
    refuse_unknown(Config({"AliquotIdentityProvider": {"recheck_seconds": 5.0}}), CLASSES)
    refuse_unknown(Config({"Aliquot": {"Limits": {"kernels_per_user": 1}}}), CLASSES)
    with pytest.raises(TraitError, match=r"c\.AliquotIdentityProvider\.recheck_seconds"):
        refuse_unknown(Config({"AliquotIdentityProvider": {"recheck_seconds": 5.0}}), AliquotExtension.classes)
