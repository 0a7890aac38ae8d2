"""REST of the usage history. Parses a request, queries the history and answers.

Users see their own kernels, administrators see all kernels, and every user sees the devices.
"""

from __future__ import annotations

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, authenticated

from jupyter_aliquot.gateway.history.buckets import RANGES
from jupyter_aliquot.gateway.history.export import csv_report, json_report
from jupyter_aliquot.gateway.history.query import Question
from jupyter_aliquot.provisioner.errors import StateError

from .base import AliquotHandler
from .formats import refusal, wants_csv

_MOST_IDS = 100


class HistoryHandler(AliquotHandler):
    """Answer how much of each device was used, by which kernels, over the last hour, day or week."""

    @authenticated
    @authorized
    async def get(self) -> None:
        question, is_csv = self.question(), wants_csv(self)
        history = self.sources.history
        if history is None:
            raise HTTPError(503, "This server keeps no history, for its kernels are a gateway's: ask that one")
        requester = self.requester
        labels = {
            (kernel.id, kernel.owner): kernel.label
            for kernel in self.sources.snapshot(requester).kernels
            if kernel.label
        }
        report = csv_report if is_csv else json_report
        try:
            text = await history.ask(question, lambda answer: report(answer, labels))
        except StateError as error:
            raise HTTPError(503, str(error)) from error
        self.send(text, is_csv, question.range.name)

    def question(self) -> Question:
        """Return the request as a question to the history. Raises HTTPError 400."""
        name = self.get_query_argument("range", "hour")
        if name not in RANGES:
            raise HTTPError(400, refusal("range", name, tuple(RANGES)))
        kernels, devices = self.get_query_arguments("kernel"), self.get_query_arguments("device")
        if (named := len(kernels) + len(devices)) > _MOST_IDS:
            raise HTTPError(
                400, f"Requested {named} kernels and devices, but one answer has at most {_MOST_IDS}. Request fewer"
            )
        requester = self.requester
        return Question(RANGES[name], requester.name, requester.is_admin, tuple(kernels), tuple(devices))

    def send(self, text: str, is_csv: bool, name: str) -> None:
        self.set_header("Cache-Control", "no-store")
        if is_csv:
            self.set_header("Content-Disposition", f'attachment; filename="aliquot-history-{name}.csv"')
        self.finish(text, set_content_type="text/csv; charset=utf-8" if is_csv else "application/json")
