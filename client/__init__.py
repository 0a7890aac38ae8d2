"""A typed client of a gateway's API, with a synchronous and an asyncio face.

It covers every operation of gateway/api/openapi.yaml that is for users, administrators and their
programs. It starts nothing and keeps nothing: each call is one request.
"""

from __future__ import annotations

from .aio import AsyncClient
from .errors import (
    AnswerError,
    ClientError,
    ConflictError,
    InvalidRequestError,
    NoAnswerError,
    NotAllowedError,
    NotFoundError,
    RefusedError,
    ServerError,
    TooManyRequestsError,
    WithdrawnError,
)
from .jupyter import CellResult
from .operations import UNCHANGED
from .retries import Retries
from .server import Server, find_server
from .sync import Client

__all__ = [
    "UNCHANGED",
    "AnswerError",
    "AsyncClient",
    "CellResult",
    "Client",
    "ClientError",
    "ConflictError",
    "InvalidRequestError",
    "NoAnswerError",
    "NotAllowedError",
    "NotFoundError",
    "RefusedError",
    "Retries",
    "Server",
    "ServerError",
    "TooManyRequestsError",
    "WithdrawnError",
    "find_server",
]
