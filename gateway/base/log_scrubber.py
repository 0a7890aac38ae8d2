"""A log filter that removes tokens: tornado logs the addresses of requests as they came.

The addresses that Jupyter Server prints at its start keep their token: users log in with them.
"""

from __future__ import annotations

import logging
import re

from jupyter_server.serverapp import ServerApp


def _as_sent(letters: str) -> str:
    """Return a pattern of one of these characters, as it is or percent-encoded any number of times."""
    codes = {f"{ord(each):02x}" for letter in letters for each in (letter.lower(), letter.upper())}
    return f"(?:[{re.escape(letters)}]|%(?:25)*(?:{'|'.join(sorted(codes))}))"


_NAME = "".join(map(_as_sent, "token"))
_TOKEN = re.compile(rf"({_as_sent('?&;')}(?:amp;)?{_NAME}{_as_sent('=')})[^&;\s\"'<>)]+", re.IGNORECASE)
_HEADER = re.compile(r"(['\"]Authorization['\"]: ['\"](?:token|bearer) )[^'\"]+", re.IGNORECASE)
_AT_THE_START = "serverapp", ServerApp.start_app.__name__  # it ends before the server answers a request
_LOGGERS = ("tornado.access", "tornado.application", "tornado.general")


class TokenScrubber(logging.Filter):
    """A filter that keeps every record, without the tokens in its message."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by logging. A record without a token is left as it is."""
        if (record.module, record.funcName) == _AT_THE_START:
            return True
        try:
            said = record.getMessage()
        except (TypeError, ValueError):
            return True  # logging itself reports what is wrong with it
        scrubbed = _HEADER.sub(r"\1[secret]", _TOKEN.sub(r"\1[secret]", said))
        if scrubbed != said:
            record.msg, record.args = scrubbed, ()
        return True


def scrub_logs(*others: logging.Logger) -> None:
    """Scrub tornado's loggers and these. Idempotent."""
    for logger in (*map(logging.getLogger, _LOGGERS), *others):
        if not any(isinstance(each, TokenScrubber) for each in logger.filters):
            logger.addFilter(TokenScrubber())
