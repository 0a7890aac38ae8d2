"""The Hub's answers about tokens: how long they count, and how seldom the gateway asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jupyter_aliquot.gateway.hub_service.token_cache import CheckLimits, TokenChecks
from jupyter_aliquot.provisioner.errors import HubAwayError, TooManyTokensError

ALICE = {"name": "alice"}


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class AHub:
    """A Hub that knows tokens, counts questions, and can be away."""

    def __init__(self, **users: dict[str, Any]) -> None:
        self.users = users
        self.questions: list[str] = []
        self.is_away = False
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def ask(self, token: str) -> dict[str, Any] | None:
        self.questions.append(token)
        await asyncio.sleep(0)
        await self.hangs.wait()
        if self.is_away:
            raise HubAwayError("away")
        return self.users.get(token)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def checks(hub: AHub, clock: HandClock, **limits: Any) -> TokenChecks:
    return TokenChecks(hub.ask, clock, CheckLimits(**limits))


def test_many_requests_at_once_are_one_question() -> None:
    async def scenario() -> None:
        hub = AHub(a=ALICE)
        tokens = checks(hub, HandClock())
        answers = await asyncio.gather(*(tokens.model_of("a") for _ in range(500)))
        assert answers == [ALICE] * 500
        assert hub.questions == ["a"]

    run(scenario)


def test_a_request_that_goes_away_takes_nobodys_answer_with_it() -> None:
    async def scenario() -> None:
        hub = AHub(a=ALICE)
        tokens = checks(hub, HandClock())
        first, second = (asyncio.create_task(tokens.model_of("a")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == ALICE
        assert hub.questions == ["a"]

    run(scenario)


def test_a_revoked_token_counts_no_longer_than_the_recheck() -> None:
    async def scenario() -> None:
        hub, clock = AHub(a=ALICE), HandClock()
        tokens = checks(hub, clock, recheck_seconds=30)
        assert await tokens.model_of("a") == ALICE
        del hub.users["a"]
        clock.seconds += 29
        assert await tokens.model_of("a") == ALICE
        clock.seconds += 1
        assert await tokens.model_of("a") is None
        assert await tokens.model_of("a") is None
        assert hub.questions == ["a", "a"]

    run(scenario)


def test_while_the_hub_is_away_known_tokens_count_for_a_bounded_time_and_others_never() -> None:
    async def scenario() -> None:
        hub, clock = AHub(a=ALICE, b={"name": "bob"}), HandClock()
        tokens = checks(hub, clock, recheck_seconds=30, hub_away_seconds=100)
        assert await tokens.model_of("a") == ALICE
        assert await tokens.model_of("wrong") is None
        hub.is_away = True
        clock.seconds += 129
        assert await tokens.model_of("a") == ALICE
        assert await tokens.model_of("wrong") is None
        with pytest.raises(HubAwayError):
            await tokens.model_of("b")
        clock.seconds += 1
        with pytest.raises(HubAwayError):
            await tokens.model_of("a")
        hub.is_away = False
        clock.seconds += 1
        assert await tokens.model_of("b") == {"name": "bob"}

    run(scenario)


def test_an_away_hub_is_asked_once_a_moment_and_not_by_each_request() -> None:
    async def scenario() -> None:
        hub = AHub()
        hub.is_away = True
        tokens = checks(hub, HandClock())
        for number in range(100):
            with pytest.raises(HubAwayError):
                await tokens.model_of(f"token-{number}")
        assert len(hub.questions) == 1

    run(scenario)


def test_nobody_known_waits_for_a_hub_that_hangs_and_its_return_counts_at_once() -> None:
    async def scenario() -> None:
        hub, clock = AHub(a=ALICE), HandClock()
        tokens = checks(hub, clock, recheck_seconds=30, hub_away_seconds=100)
        assert await tokens.model_of("a") == ALICE
        hub.is_away = True
        clock.seconds += 31
        assert await tokens.model_of("a") == ALICE
        hub.hangs.clear()
        clock.seconds += 2
        assert await asyncio.wait_for(tokens.model_of("a"), 60) == ALICE
        hub.is_away = False
        del hub.users["a"]
        hub.hangs.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert await tokens.model_of("a") is None

    run(scenario)


def test_a_storm_of_wrong_tokens_is_cut_off_by_address_and_in_all() -> None:
    async def scenario() -> None:
        hub, clock = AHub(a=ALICE, b={"name": "bob"}), HandClock()
        tokens = checks(hub, clock, wrong_per_address=10, wrong_per_minute=25, questions_at_once=4)
        assert await tokens.model_of("a", "10.0.0.1") == ALICE
        asked = [tokens.model_of(f"wrong-{n}", f"10.0.1.{n % 5}") for n in range(2000)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(answer) for answer in answers} == {type(None), TooManyTokensError}
        want_most = 1 + 25 + 4  # 4 questions were on their way when the last one was counted
        assert len(hub.questions) <= want_most
        clock.seconds += 31
        assert await tokens.model_of("a", "10.0.1.1") == ALICE
        with pytest.raises(TooManyTokensError, match="in 29 s") as caught:
            await tokens.model_of("b", "10.0.9.9")
        assert caught.value.wait_seconds == 29
        clock.seconds += caught.value.wait_seconds
        assert await tokens.model_of("b", "10.0.9.9") == {"name": "bob"}

    run(scenario)


def test_one_address_with_wrong_tokens_shuts_nobody_else_out() -> None:
    async def scenario() -> None:
        hub = AHub(b={"name": "bob"})
        tokens = checks(hub, HandClock(), wrong_per_address=3)
        for number in range(3):
            assert await tokens.model_of(f"wrong-{number}", "10.0.0.1") is None
        with pytest.raises(TooManyTokensError, match=r"10\.0\.0\.1"):
            await tokens.model_of("b", "10.0.0.1")
        assert await tokens.model_of("b", "10.0.0.2") == {"name": "bob"}

    run(scenario)


def test_a_page_that_was_left_open_with_a_wrong_token_shuts_nobody_out() -> None:
    async def scenario() -> None:
        hub, clock = AHub(a=ALICE), HandClock()
        tokens = checks(hub, clock, wrong_per_address=3, recheck_seconds=5.0)
        for _ in range(10):
            assert await tokens.model_of("wrong", "10.0.0.1") is None
            clock.seconds += 5.0
        assert hub.questions == ["wrong"] * 10
        assert await tokens.model_of("a", "10.0.0.1") == ALICE

    run(scenario)


def test_the_same_wrong_token_is_one_question() -> None:
    async def scenario() -> None:
        hub = AHub()
        tokens = checks(hub, HandClock())
        for _ in range(100):
            assert await tokens.model_of("wrong") is None
        assert hub.questions == ["wrong"]

    run(scenario)


@pytest.mark.parametrize("token", ["", "two words", "a\nline", "x" * 1025, "ü"])
def test_what_can_be_no_token_is_not_asked_about(token: str) -> None:
    async def scenario() -> None:
        hub = AHub()
        assert await checks(hub, HandClock()).model_of(token) is None
        assert hub.questions == []

    run(scenario)


def test_remembered_tokens_are_bounded_and_wrong_ones_push_no_right_one_out() -> None:
    async def scenario() -> None:
        hub = AHub(a=ALICE)
        tokens = checks(hub, HandClock(), tokens=5, wrong_per_address=100)
        assert await tokens.model_of("a") == ALICE
        for number in range(20):
            await tokens.model_of(f"wrong-{number}")
        hub.questions.clear()
        assert await tokens.model_of("a") == ALICE
        assert hub.questions == []
        assert await tokens.model_of("wrong-0") is None
        assert hub.questions == ["wrong-0"]

    run(scenario)
