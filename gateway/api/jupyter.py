"""Replacements for Jupyter's handlers, which turn every failure of a start into a bare 500.

Each calls its parent, and then answers with the cause of the error. They take their parents'
routes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import quote

from jupyter_client.jsonutil import json_default
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.services.kernels import handlers as kernels, websocket
from jupyter_server.services.kernelspecs import handlers as kernelspecs
from jupyter_server.services.sessions import handlers as sessions
from tornado.web import Finish, HTTPError, RequestHandler, authenticated

from jupyter_aliquot.gateway.auth.identity import user_of
from jupyter_aliquot.gateway.base.http_errors import gateway_words, told
from jupyter_aliquot.gateway.base.startup_gate import WaitsForRecovery
from jupyter_aliquot.gateway.channels.browser_socket import (
    begin_pings,
    end_pings,
    why_unreadable,
    without_tornado_pings,
)
from jupyter_aliquot.gateway.channels.connection import KernelWebsocketConnection
from jupyter_aliquot.gateway.kernels.request_context import replace
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.limits.websocket import MessagePace, SocketEnding, explain_large_messages, message_pace
from jupyter_aliquot.provisioner.errors import AliquotError

from .base import ErrorsAsWritten

# Set in an Aliquot gateway's answer to a request for the user's own kernels. Other gateways ignore
# the argument and list the kernels of all users.
OWNER_HEADER = "Aliquot-Owner"
OWN_KERNELS = {"owner": "me"}

# The fields that these handlers read: strings, in the body itself and in these parts of it.
_STRINGS = ("name", "kernel_id", "id", "path", "type")
_PARTS = ("kernel", "notebook")
_SESSION_PARTS = ("path", "name", "type")


async def with_cause(serve: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Serve the request, and answer an error of Aliquot's with its own status and message.

    This holds for an error that Jupyter wrapped as a defect, too.
    """
    try:
        if (answer := serve(*args)) is not None:
            await answer
    except (AliquotError, NoSuchKernel) as error:
        raise told(error) from error
    except HTTPError as error:
        cause = error.__cause__
        if isinstance(cause, (AliquotError, NoSuchKernel)):
            raise told(cause) from error
        found = cause if error.status_code == 500 and isinstance(cause, HTTPError) else error
        try:
            if said := gateway_words(found.__cause__):
                raise HTTPError(found.status_code, said) from error
            if found.log_message and found.args:
                # Formatted here: Jupyter would answer with the template and hide the arguments.
                raise HTTPError(found.status_code, found.log_message % found.args) from error
            raise found from None
        finally:
            del cause, found  # their frames hold the error, and it holds them: a cycle


def read_body(read: Callable[[], Any]) -> dict[str, Any] | None:
    """Return a body of the form that Jupyter's handlers and our authorizer take for granted.

    Raises HTTPError 400 for any other body.
    """
    try:
        body = read()
    except UnicodeDecodeError as error:
        raise HTTPError(400, f"The body of the request is not UTF-8: {error.reason}. Send JSON in UTF-8") from error
    if body is None:
        return None
    if not isinstance(body, dict):
        raise HTTPError(400, "The body of the request is not a JSON object. Send one")
    parts = {part: body[part] for part in _PARTS if body.get(part) is not None}
    for name, part in {"body": body, **parts}.items():
        if not isinstance(part, dict):
            raise HTTPError(400, f"Requested {name} = {part!r}, which is not a JSON object. Send one")
        for field in _STRINGS:
            if not isinstance(part.get(field), (str, type(None))):
                raise HTTPError(400, f"Requested {field} = {part[field]!r}, which is not a string. Send one")
    env = body.get("env")
    if env is not None and not (isinstance(env, dict) and all(isinstance(value, str) for value in env.values())):
        raise HTTPError(
            400, 'The env of the request is not a JSON object of strings. Send one such as {"KERNEL_PROJECT": "a"}'
        )
    return {name: value for name, value in body.items() if name in parts or name not in _PARTS}


async def refresh_kernelspecs(handler: Any, name: str | None = None) -> None:
    """Look at the kernelspecs in the user's home, before they are listed or one of them starts."""
    if isinstance(specs := handler.kernel_spec_manager, SizedKernelSpecManager):
        await specs.refresh(name)


class KernelsHandler(ErrorsAsWritten, kernels.MainKernelHandler):
    """GET and POST /api/kernels."""

    def get_json_body(self) -> dict[str, Any] | None:
        """Called by Jupyter's handler, and by the authorizer before it."""
        return read_body(super().get_json_body)

    @authenticated
    @authorized
    async def get(self) -> None:
        """Return the kernels; with `?owner=me`, the user's own and those shared with this user.

        A user's servers in gateway mode send this argument.
        """
        manager: Any = self.kernel_manager
        if not hasattr(manager, "sharing") or self.get_query_argument("owner", "") != OWN_KERNELS["owner"]:
            await with_cause(super().get)
            return
        user, owner = user_of(self), user_of(self).name
        listed = [model for model in manager.list_kernels() if manager.sharing.concerns(user, model["id"])]
        self.set_header(OWNER_HEADER, quote(owner))
        self.finish(json.dumps(listed, default=json_default))

    @authenticated
    async def post(self) -> None:
        await refresh_kernelspecs(self, (self.get_json_body() or {}).get("name") or "")
        await with_cause(super().post)


class KernelHandler(ErrorsAsWritten, kernels.KernelHandler):
    """GET and DELETE /api/kernels/{id}."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        await with_cause(super().get, kernel_id)

    @authenticated
    async def delete(self, kernel_id: str) -> None:
        await with_cause(super().delete, kernel_id)


class KernelActionHandler(ErrorsAsWritten, kernels.KernelActionHandler):
    """POST /api/kernels/{id}/restart and /interrupt."""

    @authenticated
    async def post(self, kernel_id: str, action: str) -> None:
        await with_cause(super().post, kernel_id, action)


class KernelSpecsHandler(ErrorsAsWritten, kernelspecs.MainKernelSpecHandler):
    """GET /api/kernelspecs."""

    @authenticated
    @authorized
    async def get(self) -> None:
        await refresh_kernelspecs(self)
        await with_cause(super().get)


class KernelSpecHandler(ErrorsAsWritten, kernelspecs.KernelSpecHandler):
    """GET /api/kernelspecs/{name}."""

    @authenticated
    async def get(self, kernel_name: str) -> None:
        await refresh_kernelspecs(self, kernel_name)
        await with_cause(super().get, kernel_name)


class SessionsHandler(ErrorsAsWritten, sessions.SessionRootHandler):
    """GET and POST /api/sessions."""

    def get_json_body(self) -> dict[str, Any] | None:
        """Called by Jupyter's handler."""
        return read_body(super().get_json_body)

    @authenticated
    async def post(self) -> None:
        kernel = (self.get_json_body() or {}).get("kernel") or {}
        await refresh_kernelspecs(self, kernel.get("name") or "")
        await with_cause(super().post)


class SessionHandler(ErrorsAsWritten, sessions.SessionHandler):
    """GET, PATCH and DELETE /api/sessions/{id}."""

    _started: str | None = None

    def get_json_body(self) -> dict[str, Any] | None:
        """Called by Jupyter's handler.

        A kernel that the body requested by name has started already; the returned body has its id.
        """
        body = read_body(super().get_json_body)
        return body if body is None or self._started is None else {**body, "kernel": {"id": self._started}}

    @authenticated
    @authorized
    async def patch(self, session_id: str) -> None:
        """Change the session; with the name of a kernelspec, start a kernel in place of its kernel.

        Jupyter's handler answers every failure of that start with a 501.
        """
        await with_cause(self._patch, session_id)

    async def _patch(self, session_id: str) -> None:
        body, table = self.get_json_body() or {}, cast(Any, self.session_manager)
        kernel = body.get("kernel") or {}
        if kernel.get("id") is None and kernel.get("name") is not None:
            await refresh_kernelspecs(self, kernel["name"])
            # The other changes come first: a request that is refused starts and ends no kernel.
            await table.update_session(session_id, **{what: body[what] for what in _SESSION_PARTS if what in body})
            before = await table.get_session(session_id=session_id)
            replace(before["kernel"]["id"])
            told = {what: before[what] for what in _SESSION_PARTS}
            self._started = await table.start_kernel_for_session(session_id, kernel_name=kernel["name"], **told)
        await cast(Any, super()).patch(session_id)


class ChannelsHandler(WaitsForRecovery, websocket.KernelWebsocketHandler):
    """The WebSocket /api/kernels/{id}/channels.

    A client that waits with its kernel is told why the kernel never started.
    """

    # Connections that can be disconnected before they opened. Jupyter's own takes each for one that
    # it has counted.
    _ours: tuple[type[Any], ...] = (KernelWebsocketConnection,)
    _pace: MessagePace | None = None
    _ending: SocketEnding | None = None
    # ``is_gone``: the browser disconnected, or the handshake ended without a connection.
    # ``_has_opened``: the socket was opened, so tornado calls `on_close`.
    is_gone = False
    _has_opened = False
    _left: Any = None

    @ws_authenticated
    async def get(self, kernel_id: str) -> None:
        try:
            await with_cause(super().get, kernel_id)
        finally:
            begun = self._left or getattr(self, "connection", None)
            if not self._has_opened and isinstance(begun, self._ours):
                self.on_close()
            self._left = None

    async def pre_get(self) -> None:
        """Called by get. Ends the handshake if the client disconnected while its kernel started."""
        await super().pre_get()  # type: ignore[no-untyped-call]
        if self.is_gone:
            raise Finish

    async def open(self, kernel_id: str) -> None:
        """Called by tornado."""
        self._pace = message_pace(self, user_of(self).name)
        await super().open(kernel_id)  # type: ignore[no-untyped-call]
        self._has_opened = True
        begin_pings(self)

    def on_close(self) -> None:
        """Called by tornado, perhaps before there is a connection, and by `get` if it never opened.

        Idempotent.
        """
        self.is_gone = True
        if (connection := getattr(self, "connection", None)) is not None:
            self._left = None if self._has_opened else connection
            super().on_close()  # type: ignore[no-untyped-call]
        elif isinstance(self._left, self._ours):
            self._left.disconnect()  # begun since the browser disconnected
        end_pings(self)
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.closed()

    def revoke(self) -> None:
        """Called by HubSockets before it closes this websocket, whose token is no longer valid."""
        if isinstance(self.connection, KernelWebsocketConnection):
            self.connection.revoke()

    def on_message(self, ws_message: str | bytes) -> Awaitable[None] | None:
        """Called by tornado, which reads on from the socket when the returned awaitable is done."""
        if self.ws_connection is None:
            return None
        seconds = 0.0 if self._pace is None else self._pace.delay()
        # Messages of other sockets, which wait or have closed since, may leave no room.
        waiting = self._until_room()
        if seconds or waiting is not None:
            return self._handle_later(seconds, waiting, ws_message)
        self._handle(ws_message)
        return self._until_room()

    async def _handle_later(self, seconds: float, waiting: Awaitable[None] | None, ws_message: str | bytes) -> None:
        if self._pace is not None and seconds:
            await self._pace.wait(seconds)
        if waiting is not None:
            await waiting
        if self.connection is not None and self.ws_connection is not None:
            self._handle(ws_message)
            if (more := self._until_room()) is not None:
                await more

    def _until_room(self) -> Awaitable[None] | None:
        """Return what to await before tornado reads on; None if there is room now.

        A relay, or a gateway in gateway mode, may still have much to receive.
        """
        connection = self.connection
        return connection.until_room() if isinstance(connection, self._ours) else None

    def _handle(self, ws_message: str | bytes) -> None:
        """Handle a message of the browser. One that is no Jupyter message closes this socket alone."""
        why = why_unreadable(ws_message, self.selected_subprotocol)
        if not why:
            try:
                super().on_message(ws_message)  # type: ignore[no-untyped-call]
            except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
                why = f"it cannot be read: {type(error).__name__}"
                self.log.debug("websocket=closing", exc_info=True)
        if why:
            self.log.warning("kernel=%s websocket=closed reason=no message of Jupyter's: %s", self.kernel_id, why)
            self.close(1007, f"no Jupyter message: {why}"[:120])

    def get_websocket_protocol(self) -> Any:
        """Called by tornado. A message over the limit closes the socket, and the reason says so."""
        protocol = without_tornado_pings(super().get_websocket_protocol())
        self._ending = explain_large_messages(protocol, self, user_of(self).name)
        return protocol


def replacements() -> list[tuple[str, type[RequestHandler]]]:
    """Return pairs of route and handler, with the routes as Jupyter wrote them."""
    ours = (
        KernelsHandler,
        KernelHandler,
        KernelActionHandler,
        ChannelsHandler,
        KernelSpecsHandler,
        KernelSpecHandler,
        SessionsHandler,
        SessionHandler,
    )
    routes = [*kernels.default_handlers, *kernelspecs.default_handlers, *sessions.default_handlers]
    return [(route, handler) for route, stock in routes for handler in ours if stock in handler.__bases__]
