"""The tokens by which agents prove that they may register a node.

Outside Kubernetes a file has them. A checker that asks Kubernetes (TokenReview) has the same method.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jupyter_aliquot.provisioner.errors import AliquotError

_LEAST_LETTERS = 16


class TokenRefusedError(AliquotError):
    """An agent's token is missing, unknown, or another node's."""


class TokenExpiredError(TokenRefusedError):
    """An agent's token was right, and its time is over. It opens no connection, and ends none."""


class TokenUnknownError(AliquotError):
    """Whether a token is right cannot be found out now."""


class TokenChecker(Protocol):
    """The check of an agent's token."""

    async def allowed_nodes(self, token: str) -> frozenset[str] | None:
        """Return the nodes that this token may register; None for any.

        Raises TokenRefusedError (TokenExpiredError for one that ran out) and TokenUnknownError.
        """


class NoTokens:
    """The checker of a gateway that takes no agents."""

    async def allowed_nodes(self, token: str) -> frozenset[str] | None:
        raise TokenRefusedError(
            "This gateway takes no agents of other machines. Name a file of tokens in c.Aliquot.agent_token_file"
        )


@dataclass(frozen=True)
class TokenFile:
    """A file with one token a line: ``TOKEN`` for any node, or ``NODE TOKEN`` for that one alone.

    It is read at each check, so that a token is taken back by removing its line.
    """

    path: Path

    async def allowed_nodes(self, token: str) -> frozenset[str] | None:
        try:
            lines = await asyncio.to_thread(self._lines)
        except (OSError, ValueError) as error:
            raise TokenUnknownError(f"The gateway cannot read its file of agents' tokens: {error}") from error
        # Each line is compared: the time of an answer tells nothing of the tokens.
        found = [node for node, known in lines if hmac.compare_digest(known.encode(), token.encode())]
        if not found:
            raise TokenRefusedError("The token is not in the gateway's file of agents' tokens. Give the agent another")
        return None if None in found else frozenset(node for node in found if node is not None)

    def _lines(self) -> list[tuple[str | None, str]]:
        """Return node and token of each line. Raises OSError and ValueError. Blocks."""
        read: list[tuple[str | None, str]] = []
        for number, line in enumerate(self.path.read_text(encoding="ascii").splitlines(), 1):
            words = line.split("#", 1)[0].split()
            if not words:
                continue
            if len(words) > 2 or len(words[-1]) < _LEAST_LETTERS:
                raise ValueError(
                    f"line {number} of {self.path} is no token. Write TOKEN or NODE TOKEN, with a token of at least "
                    f"{_LEAST_LETTERS} letters (openssl rand -hex 32)"
                )
            read.append((words[0] if len(words) == 2 else None, words[-1]))
        return read
