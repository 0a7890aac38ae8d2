"""The choice of a size on the spawn page, as values and as the Hub calls it.

Also next to an administrator's own form.
"""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
from jupyterhub.spawner import Spawner
from tornado.web import HTTPError
from traitlets.config import Config

from jupyter_aliquot.gateway.hub import configure
from jupyter_aliquot.gateway.hub.options_form import CUSTOM_PATTERN, read_form, size_form
from jupyter_aliquot.gateway.hub.settings import HubSettings
from jupyter_aliquot.gateway.hub.size_choice import SizeChoice, SizeChoiceError

CAPS = HubSettings(user_limits={"alice": 0.5, "carol": 0}, team_limits={"speech": 0.25})


def a_spawner(c: Config, name: str = "alice", teams: tuple[str, ...] = (), cls: type = Spawner) -> Any:
    """A spawner as the Hub makes one, but without its user and its database."""
    spawner = cls(config=c)
    spawner.user = SimpleNamespace(name=name, groups=[SimpleNamespace(name=team) for team in teams])
    spawner.hub = SimpleNamespace(base_url="/hub/")
    return spawner


def configured(before: str = "", **settings: Any) -> Config:
    c = Config()
    exec(before, {"c": c})
    configure(c, **settings)
    return c


def choice_of(settings: HubSettings) -> SizeChoice:
    return settings.choice()


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        ("0.25", "0.25"),
        (" 0.50 ", "0.5"),
        ("0.5-8G-LOW", "0.5-8g-low"),
        ("none", "none"),
        (None, "none"),
        ("", "none"),
        ("0.33", "0.33"),
    ],
)
def test_a_size_is_kept_in_its_normal_form(asked: Any, want: str) -> None:
    assert choice_of(HubSettings()).check(asked, "alice", []) == want


@pytest.mark.parametrize(
    ("asked", "name", "teams", "message"),
    [
        ("0.6", "alice", [], "alice may have 0.5"),
        ("0.01", "carol", [], "carol may have 0"),
        ("0.26", "bob", ["speech", "vision"], "the team speech may have 0.25 together"),
        ("9", "bob", [], "more than the 8 GPUs"),
        ("0", "bob", [], "nothing to run on"),
        ("all", "bob", [], "no number of GPUs"),
        (["0.25"], "bob", [], "Use one such as 0.25"),
        ("1" * 41, "bob", [], "Use one such as 0.25"),
    ],
)
def test_a_size_beyond_grammar_or_caps_is_refused(asked: Any, name: str, teams: list[str], message: str) -> None:
    with pytest.raises(SizeChoiceError, match=re.escape(message)):
        choice_of(CAPS).check(asked, name, teams)


def test_only_listed_sizes_count_where_there_is_no_field_for_others() -> None:
    choice = choice_of(HubSettings(custom_sizes=False))
    assert choice.check("0.25", "alice", []) == "0.25"
    for asked in ("0.3", "lots", ["0.25"]):
        with pytest.raises(SizeChoiceError, match="Use one of none, "):
            choice.check(asked, "alice", [])


def test_a_default_that_the_user_may_not_have_is_no_gpu() -> None:
    choice = choice_of(HubSettings(default_size="1", user_limits={"alice": 0.5}))
    assert (choice.default_for("alice", []), choice.default_for("bob", [])) == ("none", "1")


def test_the_form_names_each_control_and_marks_the_choice() -> None:
    page = size_form(["none", "0.25"], "0.3", "0.5", has_custom=True)
    inputs = re.findall(r'<input [^>]*id="([^"]*)"', page)
    assert re.findall(r'<label [^>]*for="([^"]*)"', page) == inputs
    assert (page.count(" checked"), 'id="aliquot-gpu-0.3" value="0.3" checked' in page) == (1, True)
    assert "<script" not in page
    assert "{" not in page, "KubeSpawner's pages are templates"
    described = re.findall(r'aria-describedby="([^"]*)"', page)
    assert all(f'id="{name}"' in page for name in described)


def test_the_field_for_another_size_begins_empty_and_says_that_it_counts() -> None:
    """A user has typed its text on this page, so it can come before the marked size."""
    page = size_form(["none", "0.25"], "0.3", "0.5", has_custom=True)
    (field,) = re.findall(r'<input [^>]*name="gpu-custom"[^>]*>', page)
    assert " value=" not in field
    assert "A size entered here replaces the selection above" in page
    assert "gpu-custom" not in size_form(["none", "0.25"], "0.25", "0.5", has_custom=False)


def test_the_fields_pattern_takes_the_grammars_sizes() -> None:
    pattern = re.compile(CUSTOM_PATTERN)
    assert all(pattern.fullmatch(size) for size in ("0.25", "2.5", "8", "0.5-8g", "0.25-low", "0.5-16G-LOW"))
    assert not any(pattern.fullmatch(size) for size in ("", "-1", "0.333", "0.5-low-8g", "none", "1g"))


@pytest.mark.parametrize(
    ("form", "want"),
    [
        ({"gpu": ["0.25"], "gpu-custom": ["3"]}, "3"),
        ({"gpu": ["0.25"], "gpu-custom": [" \t\u00a0"]}, "0.25"),
        ({"gpu-custom": [" 0.3 "]}, "0.3"),
        ({"gpu": ["0.25"]}, "0.25"),
        ({"gpu": [""], "gpu-custom": [""]}, ""),
        ({}, None),
    ],
)
def test_a_written_size_counts_before_the_marked_one(form: dict[str, list[str]], want: str | None) -> None:
    assert read_form(form) == want


BAD = [
    "0.3\0",
    "\0",
    "<b>0.3</b>",
    "0.3" * 2000,
    "\u0660.\u0663",
    "\uff10.\uff13",
    "0,3",
    "0.3 g",
    "\ufffd",
    "{user.name}",
    "%s",
]


@pytest.mark.parametrize("field", ["gpu", "gpu-custom"])
@pytest.mark.parametrize("bad", BAD)
def test_a_form_with_anything_else_in_a_field_is_refused_in_a_line(field: str, bad: str) -> None:
    spawner = a_spawner(configured())
    with pytest.raises(HTTPError) as caught:
        asyncio.run(spawner._run_apply_user_options(spawner.run_options_from_form({"gpu": ["0.25"], field: [bad]})))
    said = caught.value.jupyterhub_message
    assert (caught.value.status_code, said.isprintable(), len(said) < 300) == (400, True, True)


@pytest.mark.parametrize("field", ["gpu", "gpu-custom"])
def test_a_field_that_comes_twice_is_refused_with_both(field: str) -> None:
    spawner = a_spawner(configured())
    with pytest.raises(HTTPError) as caught:
        spawner.run_options_from_form({field: ["0.25", "0.5" * 1000]})
    said = caught.value.jupyterhub_message
    assert caught.value.status_code == 400
    assert f"Requested 2 GPU sizes in the field '{field}' ('0.25', '0.5" in said
    assert len(said) < 300


@pytest.mark.parametrize("options", [["0.25"], "0.25", 0.25, {"gpu": {"gpus": 1}}, {"gpu": ["0.25"]}, {"gpu": True}])
def test_options_of_the_api_that_are_no_table_of_texts_are_refused(options: Any) -> None:
    with pytest.raises(HTTPError) as caught:
        asyncio.run(a_spawner(configured())._run_apply_user_options(options))
    assert caught.value.status_code == 400


def test_the_chosen_size_reaches_the_server_and_a_second_start_chooses_anew() -> None:
    c = configured()
    spawner = a_spawner(c)
    asyncio.run(spawner._run_apply_user_options({"gpu": "0.50"}))
    assert spawner.environment["KERNEL_GPU"] == "0.5"
    asyncio.run(spawner._run_apply_user_options({}))
    assert spawner.environment["KERNEL_GPU"] == "none"
    with pytest.raises(HTTPError) as caught:
        asyncio.run(spawner._run_apply_user_options({"gpu": "80%s"}))
    assert (caught.value.status_code, "80%s" in caught.value.jupyterhub_message) == (400, True)


def test_a_configuration_that_takes_the_gateway_away_again_is_told() -> None:
    c = configured()
    c.Spawner.environment = {"LANG": "C"}
    with pytest.raises(HTTPError, match=re.escape("call configure() last")):
        asyncio.run(a_spawner(c)._run_apply_user_options({}))


def test_without_a_choice_no_size_is_sent() -> None:
    spawner = a_spawner(configured(sizes=()))
    asyncio.run(spawner._run_apply_user_options({"gpu": "0.5"}))
    assert "KERNEL_GPU" not in spawner.environment
    assert asyncio.run(spawner.get_options_form()) == ""


THEIR_OWN = """
c.Spawner.options_form = "<input name='image'>"
c.Spawner.options_from_form = lambda form: {"image": form["image"][0].upper()}
async def apply(spawner, options):
    spawner.environment = {**spawner.environment, "IMAGE": options["image"], "SEEN": ",".join(options)}
c.Spawner.apply_user_options = apply
"""


def test_an_administrators_own_form_and_hook_go_on() -> None:
    spawner = a_spawner(configured(THEIR_OWN))
    page = asyncio.run(spawner.get_options_form())
    assert page.startswith("<input name='image'><fieldset")
    options = spawner.run_options_from_form({"image": ["torch"], "gpu": ["0.25"], "gpu-custom": [""]})
    assert options == {"image": "TORCH", "gpu": "0.25"}
    asyncio.run(spawner._run_apply_user_options(options))
    assert (spawner.environment["IMAGE"], spawner.environment["KERNEL_GPU"]) == ("TORCH", "0.25")
    assert spawner.environment["SEEN"] == "image", "theirs is given its own options"


def test_a_table_of_options_and_the_simple_reading_of_forms_go_on() -> None:
    before = 'c.Spawner.apply_user_options = {"dir": "notebook_dir"}\nc.Spawner.options_from_form = "simple"'
    spawner = a_spawner(configured(before))
    options = spawner.run_options_from_form({"dir": ["/data"], "gpu": ["0.25"]})
    assert options == {"dir": "/data", "gpu": "0.25"}
    for _ in range(2):
        asyncio.run(spawner._run_apply_user_options(options))
        assert (spawner.notebook_dir, spawner.environment["KERNEL_GPU"]) == ("/data", "0.25")


def test_a_query_is_read_without_a_spawner() -> None:
    spawner = a_spawner(configured())
    assert spawner.options_from_query({"gpu": ["0.5"], "other": ["1"]}) == {"gpu": "0.5", "other": ["1"]}


def test_the_form_shows_what_was_chosen_last_if_it_still_may_be() -> None:
    c = configured(user_limits={"alice": 0.5})
    spawner = a_spawner(c)
    spawner.user_options = {"gpu": "0.25"}
    assert 'value="0.25" checked' in asyncio.run(spawner.get_options_form())
    spawner.user_options = {"gpu": "1"}
    page = asyncio.run(spawner.get_options_form())
    assert 'value="none" checked' in page
    assert 'value="1"' not in page
