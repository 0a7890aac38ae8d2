"""The options by which an agent dials a gateway, and the address that they give. Pure."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

# A gateway uses the name as a key, in metrics and in tables.
NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
AGENTS_PATH = "aliquot/api/v1/agents"
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True)
class GatewayAddress:
    """The websocket of a gateway's agents, and the file of the token that it wants."""

    url: str
    token_file: Path


def add_dialing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options, for the agent's own command line and for ``aliquot agent``."""
    group = parser.add_argument_group("a gateway on another machine")
    group.add_argument(
        "--gateway",
        type=agents_url,
        metavar="URL",
        help="dial this gateway, which runs on another machine (http://HOST:PORT/BASE); needs --token-file",
    )
    group.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the token for --gateway; read at each connection"
    )
    group.add_argument(
        "--node", type=_node_name, metavar="NAME", help="this node's name (default: the machine's host name)"
    )


def read_dialing_arguments(options: argparse.Namespace) -> GatewayAddress | None:
    """Return the gateway to dial; None for none. Raises argparse.ArgumentTypeError."""
    url, file = options.gateway, options.token_file
    if (url is None) != (file is None):
        have, lack = ("--token-file", "--gateway") if url is None else ("--gateway", "--token-file")
        raise argparse.ArgumentTypeError(f"Requested {have}, which needs {lack}. Give both, or neither")
    return None if url is None else GatewayAddress(url, Path(os.path.abspath(file)))


def agents_url(text: str) -> str:
    """Return the websocket of the agents of a gateway's URL."""
    parts = urlsplit(text)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError(f"{text!r} is no gateway's URL. Write it like https://HOST:8888/BASE")
    return urlunsplit((scheme, parts.netloc, f"{parts.path.rstrip('/')}/{AGENTS_PATH}", "", ""))


def _node_name(text: str) -> str:
    if not NODE_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no node's name. Use letters, digits, '-', '_' and '.'")
    return text
