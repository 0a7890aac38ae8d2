"""KubeSpawner's and DockerSpawner's own classes with the choice, without cluster or engine."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
from guide_blocks import HUB_GUIDE, blocks_of
from jupyterhub.utils import maybe_future
from tornado.web import HTTPError
from traitlets.config import Config

from jupyter_aliquot.gateway.hub import HubConfigError, availability, configure, tokens
from jupyter_aliquot.gateway.hub.availability import DOWN, Availability

REACHED = {"url": "http://0.0.0.0:8890", "connect_url": "http://hub:8890"}


def a_user(name: str = "alice", *teams: str) -> Any:
    return SimpleNamespace(name=name, id=7, url="/user/alice/", groups=[SimpleNamespace(name=team) for team in teams])


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the token for the gateway without the Hub's database, which no spawner here has."""
    monkeypatch.setattr(tokens, "_make_token", lambda *_: "a-token-for-the-gateway")


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the class no cluster: it looks for one when it is made; no test here queries one."""
    pytest.importorskip("kubespawner", reason="jupyterhub-kubespawner is not installed")
    import kubespawner.spawner

    monkeypatch.setattr(kubespawner.spawner, "load_config", lambda *args, **kwargs: None)
    monkeypatch.setattr(kubespawner.spawner, "shared_client", lambda *args, **kwargs: None)


def a_kube_spawner(c: Config, user: Any) -> Any:
    import kubespawner

    hub = SimpleNamespace(
        base_url="/hub/", public_host="", url="http://hub:8081/hub/", api_url="http://hub:8081/hub/api"
    )
    spawner = kubespawner.KubeSpawner(config=c, user=user, hub=hub, _mock=True)
    spawner.api_token = "a-token-of-the-server"
    return spawner


def kube_config(before: str = "", **settings: Any) -> Config:
    c = Config()
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    exec(before, {"c": c})
    configure(c, **REACHED, **settings)
    return c


class PodMade(Exception):
    """Raised instead of a request for this pod to the cluster."""


def pod_of(spawner: Any, options: dict[str, Any]) -> Any:
    """Return the pod that KubeSpawner would have made.

    It applies the options that the Hub has stored, as the Hub does.
    """

    async def watch() -> None:
        pass

    async def create(pod: Any, timeout: float) -> bool:
        raise PodMade(pod)

    async def spawn() -> None:
        spawner._start_watching_pods, spawner.events_enabled = watch, False
        spawner._make_create_pod_request = create
        spawner.user_options = json.loads(json.dumps(options))
        await spawner._run_apply_user_options(spawner.user_options)
        await maybe_future(spawner.run_pre_spawn_hook())
        await spawner.start()

    with pytest.raises(PodMade) as made:
        asyncio.run(spawn())
    return made.value.args[0]


def environment_of(pod: Any) -> dict[str, str]:
    (container,) = pod.spec.containers
    return {one.name: one.value for one in container.env}


def choose(spawner: Any, options: dict[str, Any]) -> str:
    """Return the size in the environment of the pod's container, for these options."""
    return environment_of(pod_of(spawner, options))["KERNEL_GPU"]


@pytest.mark.usefixtures("no_cluster")
def test_a_profile_of_kubespawner_has_the_sizes_that_the_user_may_have() -> None:
    spawner = a_kube_spawner(kube_config(user_limits={"alice": 0.5}), a_user())
    page = asyncio.run(spawner.get_options_form())
    select = re.search(r'<select name="profile-option-jupyterlab--gpu".*?</select>', page, re.DOTALL)
    assert select is not None
    assert re.findall(r'value="([^"]*)"', select[0]) == ["none", "0.25", "0.5", "0.25-low", "unlisted-choice"]
    assert 'data-name="profile-option-jupyterlab--gpu--unlisted-choice"' in page


@pytest.mark.parametrize(
    ("form", "want"),
    [
        ({"profile": ["jupyterlab"], "profile-option-jupyterlab--gpu": ["0.25-low"]}, "0.25-low"),
        ({"profile": ["jupyterlab"], "profile-option-jupyterlab--gpu--unlisted-choice": ["0.3-8g"]}, "0.3-8g"),
        ({"profile": ["jupyterlab"]}, "none"),
    ],
)
@pytest.mark.usefixtures("no_cluster")
def test_what_is_chosen_in_a_profile_reaches_the_pod(form: dict[str, list[str]], want: str) -> None:
    spawner = a_kube_spawner(kube_config(), a_user())
    assert choose(spawner, spawner.run_options_from_form(form)) == want


@pytest.mark.parametrize(
    ("options", "want"),
    [({"gpu": "0.50"}, "0.5"), ({"profile": "jupyterlab", "gpu": "0.31"}, "0.31"), ({}, "none")],
)
@pytest.mark.usefixtures("no_cluster")
def test_options_of_the_api_reach_the_pod_as_well(options: dict[str, Any], want: str) -> None:
    assert choose(a_kube_spawner(kube_config(), a_user()), dict(options)) == want


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "jupyterlab", "gpu": "1"},
        {"profile": "jupyterlab", "gpu--unlisted-choice": "0.75"},
        {"profile": "jupyterlab", "gpu": "0.25", "gpu--unlisted-choice": "{user.name}"},
    ],
)
@pytest.mark.usefixtures("no_cluster")
def test_a_profile_is_no_way_round_the_caps(options: dict[str, Any]) -> None:
    spawner = a_kube_spawner(kube_config(team_limits={"vision": 0.5}), a_user("alice", "vision"))
    with pytest.raises(HTTPError) as caught:
        choose(spawner, options)
    assert caught.value.status_code == 400


@pytest.mark.usefixtures("no_cluster")
def test_the_pod_has_the_gateway_and_no_gpu() -> None:
    spawner = a_kube_spawner(kube_config(), a_user())
    form = {"profile": ["jupyterlab"], "profile-option-jupyterlab--gpu": ["0.25"]}
    pod = pod_of(spawner, spawner.run_options_from_form(form))
    environment = environment_of(pod)
    assert environment["KERNEL_GPU"] == "0.25"
    assert environment["JUPYTER_GATEWAY_URL"] == "http://hub:8890/services/aliquot"
    assert environment["JUPYTERHUB_API_TOKEN"] == "a-token-of-the-server"
    assert environment["JUPYTER_GATEWAY_AUTH_TOKEN"] == "a-token-for-the-gateway"
    (container,) = pod.spec.containers
    assert (container.resources.limits, container.resources.requests) == ({}, {})
    assert container.args is None, "KubeSpawner knows no command to which it could add ours"


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("section", ["KubeSpawner", "Spawner"])
def test_a_pod_whose_command_is_set_is_told_what_becomes_of_kernels(section: str) -> None:
    before = f"c.{section}.cmd = ['jupyterhub-singleuser']"
    pod = pod_of(a_kube_spawner(kube_config(before, keep_kernels="never"), a_user()), {})
    (container,) = pod.spec.containers
    assert container.args == ["jupyterhub-singleuser", "--Aliquot.keep_kernels=never"]


@pytest.mark.usefixtures("no_cluster")
def test_the_guides_configuration_makes_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_API_TOKEN", "a token of the administrator's")
    c = Config()
    (block,) = blocks_of(HUB_GUIDE, "Kubernetes")
    exec(block, {"c": c, "configure": configure})
    pod = pod_of(a_kube_spawner(c, a_user()), {"gpu": "0.25"})
    environment = environment_of(pod)
    assert environment["JUPYTER_GATEWAY_URL"] == "http://aliquot-gateway:8890/services/aliquot"
    assert environment["KERNEL_GPU"] == "0.25"
    assert pod.spec.containers[0].args == ["jupyterhub-singleuser", "--Aliquot.keep_kernels=always"]


@pytest.mark.usefixtures("no_cluster")
def test_a_second_start_without_options_has_the_last_choice() -> None:
    """The Hub stores the last choice, and passes it in again."""
    spawner = a_kube_spawner(kube_config(), a_user())
    pod_of(spawner, {"profile": "jupyterlab", "gpu--unlisted-choice": "0.30"})
    assert choose(a_kube_spawner(kube_config(), a_user()), spawner.user_options) == "0.3"


@pytest.mark.usefixtures("no_cluster")
def test_profiles_that_are_there_get_the_option_beside_their_own() -> None:
    before = """c.KubeSpawner.profile_list = [
        {"display_name": "Small", "slug": "small", "kubespawner_override": {"cpu_limit": 1}},
        {"display_name": "Big", "slug": "big", "profile_options": {"image": {"display_name": "Image", "choices":
            {"torch": {"display_name": "Torch", "kubespawner_override": {"image": "torch:2"}}}}}}]"""
    spawner = a_kube_spawner(kube_config(before), a_user())
    assert choose(spawner, {"profile": "big", "image": "torch", "gpu": "0.5"}) == "0.5"
    assert spawner.image == "torch:2"
    assert choose(spawner, {"profile": "small", "gpu": "0.25"}) == "0.25"
    assert spawner.cpu_limit == 1


def test_an_option_of_that_name_in_a_profile_clashes() -> None:
    with pytest.raises(HubConfigError, match="has an option 'gpu' already"):
        kube_config('c.KubeSpawner.profile_list = [{"display_name": "Mine", "profile_options": {"gpu": {}}}]')


TWO_GATEWAYS = [
    {"name": f"gpu-{number}", "url": f"http://gpu-{number}:8890", "api_token": f"a long random text {number}"}
    for number in (1, 2)
]


def two_gateways(monkeypatch: pytest.MonkeyPatch, before: str = "", **settings: Any) -> Config:
    """A configuration of two gateways, of which the second is down."""

    class Machines:
        async def ask(self, gateway: Any, spawner: Any, seconds: float) -> Availability:
            return Availability(1.5, 4) if gateway.name == "gpu-1" else Availability(problem=DOWN)

    monkeypatch.setattr(availability, "Questions", Machines)
    c = Config()
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    exec(before, {"c": c})
    configure(c, gateways=TWO_GATEWAYS, **settings)
    return c


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("sizes", [("0.25",), ()])
def test_a_profile_of_kubespawner_has_the_gateways_beside_the_sizes(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[str, ...]
) -> None:
    spawner = a_kube_spawner(two_gateways(monkeypatch, sizes=sizes), a_user())
    page = asyncio.run(spawner.get_options_form())
    select = re.search(r'<select name="profile-option-jupyterlab--gpu_server".*?</select>', page, re.DOTALL)
    assert select is not None
    texts = [" ".join(text.split()) for text in re.findall(r"<option[^>]*>([^<]*)</option>", select[0])]
    assert texts == ["gpu-1 · 1.5 of 4 GPUs free", "gpu-2 · down"]
    assert ('name="profile-option-jupyterlab--gpu"' in page) == bool(sizes)


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("named", [{"profile-option-jupyterlab--gpu_server": ["gpu-1"]}, {}])
def test_the_pod_has_the_chosen_gateway_or_the_first_that_is_up(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, list[str]]
) -> None:
    spawner = a_kube_spawner(two_gateways(monkeypatch), a_user())
    form = {"profile": ["jupyterlab"], "profile-option-jupyterlab--gpu": ["0.25"], **named}
    environment = environment_of(pod_of(spawner, spawner.run_options_from_form(form)))
    assert environment["JUPYTER_GATEWAY_URL"] == "http://gpu-1:8890/services/gpu-1"
    assert environment["KERNEL_GPU"] == "0.25"
    assert spawner.user_options["gpu_server"] == "gpu-1"


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize(("name", "code"), [("gpu-2", 409), ("gpu-3", 400)])
def test_a_pod_whose_gateway_is_down_or_unknown_is_not_made(
    monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    with pytest.raises(HTTPError) as caught:
        pod_of(a_kube_spawner(two_gateways(monkeypatch), a_user()), {"profile": "jupyterlab", "gpu_server": name})
    assert caught.value.status_code == code


def test_an_option_gpu_server_in_a_profile_clashes_with_several_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    before = 'c.KubeSpawner.profile_list = [{"display_name": "Mine", "profile_options": {"gpu_server": {}}}]'
    with pytest.raises(HubConfigError, match="has an option 'gpu_server' already"):
        two_gateways(monkeypatch, before)
    kube_config(before)


def test_dockerspawners_choice_of_images_stays_beside_the_sizes() -> None:
    dockerspawner = pytest.importorskip("dockerspawner", reason="dockerspawner is not installed")
    c = Config()
    c.JupyterHub.spawner_class = dockerspawner.DockerSpawner
    c.DockerSpawner.allowed_images = ["one:1", "two:2"]
    c.DockerSpawner.environment = {"LANG": "C.UTF-8"}
    configure(c, **REACHED, user_limits={"alice": 0.5})
    spawner = dockerspawner.DockerSpawner(config=c)
    spawner.user, spawner.hub = a_user(), SimpleNamespace(base_url="/hub/")
    page = asyncio.run(spawner.get_options_form())
    assert "two:2" in page
    assert 'name="gpu"' in page
    options = spawner.run_options_from_form({"image": ["two:2"], "gpu": ["0.25"]})
    assert options == {"image": "two:2", "gpu": "0.25"}
    asyncio.run(spawner._run_apply_user_options(options))
    assert (spawner.environment["KERNEL_GPU"], spawner.environment["LANG"]) == ("0.25", "C.UTF-8")
    assert spawner.extra_host_config == {}, "the server itself is given no device"
    with pytest.raises(HTTPError):
        asyncio.run(spawner._run_apply_user_options({"image": "two:2", "gpu": "1"}))
