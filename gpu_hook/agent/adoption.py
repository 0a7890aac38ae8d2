"""Enters what a process had before this agent: its HELLO's table, into the ledger. Whole, or not at all."""

from __future__ import annotations

from aliquot.gpu_hook import protocol
from aliquot.gpu_hook.protocol import Hello, MalformedError, Role

from .journal import Reservation
from .ledger import Ledger, LedgerError


def adopt(ledger: Ledger, reservation: Reservation, session_number: int, hello: Hello) -> None:
    """Raises MalformedError, LedgerError."""
    if hello.devices and hello.role is Role.OBSERVER:
        raise MalformedError("an observer has no bytes")
    index = {protocol.device_uuid_bytes(part.uuid): i for i, part in enumerate(reservation.parts)}
    if hello.version > 1:
        index[protocol.HOST_UUID] = protocol.HOST_MEMORY
    if any(device.uuid not in index for device in hello.devices):
        raise MalformedError("got bytes on a device that the kernel does not have")
    try:
        for device in hello.devices:
            amount = device.charged_bytes + device.credit_bytes
            ledger.adopt(reservation.kernel_id, index[device.uuid], session_number, amount)
    except LedgerError:
        ledger.end_process(reservation.kernel_id, session_number)
        raise
