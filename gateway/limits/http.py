"""Refusal of requests that come too fast, and of bodies that are too large.

It comes before any other handler.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import ServerApp
from tornado.http1connection import HTTP1Connection
from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import Finish, RequestHandler, stream_request_body
from tornado.websocket import WebSocketHandler

from jupyter_aliquot.gateway.base.jupyter_private import forget_user, replace_log
from jupyter_aliquot.provisioner.errors import LimitError

from .guard import BODY, REQUESTS, SETTING, LimitGuard

_MESSAGE_SETTING = "websocket_max_message_size"
_REFUSED, _TOO_MANY, _TOO_LARGE = 403, 429, 413
_LONGEST_LENGTH = 18


def admit(handler: JupyterHandler, name: str) -> None:
    """Count a request of this user, or of its address without a user.

    Raises Finish if it was answered with 429.
    """
    guard: LimitGuard | None = handler.settings.get(SETTING)
    address = str(handler.request.remote_ip)
    seconds = 0.0 if guard is None else guard.visit(name, address)
    if guard is None or not seconds:
        if guard is not None and name and isinstance(handler, WebSocketHandler):
            _admit_socket(handler, guard, name)
        return
    limits, wait = guard.limits, math.ceil(seconds)
    # No log line for each: the guard has logged.
    replace_log(handler, _say_nothing)
    refuse_for(
        handler,
        wait,
        f"Too many requests from {name or 'this address'}: {limits.requests_per_second:g} a "
        f"second are allowed, after {limits.requests_burst} at once "
        f"(c.{type(limits).__name__}.{REQUESTS}). Try again in {wait} s",
    )


def refuse_for(handler: JupyterHandler, seconds: float, message: str) -> NoReturn:
    """Answer 429 with the time to wait. An HTTPError would lose that header. Raises Finish."""
    # Set as prepare does when it refuses a host: the log reads the user.
    forget_user(handler)
    handler.set_header("Retry-After", str(math.ceil(seconds)))
    _answer(handler, _TOO_MANY, message)
    raise Finish


def _admit_socket(handler: Any, guard: LimitGuard, name: str) -> None:
    try:
        guard.check_socket(name, handler)
    except LimitError as error:
        forget_user(handler)
        _answer(handler, _REFUSED, str(error))
        raise Finish from error


def install(server: ServerApp, guard: LimitGuard, is_limited: Callable[[str], bool]) -> None:
    """Put the limit before all other handlers, for paths of which *is_limited* is true.

    Uploads have Jupyter's limit.
    """
    app: Any = server.web_app
    limits = guard.limits
    app.settings[SETTING] = guard
    app.settings.setdefault(_MESSAGE_SETTING, limits.message_bytes or sys.maxsize)
    if limits.body_bytes:
        rule = Rule(_Large(limits.body_bytes, is_limited), LargeBodyHandler, {"guard": guard})
        app.default_router.rules.insert(0, rule)


class _Large(Matcher):
    """A matcher of requests whose stated length is too large.

    A body without a length, even an empty one, is read up to the bound: tornado counts, and ends
    the connection.
    """

    def __init__(self, most: int, is_limited: Callable[[str], bool]) -> None:
        self._most = most
        self._is_limited = is_limited

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Called by the application's router, before the body is read."""
        if not self._is_limited(request.path):
            return None
        if "Transfer-Encoding" in request.headers and isinstance(request.connection, HTTP1Connection):
            request.connection.set_max_body_size(self._most)
            return None
        length = request.headers.get("Content-Length", "0")
        # Longer texts are no numbers of bytes, and Python refuses to read the longest.
        is_number = length.isdecimal() and len(length) <= _LONGEST_LENGTH
        return {} if not is_number or int(length) > self._most else None


@stream_request_body
class LargeBodyHandler(RequestHandler):
    """A handler that refuses at once, and keeps nothing of the body."""

    def initialize(self, guard: LimitGuard) -> None:
        """Called by tornado."""
        self._guard = guard

    def check_xsrf_cookie(self) -> None:
        """Called by tornado. A forged request can cause nothing here."""

    def prepare(self) -> None:
        """Called by tornado when it has read the headers."""
        most = self._guard.limits.body_bytes
        self._guard.note(BODY, str(self.request.remote_ip))
        length = self.request.headers.get("Content-Length", "")[:20]
        told = (
            f"The request has a body of {length} bytes, but this server reads at most {most} "
            f"(c.Limits.{BODY}). Send less"
        )
        _answer(self, _TOO_LARGE, told)

    def data_received(self, chunk: bytes) -> None:
        """Called by tornado with the data that comes all the same. Drops it."""


def _answer(handler: RequestHandler, status: int, message: str) -> None:
    handler.set_status(status)
    handler.set_header("Content-Type", "application/json")
    handler.finish(json.dumps({"message": message, "reason": None}))


def _say_nothing() -> None:
    """Log nothing, instead of a line of the access log."""
