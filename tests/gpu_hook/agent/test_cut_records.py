"""An agent that finds a kernel's record cut off: it restores the others, and never promises a device twice."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from reservations_node import UUID, AReservationsNode

from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Refused

WHOLE = 100
STEP = 61  # each byte is test_journal's; here an agent starts for each


def test_a_record_that_was_cut_off_costs_its_kernel_and_no_device_is_promised_twice(
    a_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        node = AReservationsNode(a_folder)
        for name, share in (("cut", 60), ("whole", 30)):
            node.reserve(node.a_connection(), name, share)
        await node.end(is_killed=True)
        records = {name: (node.folder(name) / "grant.json").read_bytes() for name in ("cut", "whole")}
        for size in range(0, len(records["cut"]), STEP):
            for name, record in records.items():
                node.folder(name).mkdir(exist_ok=True)
                (node.folder(name) / "grant.json").write_bytes(record if name == "whole" else record[:size])
            caplog.clear()
            node.start()
            assert [kernel.kernel_id for kernel in node.reservations.kernels] == ["whole"]
            assert "event=not_restored" in caplog.text
            node.reserve(node.a_connection(), "new", 70)
            with pytest.raises(Refused):
                node.reserve(node.a_connection(), "cut", 60)
            assert node.ledger.reserved(UUID).hundredths == WHOLE
            await node.end(is_killed=True)
            (node.folder("new") / "grant.json").unlink()

    asyncio.run(scenario())
