"""The words in the place of output that was dropped."""

from __future__ import annotations

from jupyter_aliquot.provisioner.relay.wire.messages import Signer

from .output_store import MakeNotice


def notice_maker(signer: Signer) -> MakeNotice:
    """Return a maker of notices, signed as the kernel's messages are."""

    def make(parent: bytes, msg_id: str, messages: int, lost_bytes: int, why: str) -> list[bytes]:
        text = (
            f"\n[Aliquot: {messages} messages ({lost_bytes / 1e6:.1f} MB) of this cell's output are missing here. "
            f"{why}.]\n"
        )
        return signer.message("stream", {"name": "stderr", "text": text}, parent, msg_id)

    return make
