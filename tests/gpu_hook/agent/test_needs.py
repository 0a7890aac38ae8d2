"""The memory that a kernel would have used without its quota.

It covers its processes, ended ones, and false claims.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from jupyter_aliquot.gpu_hook.agent.kernels.usage import KernelUsage
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Tally
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Account
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import HookWords, NeedWords
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession

NOW = 1000.0
LONG_AGO, JUST_NOW = 990.0, 999.9


def a_session(stands: int = 0, is_open: int = 0, at: float = LONG_AGO) -> HookSession:
    words = NeedWords(stands, is_open, at)
    page = SimpleNamespace(need=lambda device: words, read=lambda device: HookWords(0, 0, 0))
    return cast(HookSession, SimpleNamespace(number=1, hook_side=page))


def needed(*sessions: HookSession, kept: int = 0) -> int | None:
    return KernelUsage([Tally(needed_bytes=kept)], Tally()).needed_bytes(sessions, 0, NOW)


def test_nothing_refused_is_nothing_needed() -> None:
    assert needed() is None
    assert needed(a_session()) is None  # an earlier hook has zeroes there


def test_the_most_of_all_processes_counts_and_those_that_ended() -> None:
    assert needed(a_session(5), a_session(7)) == 7
    assert needed(a_session(5), kept=9) == 9


def test_a_refusal_counts_when_its_process_had_the_time_to_make_do() -> None:
    assert needed(a_session(5, 8, JUST_NOW)) == 5
    assert needed(a_session(5, 8, LONG_AGO)) == 8
    assert needed(a_session(0, 8, at=NOW + 50)) == 8  # a page may contain anything


def test_a_claim_beyond_all_reason_is_still_a_number() -> None:
    assert needed(a_session((1 << 64) - 1)) == 1 << 53


def test_what_a_process_needed_stays_when_it_ends_until_another_begins() -> None:
    usage = KernelUsage([Tally(refusals=2, peak_bytes=7)], Tally(refusals=1), wall_offset=5000)
    usage.retire(a_session(5, 8, JUST_NOW), {0: Account(100)})
    usage.retire(a_session(6), {0: Account(100)})
    assert usage.needed_bytes((), 0, NOW) == 8
    assert usage.tallies[0].needed_bytes == 8
    assert usage.short_at((), 0, NOW) == 5999
    usage.joining(is_first=False)  # beside another: a worker of the same kernel
    assert usage.needed_bytes((), 0, NOW) == 8
    usage.joining(is_first=True)
    assert usage.needed_bytes((), 0, NOW) is None
    assert usage.short_at((), 0, NOW) is None
    assert (usage.tallies, usage.host_tally) == ((Tally(peak_bytes=7),), Tally())


def test_each_refusal_that_stands_has_its_moment_and_one_that_may_yet_be_made_up_for_has_none() -> None:
    usage = KernelUsage([Tally()], Tally())
    assert usage.short_at([a_session()], 0, NOW) is None
    assert usage.short_at([a_session(0, 8, JUST_NOW)], 0, NOW) is None
    assert usage.short_at([a_session(5, at=900.0)], 0, NOW) == 900
    assert usage.short_at([a_session(5, 8, JUST_NOW)], 0, NOW) == 900, "the one before is not forgotten meanwhile"
    assert usage.short_at([a_session(5, 8, JUST_NOW)], 0, NOW + 2) == 999
    assert usage.short_at([a_session(5, at=900.0)], 0, NOW) == 999
