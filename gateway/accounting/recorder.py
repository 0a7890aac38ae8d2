"""The accounting as the event loop uses it: it hands looks to the book's thread, and asks it.

It waits for no disk. A look that comes while many wait is left out, and no time with it: the next
one counts from where the last one stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.reports.usage import Budget
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.status.user_metrics import UsageCounter
from jupyter_aliquot.gateway.teams.values import Quotas
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.provisioner.errors import StateError
from jupyter_aliquot.provisioner.resources import Request

from .book import Book, BookSettings, Spending
from .budgets import BudgetCheck, BudgetUse
from .counters import usage_counters
from .looks import THIS_NODE, KernelParts, Look, Teams, agent_run, waiting_of
from .query import Answer, Question
from .questions import Questions

# Between two looks at all kernels. A kernel that comes is looked at once, so that one that stays for less counts.
_LOOK_SECONDS = 2.0
_MOST_WAITING = 30
_THREAD = "aliquot-accounting"

T = TypeVar("T")


@dataclass(frozen=True)
class AccountingSources:
    """The sources of the accounting's facts: the queue and ledger, the quota file, the machine's start.

    ``nodes`` returns the nodes on other machines.
    """

    admission: Callable[[], AdmissionSnapshot]
    quotas: Callable[[], Quotas | None]
    boot: str
    nodes: Callable[[], Sequence[RemoteNodeView]] = tuple


class UsageAccounting:
    """The accounting. ``settings`` None: it is switched off, counts nothing and refuses nothing."""

    def __init__(
        self, settings: BookSettings | None, sources: AccountingSources, clock: Clock, log: logging.Logger
    ) -> None:
        self.settings = settings
        self._sources = sources
        self._clock = clock
        self._log = log
        self._book = None if settings is None else Book(settings, log)
        # No other thread writes the book's file.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD)
        is_in_memory = settings is None or settings.path is None
        self._questions = None if self._book is None else Questions(self._book, is_in_memory, self._thread)
        # Used by that thread alone.
        self._parts = KernelParts()
        self._waiting = 0
        self._last = -float("inf")
        self._kernels: frozenset[str] = frozenset()
        # The budgets as the last look left them.
        self._check: BudgetCheck | None = None

    def record(self, view: NodeView) -> None:
        """Called by NodeWatch with each new view."""
        now, agents = self._clock.now(), self._agents(view)
        kernels = frozenset(kernel.kernel_id for status in agents.values() for kernel in status.kernels)
        came, self._kernels = kernels - self._kernels, kernels
        is_early = now - self._last < _LOOK_SECONDS
        if self._book is None or (is_early and not came) or self._waiting >= _MOST_WAITING:
            return
        if is_early:
            future = self._hand_over(self._book, _only(came, agents), frozenset(), has_only_new=True)
        else:
            self._last = now
            future = self._hand_over(self._book, agents, self._away(view))
        self._waiting += 1
        future.add_done_callback(self._taken)

    def _agents(self, view: NodeView) -> dict[str, NodeStatus]:
        """Return the statuses of the agents that answer, by the name of each agent's run."""
        nodes = [(node.name, node.status) for node in self._sources.nodes() if node.is_connected]
        known = [(name, status) for name, status in [(THIS_NODE, view.status), *nodes] if status is not None]
        return {agent_run(name, status.began): status for name, status in known}

    def _away(self, view: NodeView) -> frozenset[str]:
        """Return the nodes whose agents do not answer. A node that the gateway has forgotten is none."""
        here = [THIS_NODE] if view.status is None else []
        nodes = self._sources.nodes()
        return frozenset([*here, *(node.name for node in nodes if not node.is_connected or node.status is None)])

    def _hand_over(
        self, book: Book, agents: Mapping[str, NodeStatus], away: frozenset[str], *, has_only_new: bool = False
    ) -> asyncio.Future[None]:
        wall, now = int(self._clock.wall() * 1000), int(self._clock.now() * 1000)
        admission, quotas, boot = self._sources.admission(), self._sources.quotas(), self._sources.boot
        periods = frozenset[str]() if quotas is None else quotas.budgets.periods

        def take() -> None:
            # A thousand kernels, perhaps: the loop does not wait for them.
            teams = Teams(quotas)
            known = KernelParts() if has_only_new else self._parts
            found = (known.of(status, agent, admission, teams) for agent, status in agents.items())
            parts = tuple(chain.from_iterable(found)) if agents else None
            known.forget_others(agents.keys())
            waiting = () if has_only_new else waiting_of(agents.values(), admission, teams)
            book.take(Look(wall, now, boot, parts, waiting, away, has_only_new), periods)

        return asyncio.get_running_loop().run_in_executor(self._thread, take)

    def refusal(self, user: str) -> str:
        """Return why the user may ask nothing just now, for too many questions; empty: the user may."""
        return "" if self._questions is None else self._questions.refusal(user)

    async def ask(self, user: str, question: Question, render: Callable[[Answer], T]) -> T:
        """Return the answer as ``render`` makes it. Raises StateError and RequestError.

        ``render`` runs in a thread, too. Cancelling it ends the reading.
        """
        if self._questions is None:
            raise StateError("this server counts no GPU time, for c.Accounting.enabled is off")
        return await self._questions.ask(user, question, self._clock.now(), render)

    async def stop(self) -> None:
        """Write all that was counted, and end the thread. Idempotent."""
        if self._book is None or self._questions is None:
            return
        self._questions.stop()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._book.close, self._clock.now())
        except RuntimeError:
            return
        self._thread.shutdown(wait=False)

    @property
    def today(self) -> int:
        """The present day of the accounting."""
        return 0 if self.settings is None else self.settings.calendar.day_of(int(self._clock.wall() * 1000))

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what is wrong with the file, for administrators."""
        return () if self._book is None else self._book.problems

    def counters(self) -> list[UsageCounter]:
        """Return what this gateway counted since its start."""
        return [] if self._book is None else usage_counters(self._book.since_start)

    # ---- budgets

    def check(self, user: str, groups: Iterable[str], request: Request, before: Request | None = None) -> None:
        """Refuse a request for more than a budget has. Raises LimitError, and UnknownUseError.

        ``before``: what the kernel has now.
        """
        if (budgets := self._budgets()) is not None:
            budgets.check(user, groups, request, before)

    def budgets_of(self, who: User, *, is_for_all: bool = False) -> list[Budget]:
        """Return the budgets that count for this user; ``is_for_all``: those of all users and teams."""
        budgets = self._budgets()
        if budgets is None:
            return []
        uses: list[BudgetUse] = budgets.all_uses(who.name) if is_for_all else budgets.uses(who.name, who.teams)
        return [budgets.report(use) for use in uses]

    def _budgets(self) -> BudgetCheck | None:
        quotas = self._sources.quotas()
        if self._book is None or self.settings is None or quotas is None or not quotas.budgets.periods:
            return None
        spending = self._book.spending
        # Before the first look nothing is known of this period.
        spending = spending if spending.day else Spending(self.today)
        if self._check is None or not self._check.is_of(quotas, spending):
            self._check = BudgetCheck(quotas, spending, self.settings.calendar, self.settings.policy)
        return self._check

    def _taken(self, future: asyncio.Future[None]) -> None:
        self._waiting -= 1
        if not future.cancelled() and future.exception() is not None:
            self._log.error("accounting=failed; it goes on", exc_info=future.exception())


def _only(kernel_ids: frozenset[str], agents: Mapping[str, NodeStatus]) -> dict[str, NodeStatus]:
    """Return the statuses with these kernels alone."""
    return {
        run: replace(status, kernels=tuple(one for one in status.kernels if one.kernel_id in kernel_ids))
        for run, status in agents.items()
    }
