"""The report of a kernel's cells: those that run or ended a short while ago, with their output.

Times are ISO 8601 in UTC. See api/openapi.yaml.
"""

from __future__ import annotations

from typing import Any, TypedDict


class QuestionId(TypedDict, total=False):
    """The part of `CellQuestion` that a kernel may leave out."""

    id: str


class CellQuestion(QuestionId):
    """The question that a cell asks its user, and waits for."""

    prompt: str
    password: bool


class MessageParent(TypedDict):
    """The request that a message answers."""

    msg_id: str


class KeptMessage(TypedDict):
    """A message in Jupyter's form, without its buffers. Its content is the kernel's own."""

    header: dict[str, Any]
    parent_header: MessageParent
    metadata: dict[str, Any]
    content: dict[str, Any]


class CellState(TypedDict):
    """A cell without its messages."""

    msg_id: str
    cell_id: str | None
    began: str
    ended: str | None
    is_open: bool
    input: CellQuestion | None
    omitted_messages: int


class RunningCell(CellState):
    """A cell with the messages that it showed so far."""

    messages: list[KeptMessage]


class SeenMessages(TypedDict):
    """The messages that are in the report or were left out: ranges by prefix of the id, other ids."""

    ranges: dict[str, list[tuple[int, int]]]
    ids: list[str]


class RunningCells(TypedDict):
    """The cells of one kernel; ``not_received`` is None where it cannot be known."""

    is_own: bool
    cells: list[RunningCell]
    seen: SeenMessages
    not_received: list[str] | None
