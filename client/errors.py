"""The errors of the client. A server's refusal carries the server's own words.

ClientError
 ├── NoAnswerError           no answer came: no connection, or the time was over
 ├── AnswerError             an answer came that is not one of this API
 └── RefusedError            the server refused; status, message, reason
      ├── InvalidRequestError    the request is wrong                      400, 413
      ├── NotAllowedError        no login, no permission, or over a limit  401, 403, a login page
      ├── NotFoundError          no such thing, or it is another user's    404
      ├── ConflictError          the present state does not allow it       409
      ├── WithdrawnError         the request left the queue                410
      ├── TooManyRequestsError   wait for `retry_after_seconds`            429
      └── ServerError            the gateway, its node agent, or a proxy   5xx
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors that the client raises on purpose."""


class NoAnswerError(ClientError):
    """No answer came. The server may have done what was requested."""


class AnswerError(ClientError):
    """The answer is not one of this API.

    Another program listens there, or the gateway is older than this client.
    """


class RefusedError(ClientError):
    """The server refused the request. The text of the error is the server's message, and the client's advice.

    Attributes:
        status: The HTTP status.
        message: The server's words, or the client's where a proxy answered.
        reason: The server's word for the case; None where it gave none.
        retry_after_seconds: The wait that the server asked for; None where it asked for none.
    """

    def __init__(
        self,
        status: int,
        message: str,
        reason: str | None = None,
        retry_after_seconds: float | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(f"{message}: {advice}" if advice else message)
        self.status = status
        self.message = message
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class InvalidRequestError(RefusedError):
    """The request itself is wrong: sending it again will not help."""


class NotAllowedError(RefusedError):
    """The server does not know the token, or its user may not do this."""


class NotFoundError(RefusedError):
    """There is no such thing, or it is another user's."""


class ConflictError(RefusedError):
    """The present state does not allow the request."""


class WithdrawnError(RefusedError):
    """The request was withdrawn while it waited in the queue."""


class TooManyRequestsError(RefusedError):
    """The server admits no more requests for now."""


class ServerError(RefusedError):
    """The gateway, its node agent, or a proxy before them could not serve the request."""


REFUSALS: dict[int, type[RefusedError]] = {
    400: InvalidRequestError,
    401: NotAllowedError,
    403: NotAllowedError,
    404: NotFoundError,
    409: ConflictError,
    410: WithdrawnError,
    413: InvalidRequestError,
    429: TooManyRequestsError,
}


def refusal_of(status: int) -> type[RefusedError]:
    """Return the error for this HTTP status."""
    if 300 <= status < 400:
        return NotAllowedError
    return ServerError if status >= 500 else REFUSALS.get(status, RefusedError)
