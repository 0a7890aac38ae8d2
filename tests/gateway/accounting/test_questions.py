"""Questions to the accounting: they keep no look waiting, are bounded, and end when they are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.accounting import query
from jupyter_aliquot.gateway.accounting.amounts import UNITS_PER_HOUR, Amounts, Subject
from jupyter_aliquot.gateway.accounting.book import Unwritten
from jupyter_aliquot.gateway.accounting.database import UsageFile
from jupyter_aliquot.gateway.accounting.days import period_of
from jupyter_aliquot.gateway.accounting.looks import Part
from jupyter_aliquot.gateway.accounting.meter import Moment
from jupyter_aliquot.gateway.accounting.query import Answer, Question, answer
from jupyter_aliquot.gateway.accounting.questions import Questions, _read
from jupyter_aliquot.gateway.base.private_database import open_for_reading
from jupyter_aliquot.provisioner.errors import RequestError, StateError

from .life import HOUR, LOG, Life, part, settings

PATIENCE = 60.0


class Desk:
    """The questions to a life's book, with the book's thread."""

    def __init__(self, path: Path | None) -> None:
        self.life = Life(settings(path))
        self.writer = ThreadPoolExecutor(max_workers=1)
        self.questions = Questions(self.life.book, path is None, self.writer)
        self.question = Question(period_of(self.life.settings.calendar.day_of(self.life.wall), "year"))
        # Answers are held up until it is set.
        self.go_on = threading.Event()
        self.is_reading = threading.Event()

    async def look(self, parts: Iterable[Part] = ()) -> None:
        await asyncio.get_running_loop().run_in_executor(self.writer, self.life.look, parts)

    def ask(self, user: str, render: Callable[[Answer], Any]) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.questions.ask(user, self.question, self.life.monotonic / 1000, render))

    def hold_up(self, found: Answer) -> Answer:
        self.is_reading.set()
        assert self.go_on.wait(PATIENCE)
        return found


@contextlib.asynccontextmanager
async def a_desk(path: Path | None) -> AsyncIterator[Desk]:
    desk = Desk(path)
    try:
        yield desk
    finally:
        desk.go_on.set()
        desk.questions.stop()
        await asyncio.get_running_loop().run_in_executor(desk.writer, desk.life.book.close, 0.0)
        desk.writer.shutdown()


def on_gpu(found: Answer) -> float:
    return found.total.amounts.on_gpu / UNITS_PER_HOUR


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_a_slow_question_keeps_no_look_waiting(tmp_path: Path, is_in_memory: bool) -> None:
    async def live() -> None:
        async with a_desk(None if is_in_memory else tmp_path / "accounting.sqlite") as desk:
            await desk.look()
            slow = [desk.ask("alice", desk.hold_up) for _ in range(4)]
            await asyncio.get_running_loop().run_in_executor(None, desk.is_reading.wait, PATIENCE)
            born = desk.life.wall
            for _ in range(3):
                desk.life.go(HOUR)
                await desk.look([part(hundredths=100, began=born)])
            assert await desk.ask("bob", on_gpu) == 3.0
            desk.go_on.set()
            assert len(await asyncio.gather(*slow)) == 4

    asyncio.run(live())


def test_a_user_has_few_questions_under_way_and_others_have_theirs(tmp_path: Path) -> None:
    async def live() -> None:
        async with a_desk(tmp_path / "accounting.sqlite") as desk:
            await desk.look()
            asked = []
            while not desk.questions.refusal("alice"):
                asked.append(desk.ask("alice", desk.hold_up))
                await asyncio.sleep(0)
            assert len(asked) == 4
            assert "4 such requests of yours are under way" in desk.questions.refusal("alice")
            for user in map("user {}".format, range(100)):
                if desk.questions.refusal(user):
                    break
                asked.append(desk.ask(user, desk.hold_up))
                await asyncio.sleep(0)
            assert len(asked) == 32
            assert "of all users are under way" in desk.questions.refusal("bob")
            for one in asked[1:]:
                one.cancel()
            await asyncio.wait(asked[1:])
            assert desk.questions.refusal("alice") == desk.questions.refusal("bob") == ""
            desk.go_on.set()
            await asked[0]

    asyncio.run(live())


def test_the_end_of_the_server_waits_for_no_question(tmp_path: Path) -> None:
    async def live() -> None:
        async with a_desk(tmp_path / "accounting.sqlite") as desk:
            await desk.look()
            slow = [desk.ask(user, desk.hold_up) for user in ("alice", "bob", "carol", "dan")]
            await asyncio.get_running_loop().run_in_executor(None, desk.is_reading.wait, PATIENCE)
            desk.questions.stop()
            desk.go_on.set()
            found = await asyncio.gather(*slow, return_exceptions=True)
            assert any(isinstance(one, BaseException) for one in found)

    asyncio.run(live())


SUBJECTS = [
    Subject(f"u{number}", f"t{number % 3}", size, "normal", "H200") for number in range(8) for size in ("0.25", "1")
]
FIRST = 739_000
DAYS = 40


@pytest.fixture
def a_file(tmp_path: Path) -> Path:
    """A file with rows of all subjects on each of forty days."""
    path = tmp_path / "accounting.sqlite"
    file = UsageFile(path, 1 << 30, LOG)
    for day in range(FIRST, FIRST + DAYS):
        rows = {(day, subject): Amounts(day, 2 * n, n, n % 3, 7 * day + n) for n, subject in enumerate(SUBJECTS)}
        file.write(rows, (), Moment())
    file.close()
    return path


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("by", [("user",), ("day",), ("team", "day"), ("size", "user"), ()])
def test_an_answer_is_the_sum_of_its_rows_however_they_are_read(
    a_file: Path, monkeypatch: pytest.MonkeyPatch, few: int, by: tuple[str, ...]
) -> None:
    monkeypatch.setattr(query, "_FEW_SUBJECTS", few)
    asked = Question(query.Span(FIRST + 2, FIRST + 33), by, frozenset({"u1", "u2", "u7"}), frozenset({"t1", "new"}))
    asked = Question(asked.span, by, asked.users, asked.teams, {"t2": "new"})
    want: dict[tuple[str, ...], Amounts] = {}
    for day in range(FIRST + 2, FIRST + 33):
        for n, subject in enumerate(SUBJECTS):
            if asked.wants(subject):
                key = asked.key(day, subject)
                want[key] = want.get(key, Amounts()) + Amounts(day, 2 * n, n, n % 3, 7 * day + n)
    with contextlib.closing(open_for_reading(a_file)) as database:
        found = answer(asked, database, {})
    assert {key: sums.amounts for key, sums in found.rows} == want
    assert (len(want) > 0, found.first_day) == (True, FIRST)


def test_an_answer_of_too_many_rows_is_refused(a_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MOST_ROWS", 50)
    span = query.Span(FIRST, FIRST + DAYS)
    with contextlib.closing(open_for_reading(a_file)) as database:
        assert len(answer(Question(span, ("user",)), database, {}).rows) == 8
        with pytest.raises(RequestError, match="Request fewer days"):
            answer(Question(span, ("user", "day")), database, {})


def test_a_question_that_was_cancelled_ends_its_reading(a_file: Path) -> None:
    stop, asked = threading.Event(), Question(query.Span(FIRST, FIRST + DAYS), ("user", "day"))
    assert len(_read(asked, Unwritten(a_file, {}, 0), stop).rows) == 8 * DAYS
    stop.set()
    with pytest.raises(StateError, match="interrupted"):
        _read(asked, Unwritten(a_file, {}, 0), stop)


def test_reading_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="unable to open"):
        _read(Question(query.Span(1, 2)), Unwritten(tmp_path / "none.sqlite", {}, 0), threading.Event())
    assert list(tmp_path.iterdir()) == []
