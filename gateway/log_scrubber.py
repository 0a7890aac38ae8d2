"""Takes tokens out of what the server logs: tornado's own lines show addresses of requests as they came."""

from __future__ import annotations

import logging
import re

_TOKEN = re.compile(r"([?&;](?:amp;)?token=)[^&;\s\"'<>)]+", re.IGNORECASE)
_HEADER = re.compile(r"(['\"]Authorization['\"]: ['\"](?:token|bearer) )[^'\"]+", re.IGNORECASE)
_LOGGERS = ("tornado.access", "tornado.application", "tornado.general")


class TokenScrubber(logging.Filter):
    """Keeps every record, without the tokens in its message."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by logging. A record that holds none is left as it is."""
        try:
            said = record.getMessage()
        except (TypeError, ValueError):
            return True  # logging itself says what is wrong with it
        scrubbed = _HEADER.sub(r"\1[secret]", _TOKEN.sub(r"\1[secret]", said))
        if scrubbed != said:
            record.msg, record.args = scrubbed, ()
        return True


def scrub_logs(*others: logging.Logger) -> None:
    """Have tornado's loggers and these scrubbed. Idempotent."""
    for logger in (*map(logging.getLogger, _LOGGERS), *others):
        if not any(isinstance(each, TokenScrubber) for each in logger.filters):
            logger.addFilter(TokenScrubber())
