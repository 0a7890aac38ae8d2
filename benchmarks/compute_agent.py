"""A node agent with one more controller: `--controller quanta|measured|none`.

It also offers exclusive time quanta. Further options are those of `aliquot agent`, which itself
offers measured and none. Benchmarks and tests start it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from compute.controllers import CONTENDERS

from jupyter_aliquot.gpu_hook.agent.compute.controllers import CONTROLLERS, ControllerParameters, MakeController
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import Controller
from jupyter_aliquot.gpu_hook.agent.main import run_agent
from jupyter_aliquot.gpu_hook.agent.settings import AgentSettings, read_arguments


def _without_parameters(make: Callable[[], Controller]) -> MakeController:
    def made(parameters: ControllerParameters) -> Controller:
        return make()

    return made


ALL: Mapping[str, MakeController] = {
    **{
        name: _without_parameters(contender.make)
        for name, contender in CONTENDERS.items()
        if not contender.counts_blocks
    },
    **CONTROLLERS,
}


def settings_of(arguments: Sequence[str]) -> AgentSettings:
    """Return the settings of an agent with the controller that ``--controller`` names."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--controller", choices=tuple(ALL), default="measured")
    asked, rest = parser.parse_known_args(arguments)
    settings = read_arguments(rest)
    return replace(settings, compute=replace(settings.compute, control=asked.controller))


if __name__ == "__main__":
    sys.exit(run_agent(settings_of(sys.argv[1:]), controllers=ALL))
