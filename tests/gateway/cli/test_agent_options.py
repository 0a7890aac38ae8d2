"""Options of a running node agent, compared with those that a server asks for."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest
from traitlets import TraitError
from traitlets.config import Application

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gateway.node.agent_options import differences
from jupyter_aliquot.gateway.node.connection import AgentLink
from jupyter_aliquot.gateway.serverapp.ephemeral_stack import EphemeralStack, StackSettings
from jupyter_aliquot.gpu_hook.agent.settings import read_arguments

WORDS = ["--overcommit", "1"]
IN_FORCE = read_arguments(["--overcommit", "1", "--driver", "softgpu"]).options


def test_an_option_that_differs_is_told_with_what_is_asked_what_is_in_force_and_what_to_do() -> None:
    [told] = differences(["--overcommit", "3"], IN_FORCE)
    for want in ("has --overcommit 1,", "asks for --overcommit 3.", "stop the agent", "c.Aliquot.agent_options"):
        assert want in told


@pytest.mark.parametrize(
    ("option", "value", "want"),
    [
        ("--driver", "nvidia", "has --driver softgpu, and this server asks for --driver nvidia"),
        ("--swap-memory", "60%", "--swap-memory 60%"),
        ("--compute-actuators", "pacing,mps", "--compute-actuators pacing,mps"),
        ("--checkpoint-after", "60", "has --checkpoint-after not set"),
    ],
)
def test_values_are_told_as_they_are_written(option: str, value: str, want: str) -> None:
    [told] = differences([option, value], IN_FORCE)
    assert want in told


@pytest.mark.parametrize("arguments", [[], ["--overcommit", "1.0"], ["--driver", "auto"], ["--driver=softgpu"]])
def test_what_is_in_force_or_left_open_is_not_told(arguments: list[str]) -> None:
    assert differences(arguments, IN_FORCE) == ()


@pytest.mark.parametrize("option", ["[--overcommit,1]", "--overcommit 1", "--overcommit=1 --swap-memory=60%"])
def test_options_that_a_shell_made_one_text_are_refused_with_how_to_write_them(option: str) -> None:
    with pytest.raises(TraitError) as caught:
        Aliquot(agent_options=[option])
    assert f"c.Aliquot.agent_options: {option!r} is not valid" in str(caught.value)
    assert "--Aliquot.agent_options=--overcommit --Aliquot.agent_options=1" in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*for containers is deprecated in traitlets")
@pytest.mark.parametrize(
    "words",
    [["--Aliquot.agent_options=['--overcommit','1']"], [f"--Aliquot.agent_options={one}" for one in WORDS]],
)
def test_a_list_and_single_words_on_a_command_line_are_the_agents_options(words: list[str]) -> None:
    app = Application()
    app.classes = [Aliquot]
    app.parse_command_line(words)
    assert Aliquot(parent=app).agent_options == WORDS


def test_an_agent_that_tells_no_options_differs_in_none() -> None:
    assert differences(["--overcommit", "3"], {}) == ()


def test_options_that_no_agent_has_are_told() -> None:
    [told] = differences(["--overcommitted", "3"], IN_FORCE)
    assert "cannot be read: unrecognized arguments: --overcommitted 3" in told


def test_a_real_agent_tells_what_it_has_in_force(caplog: pytest.LogCaptureFixture) -> None:
    asked = ["--overcommit", "3", "--driver", "auto", "--lease-hold", "5"]

    async def scene() -> AgentLink:
        async with EphemeralStack(StackSettings(agent_options=("--overcommit", "2")), has_gateway=False) as stack:
            log = logging.getLogger("aliquot.test")
            link = AgentLink(stack.runtime.path, SystemClock(), None, log, partial(differences, asked))
            connected = asyncio.Event()
            link.listen(connected.set)
            await link.start()
            try:
                while not link.connections:
                    await asyncio.wait_for(connected.wait(), 60)
                    connected.clear()
            finally:
                await link.stop()
            return link

    link = asyncio.run(scene())
    [told] = link.differences
    assert "has --overcommit 2, and this server asks for --overcommit 3" in told
    assert [record.levelname for record in caplog.records if told in record.getMessage()] == ["WARNING"]
