"""Comparison of the agent options that a server requests with those of the agent that runs. Pure.

Only requested options count. The agent decides about options that the configuration leaves open.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from jupyter_aliquot.gpu_hook.agent.settings import add_arguments, told_options

# Each choice of the agent meets an option that leaves the choice to it.
_AS_FOUND = "auto"


class _Unreadable(Exception):
    """Options that the agent of this version does not know."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unreadable(message)


def differences(arguments: Sequence[str], in_force: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each option of *arguments* that the agent which runs does not have.

    Args:
        arguments: the command line of `aliquot agent`, had this server started it.
        in_force: option to value, as the agent reports them; empty for an agent that does not
            report them.
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
