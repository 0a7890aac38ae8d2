"""Several gateways behind one Hub: what `configure` adds for each, and how one is chosen."""

from __future__ import annotations

import asyncio
import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
from jupyterhub.spawner import Spawner
from tornado.web import HTTPError
from traitlets.config import Config

from jupyter_aliquot.gateway.hub import HubConfigError, availability, configure, tokens
from jupyter_aliquot.gateway.hub.availability import DOWN, OTHER, REFUSES, Availability
from jupyter_aliquot.gateway.hub.gateways import Gateway, Gateways
from jupyter_aliquot.gateway.hub.scopes import ADMIN_SCOPE
from jupyter_aliquot.gateway.hub.settings import HubSettings

ONE: dict[str, Any] = {"name": "gpu-1", "url": "https://gpu-1:8890", "api_token": "a long random text"}
TWO: dict[str, Any] = {
    "name": "gpu-2",
    "url": "https://gpu-2:8890",
    "api_token": "another random text",
    "label": "A100s <room 2>",
}
HERE: dict[str, Any] = {"name": "here", "url": "http://127.0.0.1:8890"}
OWNERS: dict[str, Any] = {"url": "http://127.0.0.1:8890", "gateway_user": "daemon", "run_kernels_as": "owner"}
OTHER_ACCOUNT = {"url": "http://127.0.0.1:8891", "gateway_user": "bin"}


class Machines:
    """The answers of each gateway, in the place of the questions over HTTP."""

    def __init__(self, **answers: Availability) -> None:
        self.answers = {name.replace("_", "-"): answer for name, answer in answers.items()}
        self.asked: list[str] = []

    async def ask(self, gateway: Gateway, spawner: Any, seconds: float) -> Availability:
        self.asked.append(gateway.name)
        return self.answers[gateway.name]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Two gateways that are up, of which a test changes the answers."""
    both = Machines(gpu_1=Availability(1.5, 4), gpu_2=Availability(0.25, 1), here=Availability(1, 1))
    monkeypatch.setattr(availability, "Questions", lambda: both)
    monkeypatch.setattr(availability, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "_make_token", lambda spawner, service: f"a-token-for-{service}")
    return both


def configured(*gateways: dict[str, Any], **settings: Any) -> Config:
    c = Config()
    configure(c, gateways=list(gateways or (ONE, TWO)), **settings)
    return c


def a_spawner(c: Config, last: dict[str, Any] | None = None) -> Any:
    spawner = Spawner(config=c)
    spawner.user = SimpleNamespace(name="alice", groups=[], url="/user/alice/", id=7)
    spawner.hub = SimpleNamespace(base_url="/hub/")
    spawner.api_token, spawner.log = "a-token-of-the-server", logging.getLogger("test")
    spawner.user_options, spawner.db = last or {}, SimpleNamespace(commit=lambda: None)
    spawner.orm_spawner = SimpleNamespace(user_options=last or {}, server=None, name="")
    return spawner


def start(spawner: Any, **options: Any) -> dict[str, str]:
    """Apply the options as the Hub does at a start; return the server's environment."""
    spawner.user_options = options
    asyncio.run(spawner._run_apply_user_options(spawner.user_options))
    told = spawner.environment
    return {name: value(spawner) if callable(value) else value for name, value in told.items()}


def refusal(spawner: Any, **options: Any) -> tuple[int, str]:
    with pytest.raises(HTTPError) as caught:
        start(spawner, **options)
    return caught.value.status_code, caught.value.jupyterhub_message


def rows(page: str) -> list[tuple[str, str]]:
    """Return name and text of each gateway on the page; the marked one has a star."""
    found = re.findall(r'name="gpu_server" [^>]*value="([^"]*)"( checked)?> <label [^>]*>([^<]*)</label>', page)
    return [(f"{name}*" if mark else name, text) for name, mark, text in found]


def test_each_gateway_has_a_service_scopes_and_a_page_that_may_ask_it_alone() -> None:
    c = configured(HERE, TWO, minutes_without_server=90)
    services = {one["name"]: one for one in c.JupyterHub.services}
    assert set(services) == {"here", "here-availability", "gpu-2", "gpu-2-availability"}
    assert "--Aliquot.gateway_name=here" in services["here"]["command"]
    assert services["gpu-2"]["api_token"] == "another random text"
    assert "command" not in services["gpu-2"]
    assert services["gpu-2"].get("timeout", 2) == 2, "a Hub starts without a gateway that is down"
    roles = {one["name"]: one for one in c.JupyterHub.load_roles}
    access = ["access:services!service=here", "access:services!service=gpu-2"]
    assert roles["user"]["scopes"] == ["self", *access]
    assert roles["aliquot-gpu-2-availability"]["scopes"] == [access[1]]
    assert roles["aliquot-gpu-2-availability"]["services"] == ["gpu-2-availability"]
    assert roles["aliquot-gateway"]["services"] == roles["aliquot-users"]["services"] == ["here", "gpu-2"]
    assert c.Spawner.server_token_scopes[-3:] == [*access, ADMIN_SCOPE]


def test_limits_are_each_gateways_own_and_an_entry_may_have_others() -> None:
    here = {**HERE, "largest_gpus": 2, "user_limits": {"ada": 2}}
    c = configured(here, {**HERE, "name": "there", "url": "http://127.0.0.1:8891"}, user_limit_gpus=1)
    services = {one["name"]: one for one in c.JupyterHub.services}
    assert {"--Aliquot.largest_gpus=2", "--Aliquot.user_limit_gpus=1", "--Aliquot.user_limits={'ada': 2}"} <= set(
        services["here"]["command"]
    )
    assert "--Aliquot.largest_gpus=8" in services["there"]["command"]
    assert not [word for word in services["there"]["command"] if "user_limits" in word]


@pytest.mark.parametrize(
    ("gateways", "more", "message"),
    [
        ([], {}, "names no gateway"),
        ({}, {}, "type dict is not valid. Use a list of tables"),
        ("gpu-1", {}, "Use a list of tables"),
        (["gpu-1"], {}, "an entry of type str is not valid"),
        ([ONE, {**TWO, "name": "gpu-1"}], {}, "two gateways have the name 'gpu-1'"),
        ([ONE, {**TWO, "url": "https://gpu-1:8890/"}], {}, "'gpu-1' and 'gpu-2' have one address"),
        ([ONE, {**TWO, "api_token": ONE["api_token"]}], {}, "'gpu-1' and 'gpu-2' have one api_token"),
        ([{**ONE, "name": "gpu 1"}], {}, "the gateway 'gpu 1': .*lower-case letters"),
        ([{**ONE, "name": "gpu/1"}], {}, "lower-case letters"),
        ([{**ONE, "name": "../hub"}], {}, "lower-case letters"),
        ([{**ONE, "name": 7}], {}, "type int is not valid"),
        ([{"url": "https://gpu-1:8890"}], {}, "has no 'name'"),
        ([{"name": "gpu-1"}], {}, "'gpu-1' has no 'url'"),
        ([{**ONE, "url": "gpu-1"}], {}, "the gateway 'gpu-1': .*Use an address such as"),
        ([{**ONE, "api_token": "short"}], {}, "the gateway 'gpu-1': .*fewer than 8"),
        ([ONE, {**TWO, "url": "https://GPU-1:8890"}], {}, "'gpu-1' and 'gpu-2' have one address"),
        ([ONE, {**TWO, "url": "http://gpu-1:8890"}], {}, "'gpu-1' and 'gpu-2' have one address"),
        ([ONE, {**TWO, "connect_url": "https://gpu-1:8890/"}], {}, "'gpu-1' and 'gpu-2' have one address"),
        ([{**ONE, "connect_url": "https://gpu-2:8890"}, TWO], {}, "'gpu-1' and 'gpu-2' have one address"),
        ([ONE, {"name": "gpu-2", "url": "https://192.0.2.7:8890"}], {}, "has no api_token, .* no address of this mach"),
        ([ONE, {**TWO, "url": "https://192.0.2.7:8890", "api_token": ""}], {}, "'gpu-2' has no api_token"),
        ([{**ONE, "api_token": "a-long-random-text\n"}], {}, "the gateway 'gpu-1': .*a line break"),
        ([{**ONE, "api_token": " a-long-random-text"}], {}, "the gateway 'gpu-1': .*a blank"),
        ([{**ONE, "url": "https://gpu-1:8890?x=1"}], {}, "the gateway 'gpu-1': .*more than host, port and path"),
        ([{**ONE, "url": "https://u:p@gpu-1:8890"}], {}, "the gateway 'gpu-1': .*more than host, port and path"),
        ([{**OWNERS, "name": "a"}, {**OWNERS, "name": "b", **OTHER_ACCOUNT}], {}, "one runtime folder, /run/aliquot"),
        ([{**ONE, "sizes": ["1"]}], {}, "has 'sizes', which is not of one gateway"),
        ([{**ONE, "label": "two\nlines"}], {}, "the label of the gateway 'gpu-1'"),
        ([{**ONE, "label": "x" * 81}], {}, "at most 80"),
        ([ONE], {"url": "https://gpu-9:8890"}, "write 'url' into the entry|Write 'url' into the entry"),
        ([ONE], {"api_token": "a long random text"}, "Write 'api_token' into the entry"),
        ([ONE, {**TWO, "user_limits": {"alice": "1"}}], {}, "the gateway 'gpu-2': .*user_limits"),
    ],
)
def test_gateways_that_cannot_be_are_told_when_the_hub_starts(gateways: Any, more: Any, message: str) -> None:
    with pytest.raises(HubConfigError, match=message):
        configure(Config(), gateways=gateways, **more)


def test_a_service_of_such_a_name_clashes() -> None:
    c = Config()
    c.JupyterHub.services = [{"name": "gpu-2"}]
    with pytest.raises(HubConfigError, match="has a service 'gpu-2' already"):
        configure(c, gateways=[ONE, TWO])


def test_the_page_has_each_gateway_with_what_is_free(machines: Machines) -> None:
    machines.answers["gpu-2"] = Availability(0.25, 1)
    page = asyncio.run(a_spawner(configured()).get_options_form())
    want = ("gpu-2", "gpu-2 · A100s &lt;room 2&gt; · 0.25 of 1 GPU free")
    assert rows(page) == [("gpu-1*", "gpu-1 · 1.5 of 4 GPUs free"), want]
    assert page.index("gpu_server") < page.index('name="gpu"'), "the server first, then the size"
    inputs = re.findall(r'<input [^>]*id="([^"]*)"', page)
    assert re.findall(r'<label [^>]*for="([^"]*)"', page) == inputs


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Availability(problem=DOWN), "down"),
        (Availability(problem=REFUSES), "refuses this Hub"),
        (Availability(problem=OTHER), "not at its address"),
        (Availability(0, 0), "no GPU"),
    ],
)
def test_the_page_says_what_a_gateway_lacks(machines: Machines, answer: Availability, text: str) -> None:
    machines.answers["gpu-1"] = answer
    page = asyncio.run(a_spawner(configured()).get_options_form())
    assert ("gpu-1" if answer.problem else "gpu-1*", f"gpu-1 · {text}") in rows(page)


def test_the_last_choice_is_marked_while_it_is_up(machines: Machines) -> None:
    spawner = a_spawner(configured(), {"gpu_server": "gpu-2"})
    assert [name for name, _ in rows(asyncio.run(spawner.get_options_form()))] == ["gpu-1", "gpu-2*"]
    machines.answers["gpu-2"] = Availability(problem=DOWN)
    assert [name for name, _ in rows(asyncio.run(spawner.get_options_form()))] == ["gpu-1*", "gpu-2"]
    machines.answers["gpu-1"] = Availability(problem=DOWN)
    assert [name for name, _ in rows(asyncio.run(spawner.get_options_form()))] == ["gpu-1", "gpu-2*"]


@pytest.mark.usefixtures("machines")
def test_the_chosen_gateways_address_token_and_account_reach_the_server() -> None:
    c = configured(HERE, {**TWO, "connect_url": "https://gpu-2.example.org:443"})
    options = a_spawner(c).run_options_from_form({"gpu_server": ["gpu-2"], "gpu": ["0.25"]})
    assert options == {"gpu_server": "gpu-2", "gpu": "0.25"}
    there = start(a_spawner(c), **options)
    assert there["JUPYTER_GATEWAY_URL"] == "https://gpu-2.example.org:443/services/gpu-2"
    assert there["JUPYTER_GATEWAY_AUTH_TOKEN"] == "a-token-for-gpu-2"
    assert (there["KERNEL_GPU"], there["ALIQUOT_GATEWAY_ACCOUNT"]) == ("0.25", "")
    here = start(a_spawner(c), gpu_server="here")
    assert here["JUPYTER_GATEWAY_URL"] == "http://127.0.0.1:8890/services/here"
    assert (here["JUPYTER_GATEWAY_AUTH_TOKEN"], here["ALIQUOT_GATEWAY_ACCOUNT"]) == ("a-token-for-here", "1000")


def test_a_start_without_a_choice_takes_the_first_gateway_that_is_up_and_keeps_it(machines: Machines) -> None:
    machines.answers["gpu-1"] = Availability(problem=DOWN)
    spawner = a_spawner(configured())
    assert start(spawner, gpu="0.25")["JUPYTER_GATEWAY_URL"] == "https://gpu-2:8890/services/gpu-2"
    assert spawner.user_options["gpu_server"] == "gpu-2"
    assert spawner.orm_spawner.user_options["gpu_server"] == "gpu-2", "the Hub's database keeps it over a restart"


@pytest.mark.parametrize(
    ("problem", "want"),
    [
        (DOWN, "The GPU server gpu-2 does not answer. Choose another (gpu-1), or tell an administrator"),
        (REFUSES, "refuses this Hub's tokens: it was started with another name, or for another Hub. Choose another"),
        (OTHER, "another program answers there. Choose another (gpu-1)"),
    ],
)
def test_a_gateway_that_went_down_since_the_page_is_told(machines: Machines, problem: str, want: str) -> None:
    machines.answers["gpu-2"] = Availability(problem=problem)
    code, said = refusal(a_spawner(configured()), gpu_server="gpu-2")
    # JupyterHub counts answers of 500 and more, and ends after a number of them.
    assert (code, want in said) == (409, True), said


def test_a_server_starts_while_all_gateways_are_down(machines: Machines) -> None:
    """The user's files stay within reach."""
    machines.answers = dict.fromkeys(machines.answers, Availability(problem=DOWN))
    assert start(a_spawner(configured()), gpu_server="gpu-2")["JUPYTER_GATEWAY_URL"].endswith("gpu-2")


@pytest.mark.usefixtures("machines")
@pytest.mark.parametrize("asked", ["gpu-3", "<b>", "x" * 5000, ["gpu-1"], {"name": "gpu-1"}, 7, True])
def test_a_name_that_no_gateway_has_is_refused_with_those_there_are(asked: Any) -> None:
    code, said = refusal(a_spawner(configured()), gpu_server=asked)
    assert (code, "Use one of gpu-1, gpu-2" in said, len(said) < 300) == (400, True, True), said


def test_a_field_that_comes_twice_is_refused(machines: Machines) -> None:
    with pytest.raises(HTTPError, match="Requested 2 GPU servers"):
        a_spawner(configured()).run_options_from_form({"gpu_server": ["gpu-1", "gpu-2"]})
    assert machines.asked == []


@pytest.mark.usefixtures("machines")
def test_a_size_is_checked_by_the_limits_of_the_chosen_gateway() -> None:
    c = configured({**ONE, "user_limit_gpus": 0.5}, {**TWO, "user_limit_gpus": 1})
    page = asyncio.run(a_spawner(c).get_options_form())
    assert 'value="1"' in page, "one of the two allows it"
    assert start(a_spawner(c), gpu_server="gpu-2", gpu="1")["KERNEL_GPU"] == "1"
    code, said = refusal(a_spawner(c), gpu_server="gpu-1", gpu="1")
    assert (code, "alice may have 0.5" in said) == (400, True)


@pytest.mark.usefixtures("machines")
def test_an_administrators_own_hook_gets_its_own_options_alone() -> None:
    c, seen = Config(), []
    c.Spawner.apply_user_options = lambda spawner, options: seen.append(dict(options))
    configure(c, gateways=[ONE, TWO])
    start(a_spawner(c), gpu_server="gpu-1", gpu="0.25", image="torch")
    assert seen == [{"image": "torch"}]


def test_a_hub_with_one_gateway_leaves_such_a_field_to_its_administrator() -> None:
    c = Config()
    configure(c)
    options = a_spawner(c).run_options_from_form({"gpu_server": ["theirs"], "gpu": ["0.25"]})
    assert options == {"gpu_server": ["theirs"], "gpu": "0.25"}
    assert not Gateways.of(HubSettings()).are_named


def test_a_choice_that_a_hook_took_away_starts_no_server_on_another_gateway(machines: Machines) -> None:
    spawner = a_spawner(configured())
    start(spawner, gpu_server="gpu-2")
    spawner.user_options = {}
    with pytest.raises(KeyError, match="gpu_server=None, no gateway"):
        spawner.environment["JUPYTER_GATEWAY_URL"](spawner)


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"display_name": "mine"}'])
def test_a_stored_choice_of_a_gateway_that_is_gone_counts_as_none(machines: Machines, body: bytes) -> None:
    machines.answers["gpu-1"] = Availability(problem=DOWN)
    spawner = a_spawner(configured(), {"gpu_server": "renamed"})
    spawner.handler = SimpleNamespace(request=SimpleNamespace(query="", body=body))
    assert start(spawner, gpu_server="renamed", gpu="0.25")["JUPYTER_GATEWAY_URL"].endswith("/gpu-2")
    assert spawner.orm_spawner.user_options == {"gpu_server": "gpu-2", "gpu": "0.25"}
    spawner.handler.request = SimpleNamespace(query="gpu_server=renamed", body=b"")
    assert refusal(spawner, gpu_server="renamed")[0] == 400
    spawner.handler.request = SimpleNamespace(query="", body=b'{"gpu_server": "renamed"}')
    code, said = refusal(spawner, gpu_server="renamed")
    assert (code, "Use one of gpu-1, gpu-2" in said) == (400, True), "a request that names it is told"


def test_gateways_behind_one_proxy_and_those_with_folders_of_their_own_are_taken() -> None:
    proxy = {"connect_url": "https://hub.example.org"}  # it finds each by the path of its service
    second = {**OWNERS, **OTHER_ACCOUNT, "name": "b", "gateway_environment": {"ALIQUOT_RUNTIME_DIR": "/run/b"}}
    for entries in ([{**ONE, **proxy}, {**TWO, **proxy}], [{**OWNERS, "name": "a"}, second]):
        assert Gateways.of(HubSettings(gateways=entries)).names == tuple(one["name"] for one in entries)
