"""Requests of a server in gateway mode to its gateway's /aliquot/api/v1.

They carry the credentials of the server's user. The gateway's errors are passed on as they are;
errors of a gateway that is away, or has no Aliquot, say so.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from jupyter_server.gateway.gateway_client import GatewayClient, gateway_request
from jupyter_server.utils import url_path_join
from tornado.escape import json_decode
from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.web import HTTPError
from tornado.websocket import WebSocketClientConnection, WebSocketError, websocket_connect

from jupyter_aliquot.gateway.base.http_errors import gateway_words
from jupyter_aliquot.gpu_hook.waiting import within

from .token_guard import UntrustedGatewayError

# Below the timeout of a browser that asks this server; the client alone would retry for half a
# minute.
_ANSWER_SECONDS = 5.0
# A gateway whose machine went away closes no connection: missing pongs reveal it.
PING_SECONDS = 30.0
_AWAY = 503
_NOT_FOUND = 404


async def send_to_gateway(path: str, **request: Any) -> HTTPResponse:
    """Return the gateway's answer to a request for this path, below the gateway's URL.

    Raises:
        HTTPError: The gateway's own refusal; 404 where it has no Aliquot; 503 where it does not
            answer.
    """
    url = url_path_join(GatewayClient.instance().url or "", path)
    try:
        return await within(gateway_request(url, **request), _ANSWER_SECONDS)
    except (asyncio.TimeoutError, OSError, ValueError) as error:
        raise _away(error) from error
    except UntrustedGatewayError:
        raise
    except HTTPError as error:
        cause = error.__cause__
        raise (_told(cause) if isinstance(cause, HTTPClientError) else _away(cause or error)) from error


def read_json(answer: HTTPResponse, path: str) -> Any:
    """Return what the gateway's answer holds. Raises HTTPError 503 where it is no JSON."""
    try:
        return json_decode(answer.body)
    except ValueError as error:
        raise HTTPError(
            _AWAY, f"Requested {path} of the gateway, but its answer is not JSON: {error!r}. See the gateway's log"
        ) from error


async def open_events() -> WebSocketClientConnection:
    """Return the gateway's stream of events. Raises HTTPError as `send_to_gateway` does."""
    client = GatewayClient.instance()
    url = url_path_join(client.ws_url or "", "aliquot/api/v1/events")
    request = HTTPRequest(url, **client.load_connection_args())  # type: ignore[no-untyped-call]
    opening = asyncio.ensure_future(websocket_connect(request, ping_interval=PING_SECONDS))
    try:
        return await within(asyncio.shield(opening), _ANSWER_SECONDS)
    except HTTPClientError as error:
        raise _told(error) from error
    except WebSocketError as error:
        raise _no_aliquot() from error
    except (asyncio.TimeoutError, OSError, ValueError) as error:
        raise _away(error) from error
    finally:
        if not opening.done():
            opening.add_done_callback(_close)


def _close(opening: asyncio.Future[WebSocketClientConnection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _told(error: HTTPClientError) -> HTTPError:
    """Return the gateway's error in its own words.

    A gateway that answers 404 without a message has no Aliquot; the error says so.
    """
    if error.code == 599:
        return _away(error)
    if message := gateway_words(error):
        return HTTPError(error.code, message)
    if error.code == _NOT_FOUND:
        return _no_aliquot()
    return HTTPError(error.code, f"the gateway at {_place()} answered {error.code} {error.message}")


def _no_aliquot() -> HTTPError:
    return HTTPError(
        _NOT_FOUND, f"the gateway at {_place()} has no Aliquot, and gives no GPUs by size. Its kernels work as ever"
    )


def _away(error: BaseException) -> HTTPError:
    reason = str(getattr(error, "strerror", None) or error or repr(error))
    if isinstance(error, socket.gaierror):
        reason = "its name is not known"
    elif isinstance(error, asyncio.TimeoutError):
        reason = f"nothing came within {_ANSWER_SECONDS:g} s"
    text = f"the gateway at {_place()} does not answer: {reason}. Try again when it is back"
    return HTTPError(_AWAY, text)


def _place() -> str:
    return str(GatewayClient.instance().url or "")
