"""A hook beside an agent of another protocol version: it logs the refusal, and asks again."""

from __future__ import annotations

from typing import Any

from jupyter_aliquot.gpu_hook.protocol.codec import VERSION, Hello, RefusalReason, Refuse

MIB = 1 << 20
UUID = "10" * 16


def test_a_refused_version_is_logged_with_its_text_and_asked_again(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    agent.refusal = Refuse(RefusalReason.VERSION, f"got protocol version {VERSION}; this side speaks version 9")
    program = a_null_node.program()
    assert program("begin()") == 0
    agent.wait_for(lambda: sum(isinstance(one, Hello) for one in agent.heard) > 1)
    assert "this side speaks version 9" in a_null_node.log.read_text()
