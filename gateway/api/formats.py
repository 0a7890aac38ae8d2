"""The form of an answer that has two: JSON for programs, CSV for tables."""

from __future__ import annotations

from tornado.web import HTTPError, RequestHandler

_FORMATS = ("json", "csv")


def wants_csv(handler: RequestHandler) -> bool:
    """Return whether the client requests CSV, by `format`, else by the header Accept.

    Raises HTTPError 400.
    """
    name = handler.get_query_argument("format", "")
    if name and name not in _FORMATS:
        raise HTTPError(400, refusal("format", name, _FORMATS))
    accepted = handler.request.headers.get("Accept", "").partition(",")[0].partition(";")[0].strip()
    return name == "csv" or (not name and accepted == "text/csv")


def refusal(what: str, asked: str, wanted: tuple[str, ...]) -> str:
    """Return why a value of a parameter is refused."""
    return f"Requested the {what} {asked[:40]!r}, which does not exist. Use one of {', '.join(wanted)}"
