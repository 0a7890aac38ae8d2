"""REST of the accounting. Parses a request, queries the accounting and answers.

Users see their own GPU time and the budgets that count for them, administrators see all.
"""

from __future__ import annotations

import asyncio

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, authenticated

from jupyter_aliquot.gateway.accounting.days import Calendar, Span, period_of
from jupyter_aliquot.gateway.accounting.export import csv_report, json_report
from jupyter_aliquot.gateway.accounting.query import Question, read_groups
from jupyter_aliquot.gateway.accounting.recorder import UsageAccounting
from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.provisioner.errors import AliquotError, RequestError, StateError

from .base import AliquotHandler
from .formats import wants_csv

_MOST_NAMES = 100
_PARAMETERS = ("month", "from", "to", "by", "user", "team", "format")


class UsageHandler(AliquotHandler):
    """Answer how many GPU-hours were used, by user, team, size, priority, GPU model or day."""

    asking: asyncio.Future[str] | None = None

    @authenticated
    @authorized
    async def get(self) -> None:
        accounting, quotas = self.sources.accounting, self.sources.quotas
        if accounting is None or quotas is None:
            raise HTTPError(503, "This server counts no GPU time, for its kernels are a gateway's: ask that one")
        if accounting.settings is None:
            raise HTTPError(503, "This server counts no GPU time, for c.Accounting.enabled is off")
        calendar, policy = accounting.settings.calendar, accounting.settings.policy
        is_csv = wants_csv(self)
        try:
            question = self.question(calendar, accounting)
        except AliquotError as error:
            raise http_error(error) from error
        if refusal := accounting.refusal(self.requester.name):
            self.set_status(429)
            self.set_header("Retry-After", "1")  # an HTTPError would lose it
            self.answer({"message": refusal, "reason": None})
            return
        budgets = accounting.budgets_of(self.requester, is_for_all=self.requester.is_admin)
        self.asking = asyncio.ensure_future(
            accounting.ask(
                self.requester.name,
                question,
                lambda answer: csv_report(answer) if is_csv else json_report(answer, calendar, policy.basis, budgets),
            )
        )
        text = await self.answered(self.asking)
        self.set_header("Cache-Control", "no-store")
        if is_csv:
            first, end = calendar.iso(question.span.first)[:10], calendar.iso(question.span.end)[:10]
            self.set_header("Content-Disposition", f'attachment; filename="aliquot-usage-{first}-{end}.csv"')
        self.finish(text, set_content_type="text/csv; charset=utf-8" if is_csv else "application/json")

    async def answered(self, asking: asyncio.Future[str]) -> str:
        """Return the answer. Raises HTTPError."""
        try:
            return await asking
        except StateError as error:
            raise HTTPError(503, str(error)) from error
        except RequestError as error:
            raise http_error(error) from error
        except asyncio.CancelledError:
            raise HTTPError(503, "The server stops, or the client has left") from None

    def on_connection_close(self) -> None:
        """End the reading for a client that left. Called by tornado."""
        if self.asking is not None:
            self.asking.cancel()
        super().on_connection_close()

    def question(self, calendar: Calendar, accounting: UsageAccounting) -> Question:
        """Return the request as a question to the accounting. Raises RequestError."""
        for name in self.request.query_arguments:
            # Jupyter's own clients add the time, so that no cache answers.
            if name not in (*_PARAMETERS, "token") and not name.isdigit():
                raise RequestError(
                    f"Requested {name[:40]!r}, which does not exist. Use one of {', '.join(_PARAMETERS)}"
                )
        who, quotas = self.requester, self.sources.quotas
        users, teams = self.names("user"), self.names("team")
        if not who.is_admin:
            others = users - {who.name}
            if others:
                raise HTTPError(403, f"Requested the GPU time of {min(others)[:40]!r}. Only administrators see others'")
            users = frozenset({who.name})
        in_force = None if quotas is None else quotas.file.quotas
        former = {} if in_force is None else in_force.present_names
        by = read_groups(self.get_query_arguments("by") or ["user"])
        return Question(self.span(calendar, accounting), by, users, teams, former)

    def span(self, calendar: Calendar, accounting: UsageAccounting) -> Span:
        """Return the days of the request; the present month without any. Raises RequestError."""
        # An empty value is no month and no day, either: the contract's patterns refuse it.
        month, begin, end = (self.get_query_argument(name, None, strip=False) for name in ("month", "from", "to"))
        if month is not None:
            if begin is not None or end is not None:
                raise RequestError("Requested a month together with from or to. Use a month, or from and to")
            return calendar.month(month)
        if begin is not None and end is not None:
            return calendar.span(begin, end)
        if begin is not None or end is not None:
            there, lacking = ("from", "to") if end is None else ("to", "from")
            raise RequestError(f"Requested {there} without {lacking}. Add {lacking}, or use a month such as 2026-11")
        return period_of(accounting.today, "month")

    def names(self, name: str) -> frozenset[str]:
        """Return the values of a parameter that may be repeated. Raises RequestError."""
        found = frozenset(self.get_query_arguments(name, strip=False))
        if len(found) > _MOST_NAMES:
            raise RequestError(
                f"Requested {len(found)} of {name}, but one answer has at most {_MOST_NAMES}. Request fewer"
            )
        return found
