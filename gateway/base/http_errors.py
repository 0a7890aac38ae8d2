"""The one translation of the exception tree to HTTP: a table from AliquotError to status."""

from __future__ import annotations

import json

from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError

from jupyter_aliquot.provisioner import errors

_MOST_WORDS = 2000

HTTP_STATUS: dict[type[errors.AliquotError], int] = {
    errors.AliquotError: 500,
    errors.RequestError: 400,
    errors.SizeNameError: 404,
    errors.TakenError: 409,
    errors.NeverFitsError: 409,
    errors.GrantError: 409,
    errors.NoRoomError: 503,
    errors.QueueTimeoutError: 503,
    errors.WithdrawnError: 410,
    errors.LimitError: 403,
    errors.UnknownUseError: 503,
    errors.GrantLostError: 409,
    errors.AgentError: 503,
    errors.AgentUnavailableError: 503,
    errors.AgentProtocolError: 502,
    errors.DeviceLostError: 503,
    errors.RelayError: 500,
    errors.RelayUnavailableError: 503,
    errors.RelayProtocolError: 502,
    errors.RelayRefusedError: 500,
    errors.EngineError: 503,
    errors.EngineUnavailableError: 503,
    errors.LaunchError: 500,
    errors.AccountError: 403,
    errors.FolderError: 409,
    errors.InterceptionError: 500,
    errors.HubError: 503,
    errors.HubAwayError: 503,
    errors.TooManyTokensError: 429,
    errors.StateError: 500,
}


def http_error(error: errors.AliquotError) -> HTTPError:
    """Return an HTTPError with the same message.

    Its status is that of the narrowest class in the table.
    """
    status = next(HTTP_STATUS[kind] for kind in type(error).__mro__ if kind in HTTP_STATUS)
    return HTTPError(status, str(error))


def told(error: BaseException) -> HTTPError:
    """Return the HTTPError whose message is this error's own."""
    if isinstance(error, errors.AliquotError):
        return http_error(error)
    return HTTPError(404, str(error))


def gateway_words(error: BaseException | None) -> str:
    """Return the message with which a gateway refused a request; empty if it had none."""
    try:
        response = error.response if isinstance(error, HTTPClientError) else None
        message = json.loads(response.body)["message"] if response else ""
    except (ValueError, KeyError, TypeError):
        return ""
    return message[:_MOST_WORDS] if isinstance(message, str) else ""
