"""A relay's word to its host that is no record: its user can kill the relay while it says it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import pytest
from relay_house import House, soon, until

from jupyter_aliquot.gpu_hook.base.process_account import account_of
from jupyter_aliquot.provisioner.errors import RelayError
from jupyter_aliquot.provisioner.relay.client import control as client

# A host whose relays say WORD in place of their record, and then do what THEN says.
FORGING_HOST = """
import os, signal, sys
from jupyter_aliquot.provisioner.relay.host import host, main
def run(runtime, spill_dir, own, ready, admitted=()):
    (runtime.path / "forger").write_text(str(os.getpid()))
    os.write(ready, WORD)
    os.close(ready)
    THEN
host.run = run
sys.exit(main.main())
"""

FULL_HOST = """
import errno, os, sys
from jupyter_aliquot.provisioner.relay.host import main
fork = os.fork
def fail():
    os.fork = fork
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.fork = fail
sys.exit(main.main())
"""


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), signal.SIGKILL)", "signal.pause()"], ids=["killed", "lives"])
@pytest.mark.parametrize(
    "word",
    ["b'ready{\"' + b'x' * 70000", "b'ready' + b'[' * 200000", "b'ready[]'", "b'ready' + b'9' * 5000"],
    ids=["cut", "deep", "no object", "long number"],
)
def test_a_word_that_is_no_record_is_refused_and_its_relay_ended_and_forgotten(
    word: str, then: str, a_house: House
) -> None:
    code = FORGING_HOST.replace("WORD", word).replace("THEN", then)
    a_house.settings = replace(a_house.settings, command=(sys.executable, "-c", code))

    async def scene() -> None:
        with pytest.raises(RelayError, match="did not start: the record that it sent cannot be read"):
            await soon(a_house.relay())
        forger = int((a_house.runtime.path / "forger").read_text())
        await until(lambda: f"pid={forger} code=-9" in a_house.runtime.relay_log.read_text())
        assert account_of(forger) is None
        await until(lambda: not list(a_house.runtime.relays.iterdir()))

    asyncio.run(scene())


def test_a_relay_that_cannot_be_forked_is_refused_and_the_next_one_starts(a_house: House) -> None:
    a_house.settings = replace(a_house.settings, command=(sys.executable, "-c", FULL_HOST))

    async def scene() -> None:
        with pytest.raises(RelayError, match="starts no further process for the relay host"):
            await soon(a_house.relay(kernel_id="k"))
        record = await soon(a_house.relay(kernel_id="k"))
        await client.stop_relay(record)

    asyncio.run(scene())
