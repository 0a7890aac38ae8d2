"""Options that a server asks of the node agent it would start, and what an agent that runs already has instead. Pure.

Only the options that were asked for count: what the configuration leaves open, the agent decides.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from jupyter_aliquot.gpu_hook.agent.settings import add_arguments, told_options

# An option that leaves the choice to the agent is met by each choice.
_AS_FOUND = "auto"


class _Unreadable(Exception):
    """The options are no options of this version's agent."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unreadable(message)


def differences(arguments: Sequence[str], in_force: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each option of *arguments* that the agent which runs does not have.

    Args:
        arguments: what `aliquot agent` would have been started with.
        in_force: option to value, as the agent tells them; empty for an agent that does not tell.
    """
    try:
        asked = _asked(arguments)
    except _Unreadable as error:
        return (f"The options of the node agent cannot be read: {error}. Correct c.Aliquot.agent_options.",)
    return tuple(
        f"The node agent that runs has {option} {in_force[option] or 'not set'}, and this server asks for "
        f"{option} {value}. To have that, end the kernels that hold a GPU, stop the agent, and restart this server; or "
        "ask for what is in force (c.Aliquot.agent_options)."
        for option, value in asked.items()
        if value != _AS_FOUND and in_force.get(option, value) != value
    )


def _asked(arguments: Sequence[str]) -> dict[str, str]:
    parser = _Parser(prog="aliquot agent", add_help=False)
    add_arguments(parser)
    unset = object()
    names = [action.dest for action in parser._actions if action.dest != argparse.SUPPRESS]
    parsed = parser.parse_args(arguments, argparse.Namespace(**dict.fromkeys(names, unset)))
    return told_options(argparse.Namespace(**{name: v for name, v in vars(parsed).items() if v is not unset}))
