"""The Lease of a gateway's replicas: one leads, and the others wait for it.

The election is the official client's. Its calls get short limits of time here, because a server that
does not answer must not hold up the end of a leader's time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kubernetes.client import ApiClient, ApiException, Configuration, CoordinationV1Api
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

LEASE_SECONDS = 5
_RENEW_SECONDS, _RETRY_SECONDS = 3, 1
_CALL_SECONDS = 2.0


class Leadership:
    """The election of one replica, whose *identity* no other one has. Its methods block.

    *renewed* is called each time that the server took a renewal.
    """

    def __init__(
        self,
        configuration: Configuration,
        namespace: str,
        name: str,
        identity: str,
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        configuration.retries = False  # the election tries again, and the calls' limits of time stand
        self._lock = lock = _Lock(CoordinationV1Api(ApiClient(configuration)), name, namespace, identity, renewed)
        times = (LEASE_SECONDS, _RENEW_SECONDS, _RETRY_SECONDS)
        self._election: Any = LeaderElection(Config(lock, *times, lambda: None, lambda: None))

    def acquire(self) -> None:
        """Wait until this replica leads."""
        self._election.acquire()

    def is_current(self) -> bool:
        """Return whether no other replica can lead now: the Lease was renewed within its duration."""
        return time.monotonic() - self._lock.renewed_at < LEASE_SECONDS

    def keep(self, lost: Callable[[], None]) -> None:
        """Renew the Lease in a thread of its own, and call *lost* there once another replica has it.

        While the API is away this one serves its kernels on: another one may lead where this replica alone cannot
        reach the API. It then makes and resizes no pod, and deletes only pods that it knows by uid.
        An error that is not foreseen ends its time, too.
        """

        def renew() -> None:
            try:
                while not self._is_anothers():
                    self._election.renew_loop()
            finally:
                lost()

        threading.Thread(target=renew, name="aliquot-lease", daemon=True).start()

    def _is_anothers(self) -> bool:
        is_there, found = self._lock.get(self._lock.name, self._lock.namespace)
        return is_there and found.holder_identity not in (None, self._lock.identity)


class _Lock(LeaseLock):  # type: ignore[misc]  # the client has no types
    """The Lease. A server that does not answer, or that answers no Lease, refuses as one that answers an error does."""

    def __init__(
        self, api: CoordinationV1Api, name: str, namespace: str, identity: str, renewed: Callable[[], None]
    ) -> None:
        super().__init__(name, namespace, identity)
        self.api_instance = _Timed(api)
        self._renewed = renewed
        self.renewed_at = -math.inf  # of the monotonic clock, before the server was asked

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """Called by the election."""
        try:
            found: tuple[bool, Any] = super().get(name, namespace)
        except Exception as error:
            return False, ApiException(0, str(error))
        return found

    def create(self, name: str, namespace: str, election_record: Any) -> bool:
        """Called by the election."""
        return self._noted(partial(super().create, name, namespace, election_record))

    def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        """Called by the election."""
        return self._noted(partial(super().update, name, namespace, updated_record))

    def _noted(self, write: Callable[[], object]) -> bool:
        began = time.monotonic()
        try:
            is_taken = bool(write())
        except Exception:
            return False
        if is_taken:
            self.renewed_at = began
            self._renewed()
        return is_taken


class _Timed:
    """The calls of an API, each with a limit of time."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._api, name), _request_timeout=_CALL_SECONDS)
