"""Measure the report of a month over 200 users, from the accounting's file to JSON and CSV.

Each user has a few sizes on each day of two years. The gateway's own code reads and writes; no
server runs. Bound: a month's report by user takes at most 200 ms.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from pathlib import Path
from random import Random

from report import Row, at_most, publish, read_arguments

from jupyter_aliquot.gateway.accounting.amounts import Amounts, Subject
from jupyter_aliquot.gateway.accounting.book import Book, BookSettings
from jupyter_aliquot.gateway.accounting.database import UsageFile
from jupyter_aliquot.gateway.accounting.days import Calendar, find_zone, period_of
from jupyter_aliquot.gateway.accounting.export import csv_report, json_report
from jupyter_aliquot.gateway.accounting.meter import Moment
from jupyter_aliquot.gateway.accounting.policy import ChargePolicy
from jupyter_aliquot.gateway.accounting.query import Question

_LAST_DAY = period_of(739_000, "month").end - 1
_MOST_MILLISECONDS = 200.0
_LOG = logging.getLogger("usage")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=200, help="how many users there are")
    parser.add_argument("--days", type=int, default=730, help="how many days are in the file")
    parser.add_argument("--rounds", type=int, default=30, help="how many times each report is made")
    arguments = read_arguments(parser, {"users": 10, "days": 40, "rounds": 2})
    with tempfile.TemporaryDirectory(prefix="aq-usage-") as folder:
        path = Path(folder) / "accounting.sqlite"
        fill(path, arguments.users, arguments.days)
        rows = [Row("the file", path.stat().st_size / (1 << 20), "MiB"), *measure(path, arguments.rounds)]
    raise SystemExit(0 if publish(arguments, "usage", "no GPU", rows) else 1)


def fill(path: Path, users: int, days: int) -> None:
    """Write the rows of all users: one or two sizes a day, on five days of seven."""
    random = Random(1)
    file = UsageFile(path, 1 << 30, _LOG)
    for day in range(_LAST_DAY - days + 1, _LAST_DAY + 1):
        sums = {}
        for user in range(users) if day % 7 < 5 else ():
            for size in random.sample(("0.25", "0.5", "1"), random.choice((1, 2))):
                subject = Subject(f"user-{user}", f"team-{user % 12}", size, "normal", "NVIDIA H200")
                amounts = [random.randrange(1 << 31) for _ in range(4)]
                sums[day, subject] = Amounts(*amounts, charged=1000 * amounts[1])
        file.write(sums, (), Moment())
    file.close()


def measure(path: Path, rounds: int) -> list[Row]:
    """Return the times of the reports: median and slowest."""
    calendar = Calendar(find_zone("UTC"))
    book = Book(BookSettings(path, calendar, ChargePolicy(), 731.0, 1 << 30, 10.0), _LOG)
    month, year = period_of(_LAST_DAY, "month"), period_of(_LAST_DAY, "year")
    questions = {
        "a month by user": Question(month, ("user",)),
        "a month by user and day": Question(month, ("user", "day")),
        "a month by team": Question(month, ("team",)),
        "a year by user": Question(year, ("user",)),
    }
    found = []
    for name, question in questions.items():
        times = []
        for turn in range(rounds):
            began = time.perf_counter()
            answer = book.answer(question, float(turn))
            report = json_report(answer, calendar, "wall_time", ()) if turn % 2 == 0 else csv_report(answer)
            times.append(1000 * (time.perf_counter() - began))
            assert report
        found.append(Row(f"{name}, median", statistics.median(times), "ms"))
        slowest = max(times)
        is_bound = name == "a month by user"
        label = f"{name}, slowest"
        found.append(at_most(label, slowest, "ms", _MOST_MILLISECONDS) if is_bound else Row(label, slowest, "ms"))
    book.close(0.0)
    return found


if __name__ == "__main__":
    main()
