"""Ask the gateway's local socket for a grant: one request a connection, JSON lines both ways.

    requester    {"op": "ask", "version": 1, "kernel_id", "label", "kernelspec", "wait_seconds", request fields}
    gateway  {"event": "waiting", "reason", "position", "length"} …, then {"ok": true, "grant"} or
             {"ok": false, "code", "message"}
    requester    {"op": "bound", "pid", "start_time_ticks"}, {"op": "release"}; each answered {"ok": true}

The open connection holds the grant. A requester whose connection was lost takes its grant up again
with {"op": "hold", "version": 1, "kernel_id"} in place of "ask". The owner is the peer's user, by its
socket: no peer can name another user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.base.unix_sockets import open_connection
from jupyter_aliquot.gpu_hook.waiting import within
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.resources import Grant, Request

from .codec import read_grant, request_record

VERSION = 1
LONGEST_LINE = 1 << 20
LONGEST_QUESTION = 1 << 14  # all that a requester says in one line
# The gateway gets this much longer than the requester waits, to give its reason.
_ANSWER_SECONDS = 5.0
_CONNECT_SECONDS = 10.0

_CODES: dict[str, type[errors.AliquotError]] = {
    "account": errors.AccountError,
    "bad_request": errors.RequestError,
    "never_fits": errors.NeverFitsError,
    "conflict": errors.GrantError,
    "queue_timeout": errors.QueueTimeoutError,
    "withdrawn": errors.WithdrawnError,
    "limit": errors.LimitError,
    "agent_unavailable": errors.AgentUnavailableError,
    "device_lost": errors.DeviceLostError,
    "internal": errors.AgentError,
}


def error_record(error: errors.AliquotError) -> dict[str, Any]:
    """Return the refusal as it goes over the socket."""
    names = {kind: code for code, kind in _CODES.items()}
    code = next((names[kind] for kind in type(error).__mro__ if kind in names), "internal")
    return {"ok": False, "code": code, "message": str(error)}


def read_error(record: Mapping[str, Any]) -> errors.AliquotError:
    """Return the refusal in a record, the inverse of error_record."""
    kind = _CODES.get(str(record.get("code")), errors.AgentProtocolError)
    return kind(str(record.get("message", "the gateway gave no reason")))


class NoGatewayError(Exception):
    """No gateway listens there, or it ended before it answered: ask elsewhere."""


class GatewayConnection:
    """One connection to the gateway's local socket, and the grant that it holds.

    It is bound to the running loop.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> GatewayConnection:
        """Connect to the gateway. Raises NoGatewayError."""
        try:
            return cls(*await open_connection(path, limit=LONGEST_LINE, seconds=_CONNECT_SECONDS))
        except asyncio.TimeoutError:
            raise NoGatewayError(f"the gateway at {path} took no connection within {_CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise NoGatewayError(f"no gateway answers at {path}: {error}") from error

    async def ask(
        self,
        kernel_id: str,
        request: Request,
        label: str,
        kernelspec: str,
        wait_seconds: float,
        on_wait: Callable[[str], None] = lambda told: None,
    ) -> Grant:
        """Queue a request at the gateway, and wait. *on_wait* is told the place in the queue, and why.

        Raises GrantError, RequestError, AccountError, NoGatewayError.
        """
        question = {
            "op": "ask",
            "version": VERSION,
            "kernel_id": kernel_id,
            "label": label,
            "kernelspec": kernelspec,
            "wait_seconds": wait_seconds,
            **request_record(request),
        }
        try:
            return await within(self._ask(question, on_wait), wait_seconds + _ANSWER_SECONDS)
        except asyncio.TimeoutError:
            raise errors.QueueTimeoutError(
                f"Requested {request.gpus} GPU, but the gateway did not answer within {wait_seconds:g} s. "
                "See its log, or 'aliquot doctor'"
            ) from None

    async def hold(self, kernel_id: str) -> Grant:
        """Take a grant up again whose connection was lost. Raises AliquotError, NoGatewayError."""
        try:
            return await within(
                self._ask({"op": "hold", "version": VERSION, "kernel_id": kernel_id}, lambda told: None),
                _ANSWER_SECONDS,
            )
        except asyncio.TimeoutError:
            raise NoGatewayError(f"the gateway did not answer within {_ANSWER_SECONDS:g} s") from None

    async def bound(self, pid: int, start_time_ticks: int) -> None:
        """Report the kernel's process: its end ends the grant if this connection closes before."""
        await self._send({"op": "bound", "pid": pid, "start_time_ticks": start_time_ticks})

    async def release(self) -> None:
        """End the grant, and wait until the gateway has done so."""
        await self._send({"op": "release"})
        while (answer := await self._receive()).get("released") is None:
            if answer.get("ok") is False:
                raise read_error(answer)

    async def lost(self) -> None:
        """Return when the gateway has closed the connection. No other task may read meanwhile."""
        with contextlib.suppress(NoGatewayError):
            while True:
                await self._receive()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, question: Mapping[str, Any], on_wait: Callable[[str], None]) -> Grant:
        await self._send(question)
        while True:
            answer = await self._receive()
            if answer.get("event") == "waiting":
                on_wait(_place(answer))
            if answer.get("ok") is True and "grant" in answer:
                return read_grant(answer["grant"])
            if answer.get("ok") is False:
                raise read_error(answer)

    async def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise NoGatewayError(f"the gateway closed the connection: {error}") from error

    async def _receive(self) -> dict[str, Any]:
        try:
            line = await self._reader.readline()
            message = json.loads(line) if line else None
        except (OSError, ValueError) as error:
            raise NoGatewayError(f"the gateway's answer cannot be read: {error}") from error
        if not isinstance(message, dict):
            raise NoGatewayError("the gateway closed the connection")
        return message


def _place(event: Mapping[str, Any]) -> str:
    """Return the place in the queue, and why the request waits, as a sentence."""
    reason = str(event.get("reason", ""))
    if "position" not in event:  # a gateway of before
        return reason
    return f"Number {event['position']} of {event.get('length')} in the queue. {reason}"
