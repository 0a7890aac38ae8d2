"""Connections of accounts that are neither the agent's nor root: relays of kernels that run as their owners.

Each may speak of kernels that are reserved for its account, and of nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Refused, Reservations
from jupyter_aliquot.gpu_hook.base.process_account import account_of

from .request_fields import read_int, read_kernel_id

# Of its relay, of the client that holds its grant, and of those before them that have not ended yet.
_CONNECTIONS_OF_A_KERNEL = 8
_OPERATIONS = frozenset({"reserve", "bind", "activity", "watch", "trimmer", "trimmed"})


class Guests:
    """The guests among the connections, with their accounts' numbers."""

    def __init__(self, reservations: Reservations) -> None:
        self._reservations = reservations
        self._accounts: dict[int, int] = {}
        self._connections: Counter[int] = Counter()  # by account

    def admit(self, connection: int, uid: int) -> bool:
        """Enter a connection of another account that has kernels here, as many as these can need."""
        kernels = sum(kernel.reservation.uid == uid for kernel in self._reservations.kernels)
        if self._connections[uid] >= kernels * _CONNECTIONS_OF_A_KERNEL:
            return False
        self._connections[uid] += 1
        self._accounts[connection] = uid
        return True

    def drop_connection(self, connection: int) -> None:
        uid = self._accounts.pop(connection, None)
        if uid is not None:
            self._connections[uid] -= 1
            if not self._connections[uid]:
                del self._connections[uid]

    def check(self, request: Mapping[str, Any], connection: int) -> None:
        """Refuse a guest's request unless it is about a kernel of the guest's account. Raises Refused.

        A guest binds processes of its own account alone.
        """
        uid = self._accounts.get(connection)
        if uid is None or request.get("op") == "hello":
            return
        if request.get("op") not in _OPERATIONS:
            raise Refused("bad_request", f"The account {uid} may ask for {', '.join(sorted(_OPERATIONS))} alone")
        kernel_id = read_kernel_id(request)
        kernel = self._reservations.find(kernel_id)
        if kernel is None or kernel.reservation.uid != uid:
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here for the account {uid}")
        if request["op"] == "reserve" and kernel.is_ending:
            # The gateway released it, and counts it no more.
            raise Refused("not_found", f"kernel {kernel_id} was released; ask the gateway for a new grant")
        if request["op"] == "bind" and account_of(read_int(request, "pid", 1)) != uid:
            raise Refused("bad_request", f"the process {request['pid']} is none of the account {uid}")
