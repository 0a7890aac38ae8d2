"""A driven program's full queues: streams that wait for it, and threads held up by them."""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_calls import U64, call
from gpu_pacing import current, make_stream, spins

LOOKS = 200  # of a millisecond each, without a step of a thread that is in a call: it is held up there
PAUSE = 10e-6  # seconds from launch to launch: less than what the hook takes for a pause
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Steps:
    """A thread that repeats a step; ``codes`` are the answers so far."""

    def __init__(self, do: Callable[[], int], most: int, pause: float = 0.0) -> None:
        self.codes: list[int] = []
        self._begun = 0
        self._is_over = False
        self._context = ctypes.c_void_p(current())
        self._thread = threading.Thread(target=self._run, args=(do, most, pause), daemon=True)
        self._thread.start()

    def _run(self, do: Callable[[], int], most: int, pause: float) -> None:
        call("cuCtxSetCurrent", self._context)
        for _ in range(most):
            time.sleep(pause)
            self._begun += 1
            self.codes.append(do())
        self._is_over = True

    def is_held_up(self) -> bool:
        """Return False once the thread is over, or True once its steps end no more."""
        looks, seen = 0, -1
        while looks < LOOKS:
            if self._is_over:
                return False
            is_in_call = self._begun == len(self.codes) + 1
            looks = looks + 1 if is_in_call and self._begun == seen else 0
            seen = self._begun
            time.sleep(0.001)
        return True

    def end(self) -> list[int]:
        self._thread.join()
        return self.codes


@dataclass
class HeldStream:
    """A stream whose first item waits until ``release``."""

    number: int = field(default_factory=make_stream)

    def __post_init__(self) -> None:
        self._may_go = threading.Event()
        self._function = _HOST_FUNCTION(lambda _: self._may_go.wait() and None)
        assert call("cuLaunchHostFunc", U64(self.number), self._function, None) == 0

    def release(self) -> bool:
        self._may_go.set()
        return True


held: list[HeldStream] = []
steps: list[Steps] = []


def fill_with_launches() -> bool:
    """Launch from a thread, each late enough to need events of its own, until it is held up."""
    held.append(HeldStream())
    steps.append(Steps(lambda: spins("kernel", 1, 100, held[-1].number), 100, 50e-6))
    return steps[-1].is_held_up()


def fill_with_records(stream: int) -> bool:
    event = U64()
    assert call("cuEventCreate", ctypes.byref(event), 0) == 0
    return Steps(lambda: call("cuEventRecord", event, U64(stream)), 10_000).is_held_up()


def close_work_in_a_full_stream(pointer: int) -> bool:
    """Leave launches open in a stream, fill it with other work, then let the thread work elsewhere.

    True: that thread is held up there, which needs the hook to record behind the launches.
    """
    for _ in range(20):
        held.append(HeldStream())
        launched, is_full = threading.Event(), threading.Event()

        def work(stream: int, launched: threading.Event, full: threading.Event) -> int:
            code = spins("kernel", 25, 100, stream)  # a batch is ten of them, whose end is recorded at once
            launched.set()
            full.wait()
            return code or call("cuMemsetD8_v2", U64(pointer), 0, U64(64))

        thread = Steps(functools.partial(work, held[-1].number, launched, is_full), 1)
        launched.wait()
        assert fill_with_records(held[-1].number)
        is_full.set()
        if thread.is_held_up():
            steps.append(thread)
            return True
        held[-1].release()
    return False


def close_work_under_capture(pointer: int) -> int:
    """Leave launches open in a stream that another thread captures, then go on elsewhere.

    Return the first error.
    """
    stream, graph = U64(make_stream()), U64()
    code = spins("kernel", 25, 100, stream.value)
    begin = Steps(lambda: call("cuStreamBeginCapture_v2", stream, 2), 1)
    code = code or begin.end()[0] or call("cuMemsetD8_v2", U64(pointer), 0, U64(64))
    code = code or call("cuStreamEndCapture", stream, ctypes.byref(graph))
    return code or call("cuStreamSynchronize", stream)


def launch_behind_a_held_stream(launches: int) -> float:
    """Return how many microseconds so many launches into the latest held stream took."""
    begun = time.monotonic()
    for _ in range(launches):
        until = time.monotonic() + PAUSE
        assert spins("kernel", 1, 100, held[-1].number) == 0
        while time.monotonic() < until:
            pass
    return (time.monotonic() - begun) * 1e6


def let_go() -> list[int]:
    """Let the streams go; return the codes of the latest thread that was held up."""
    for one in held:
        one.release()
    return steps[-1].end()
