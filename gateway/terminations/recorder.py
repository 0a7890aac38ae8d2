"""The reasons of a kernel manager's terminations, put into words and recorded.

It ends no kernel itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.sizes.kernel_request import request_of
from jupyter_aliquot.provisioner.errors import AliquotError, WithdrawnError
from jupyter_aliquot.provisioner.terminations import (
    Asked,
    Ending,
    EndingCode,
    asked_by_stop,
    asked_by_user,
    failed_start,
    read_ending,
)

from .failures import Failure, failure_of_end, failure_of_start, is_of_node
from .store import EndedKernel, Endings


class KernelEndings:
    """The terminations of one manager's kernels.

    *label_of* returns the notebook of a kernel id, or an empty text. *lacked* returns the memory
    limit that would have been enough for a kernel, if its own was not. *node_failed* is called with
    each kernel whose start failed by the node's fault.
    """

    def __init__(
        self,
        endings: Endings,
        clock: Clock,
        log: logging.Logger,
        label_of: Callable[[str], str] = lambda _: "",
        lacked: Callable[[str], int | None] = lambda _: None,
        node_failed: Callable[[str, Failure], None] = lambda kernel_id, failure: None,
    ) -> None:
        self.remembered = endings
        self._clock = clock
        self._log = log
        self._label_of = label_of
        self._lacked = lacked
        self._node_failed = node_failed
        self._asked: dict[str, Asked] = {}
        self._is_stopping = False

    # ---- the request

    def expect(self, kernel_id: str, asked: Asked) -> None:
        """Expect the end of a kernel for this reason. The first reason counts."""
        self._asked.setdefault(kernel_id, asked)

    def expect_stop(self) -> None:
        """Expect the server's stop.

        Kernels that end from now on end with it, except for an earlier request.
        """
        self._is_stopping = True

    def asked(self, kernel_id: str, requester: str, owner: str) -> Asked:
        """Return why this kernel is being ended.

        Without an expectation, it ends by the request of the user *requester*.
        """
        expected = self._asked.get(kernel_id)
        if expected is not None:
            return expected
        return asked_by_stop() if self._is_stopping else asked_by_user(requester, owner)

    def unexpect(self, kernel_id: str) -> None:
        """Drop the expectation: the kernel has ended, or could not be ended."""
        self._asked.pop(kernel_id, None)

    # ---- the end

    def ended(self, kernel: Any, asked: Asked, is_waiting: bool) -> None:
        """Record a requested end.

        A kernel that was still waiting for its grant (*is_waiting*) was withdrawn.
        """
        known = self.remembered.of(kernel.kernel_id)
        if known is not None and kernel.start_failure() is not None and not is_waiting:
            # Its failed start is the reason, and this request only removed it.
            return
        if is_waiting and asked.code is EndingCode.USER:
            asked = replace(asked, code=EndingCode.WITHDRAWN, message=f"{asked.message} while it waited")
        ending = read_ending(kernel.process_end, asked, self._clock.wall())
        self._record(kernel, ending, failure_of_end(ending, is_for_quota=asked.is_for_quota))

    def failed(self, kernel: Any, error: BaseException) -> None:
        """Record a failed start. Called by ManagedKernel."""
        why = str(error) if isinstance(error, AliquotError) else f"{type(error).__name__}: {error}"
        ending = failed_start(why, self._clock.wall(), isinstance(error, WithdrawnError))
        # Jupyter's own model of the kernel has the same sentence.
        kernel.reason = ending.message
        failure = failure_of_start(error)
        self._record(kernel, ending, failure)
        if failure is not None and is_of_node(error):
            self._node_failed(kernel.kernel_id, failure)

    def restarting(self, kernel: Any) -> None:
        """Note that a kernel ended by itself, and its restarter starts it again."""
        kernel.last_crash = read_ending(kernel.process_end, None, self._clock.wall())
        said = (kernel.kernel_id, kernel.owner, kernel.last_crash.code.value, kernel.last_crash.message)
        self._log.warning("kernel=%s owner=%s restarted_after=%s reason=%s", *said)

    def given_up(self, kernel: Any, restarts: int) -> None:
        """Record a kernel that ended by itself, and that its restarter does not start again."""
        ending = read_ending(kernel.process_end, None, self._clock.wall())
        told = replace(ending, message=f"{ending.message}; {restarts} restarts did not help")
        self._record(kernel, told, failure_of_end(ending))

    def runs_again(self, kernel_id: str) -> None:
        """Forget the failed start of a kernel that is started again."""
        self.remembered.forget(kernel_id)

    def _record(self, kernel: Any, ending: Ending, failure: Failure | None) -> None:
        self.remembered.record(
            EndedKernel(
                id=kernel.kernel_id,
                name=kernel.kernel_name,
                owner=kernel.owner,
                label=self._label_of(kernel.kernel_id),
                ending=ending,
                request=request_of(kernel),
                needed_bytes=self._lacked(kernel.kernel_id),
                failure=failure,
            )
        )
