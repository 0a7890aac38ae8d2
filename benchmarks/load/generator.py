"""The load generator: all users in one process of its own.

It reads orders as lines of JSON on its standard input.

usage: python -m load.generator PORT KERNEL, with the users' names and tokens in its first line
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from load.user import Seen, User

_SIZES = (0.01, 0.02)
_LOOK_SECONDS = 0.25
_LAG_SECONDS = 0.05
_SEED = 20_261_122


class Generator:
    """The users of the load test. ``users``: those that have kernels; ``admins`` only look."""

    def __init__(self, port: int, kernel: str, people: list[dict[str, Any]]) -> None:
        self._seen = Seen()
        made = [User(one["name"], one["token"], port, one["is_admin"], lambda: self._seen) for one in people]
        self._users = [user for user in made if not user.is_admin]
        self._admins = [user for user in made if user.is_admin]
        self._kernel = kernel
        self._dice = random.Random(_SEED)
        self._polls: list[asyncio.Task[None]] = []
        self._lag: list[float] = []
        self._lags = asyncio.create_task(self._measure_lag())

    async def do(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out the order of one line."""
        operations: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
            "start": self.start,
            "listen": self.listen,
            "steady": self.steady,
            "churn": self.churn,
            "hush": self.hush,
            "find": self.find,
            "end": self.end,
        }
        name = command.pop("do")
        return await operations[name](**command)

    # ---- orders

    async def start(self, count: int, at_once: int) -> dict[str, Any]:
        """Start so many kernels, spread over all users, while one user and one administrator look."""
        queue = [self._users[number % len(self._users)] for number in range(count)]
        self._take_seen()
        looks = [asyncio.create_task(self._look_on(user)) for user in (self._users[0], self._admins[0])]
        began = time.perf_counter()

        async def work() -> None:
            while queue:
                await queue.pop().start_kernel(self._kernel)

        await asyncio.gather(*(work() for _ in range(at_once)))
        posted = time.perf_counter() - began
        await self._until(lambda status: _count(status, "on_gpu") >= count or _refuse_ended(status))
        took = time.perf_counter() - began
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
        return {"seconds": took, "posted_seconds": posted, **self._take_seen()}

    async def listen(self) -> dict[str, Any]:
        """Open all users' streams and a notebook each; from then on all users poll."""
        began = time.perf_counter()
        people = [*self._users, *self._admins]
        for some in range(0, len(people), 20):
            await asyncio.gather(*(user.listen() for user in people[some : some + 20]))
        self._polls = [asyncio.create_task(user.poll_for_ever(self._dice)) for user in people]
        return {"seconds": time.perf_counter() - began, **self._take_seen()}

    async def steady(self, seconds: float, cells_per_second: float) -> dict[str, Any]:
        """Let users look, and run cells."""
        self._take_seen()
        await self._for(seconds, cells_per_second, self._run_cell)
        return self._take_seen()

    async def churn(self, seconds: float, per_second: float) -> dict[str, Any]:
        """Let users come and go, kernels start, end and change their size, and sockets drop."""
        self._take_seen()
        done = dict.fromkeys(("started", "ended", "resized", "dropped", "left", "cells"), 0)
        await self._for(seconds, per_second, lambda: self._change(done))
        return {**self._take_seen(), "done": done}

    async def hush(self) -> dict[str, Any]:
        """Disconnect all users; the kernels stay."""
        for task in self._polls:
            task.cancel()
        await asyncio.gather(*self._polls, return_exceptions=True)
        self._polls = []
        for user in [*self._users, *self._admins]:
            await user.leave()
        return self._take_seen()

    async def find(self, count: int) -> dict[str, Any]:
        """Wait until an administrator sees so many running kernels.

        The gateway may have to come back first.
        """
        began = time.perf_counter()
        await self._until(lambda status: _count(status, "on_gpu") >= count)
        return {"seconds": time.perf_counter() - began, **self._take_seen()}

    async def end(self, at_once: int) -> dict[str, Any]:
        """End all kernels, by their users; return what an administrator then sees."""
        await self.hush()
        queue = [(user, kernel_id) for user in self._users for kernel_id in user.kernels]
        began = time.perf_counter()

        async def work() -> None:
            while queue:
                user, kernel_id = queue.pop()
                await user.end_kernel(kernel_id)

        await asyncio.gather(*(work() for _ in range(at_once)))
        took = time.perf_counter() - began
        await self.hush()
        status = await self._until(lambda status: not _held(status))
        return {"seconds": took, "held_gpus": _held(status), "left": _count(status, ""), **self._take_seen()}

    # ---- their parts

    async def _run_cell(self) -> None:
        await self._dice.choice(self._users).run_cell(self._dice.choice((0.0, 0.5, 2.0)))

    async def _change(self, done: dict[str, int]) -> None:
        user, what = self._dice.choice(self._users), self._dice.random()
        if what < 0.3 and len(user.kernels) > 1:  # the first kernel's notebook is open
            await user.end_kernel(user.kernels[-1])
            done["ended"] += 1
            await user.start_kernel(self._kernel)
            done["started"] += 1
        elif what < 0.5 and user.kernels:
            await user.resize(user.kernels[0], self._dice.choice(_SIZES))
            done["resized"] += 1
        elif what < 0.7 and user.kernels:
            await user.open_channels(user.kernels[0])
            done["dropped"] += 1
        elif what < 0.8:
            await user.leave()
            await user.listen()
            done["left"] += 1
        else:
            await user.run_cell(0.2)
            done["cells"] += 1

    async def _for(self, seconds: float, per_second: float, act: Callable[[], Awaitable[None]]) -> None:
        """Run at this rate, whether or not the one before is done; return when all are."""
        loop = asyncio.get_running_loop()
        end, running = loop.time() + seconds, set[asyncio.Task[None]]()
        while loop.time() < end:
            if per_second:
                task = asyncio.create_task(self._guarded(act))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.sleep(self._dice.expovariate(per_second) if per_second else max(0.0, end - loop.time()))
        await asyncio.gather(*running)

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except Exception as error:
            self._seen.failures.append(f"{error!r}")

    async def _look_on(self, user: User) -> None:
        while True:
            await user.poll()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _until(self, holds: Callable[[Any], bool], seconds: float = 600.0) -> Any:
        """Wait for an administrator's status that fulfils the condition. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                status = json.loads(await self._admins[-1].client.ask("GET", "/aliquot/api/v1/status"))
                if holds(status):
                    return status
            except (OSError, EOFError):
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"the status is not what it should be within {seconds:g} s")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_SECONDS
            await asyncio.sleep(_LAG_SECONDS)
            self._lag.append(1e3 * (loop.time() - due))

    def _take_seen(self) -> dict[str, Any]:
        seen, self._seen = self._seen, Seen()
        lag, self._lag = self._lag, []
        return {**asdict(seen), "lag": lag, "kernels": sum(len(user.kernels) for user in self._users)}


def _count(status: Any, state: str) -> int:
    return sum(kernel["state"] == state or (not state and kernel["state"] != "ended") for kernel in status["kernels"])


def _refuse_ended(status: Any) -> bool:
    """Raise AssertionError if a kernel that was to start has ended; return False."""
    why = next((kernel["termination"] for kernel in status["kernels"] if kernel["state"] == "ended"), None)
    assert why is None, f"a kernel ended at its start: {why}"
    return False


def _held(status: Any) -> float:
    return float(sum(kernel["gpus"] for kernel in status["kernels"] if kernel["state"] != "ended"))


async def serve(port: int, kernel: str) -> None:
    """Read orders and write answers, line by line, until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    generator = Generator(port, kernel, json.loads(await reader.readline()))
    while line := await reader.readline():
        print(json.dumps(await generator.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
