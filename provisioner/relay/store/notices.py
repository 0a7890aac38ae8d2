"""The words in the place of output that was dropped, and of messages that are too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.messages import HEADER, PARENT, Signer, read_object

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


def left_out(
    signer: Signer, channel: str, message: Sequence[Any], size: int, most: int
) -> list[tuple[str, list[bytes]]]:
    """Return what comes in the place of a message that is too large, each with its channel.

    A note tells the message's cell; a reply is answered in the kernel's place.
    """
    words = (
        f"The kernel sent a message of {size / 1e6:.0f} MB, which is not passed on: at most "
        f"{most / 1e6:.0f} MB are. Write large data into a file"
    )
    log("message_left_out", channel=channel, bytes=size)
    parent = bytes(message[PARENT]) if len(message) > PARENT else b"{}"
    made = [("iopub", signer.message("stream", {"name": "stderr", "text": f"\n[Aliquot: {words}.]\n"}, parent))]
    if channel != "iopub":
        kind = read_object(message[HEADER]).get("msg_type", "")
        content = {"status": "error", "ename": "MessageTooLarge", "evalue": words, "traceback": [words]}
        made.append((channel, signer.message(str(kind), content, parent)))
    return made
