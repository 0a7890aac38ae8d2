"""Streams of a capped kernel on its part of the multiprocessors, in a green context that the program never sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shared_words import store_half

from jupyter_aliquot.gpu_hook.protocol.codec import Actuators, AgentPage, WorkloadClass

MIB = 1 << 20
NON_BLOCKING = 1
DRIVER = "ctypes.CDLL(os.environ['ALIQUOT_REAL_CUDA'])"
ADDRESS_BITS = (1 << 64) - 1


class Client:
    """A program whose kernel may use ``percent`` of its device's multiprocessors."""

    def __init__(self, node: Any, percent: int, actuators: Actuators = Actuators.GREEN_CONTEXT, **env: str) -> None:
        outsider = node.outsider()
        assert outsider("begin()") == 0
        self.agent = node.grant((outsider("uuid(0)"), 64 * MIB))
        self.program = node.program(**env)
        assert self.program("begin()") == 0
        page = self.agent.process(self.program.pid).agent_page
        store_half(page, AgentPage.DEVICES + AgentPage.SM_PERCENT, percent)
        store_half(page, AgentPage.ACTUATORS, actuators)
        self.agent.set_workload_class(WorkloadClass.OPPORTUNISTIC)

    def make(self, name: str, flags: int = NON_BLOCKING) -> None:
        stream = f"ctypes.byref(streams.setdefault({name!r}, U64()))"
        assert self.program(f"call('cuStreamCreate', {stream}, {flags})") == 0

    def end(self, name: str) -> None:
        assert self.program(f"call('cuStreamDestroy_v2', streams.pop({name!r}))") == 0

    def told(self, function: str, name: str, past_the_hook: bool = False) -> int:
        """What the driver, or the hook, answers to a question about a stream."""
        asked = f"{DRIVER}.{function}(" if past_the_hook else f"call({function!r}, "
        code, value = self.program(f"(lambda a: [{asked}streams[{name!r}], ctypes.byref(a)), a.value])(U64())")
        assert code == 0
        return int(value) & ADDRESS_BITS

    def is_on_a_part(self, name: str) -> bool:
        return self.told("cuStreamGetGreenCtx", name, past_the_hook=True) != 0


def test_a_stream_is_made_on_the_part_and_the_program_sees_its_own_context(a_node: Any) -> None:
    client = Client(a_node, percent=25)
    client.make("one")
    assert client.is_on_a_part("one")
    assert client.told("cuStreamGetGreenCtx", "one") == 0
    code, current = client.program("(lambda a: [call('cuCtxGetCurrent', ctypes.byref(a)), a.value])(U64())")
    assert code == 0
    assert client.told("cuStreamGetCtx", "one") == current
    assert client.told("cuStreamGetCtx", "one", past_the_hook=True) != current
    client.end("one")


@pytest.mark.parametrize(
    ("percent", "actuators"), [(0, Actuators.GREEN_CONTEXT), (100, Actuators.GREEN_CONTEXT), (25, Actuators(0))]
)
def test_without_a_part_streams_are_plain(a_node: Any, percent: int, actuators: Actuators) -> None:
    client = Client(a_node, percent, actuators)
    client.make("one")
    assert not client.is_on_a_part("one")


def test_a_stream_that_waits_for_the_default_one_stays_there(a_node: Any) -> None:
    client = Client(a_node, percent=25)
    client.make("blocking", flags=0)
    assert not client.is_on_a_part("blocking")


def test_streams_of_a_context_of_the_programs_own_stay_there(a_node: Any) -> None:
    client = Client(a_node, percent=25)
    assert client.program("new_context()")[0] == 0
    client.make("one")
    assert not client.is_on_a_part("one")


def test_another_size_is_for_new_streams(a_node: Any) -> None:
    client = Client(a_node, percent=25)
    client.make("before")
    page = client.agent.process(client.program.pid).agent_page
    store_half(page, AgentPage.DEVICES + AgentPage.SM_PERCENT, 50)
    client.make("after")
    before = client.told("cuStreamGetGreenCtx", "before", past_the_hook=True)
    assert client.told("cuStreamGetGreenCtx", "after", past_the_hook=True) not in (0, before)
    client.make("again")
    assert client.told("cuStreamGetGreenCtx", "again", past_the_hook=True) == client.told(
        "cuStreamGetGreenCtx", "after", past_the_hook=True
    )


def test_it_keeps_no_primary_context_alive(a_node: Any) -> None:
    client = Client(a_node, percent=25)
    client.make("one")
    client.end("one")
    assert client.program("call('cuDevicePrimaryCtxRelease_v2', 0)") == 0
    state = "(lambda f, a: [call('cuDevicePrimaryCtxGetState', 0, ctypes.byref(f), ctypes.byref(a)), a.value])"
    assert client.program(f"{state}(ctypes.c_uint(), ctypes.c_int())") == [0, 0]
    assert client.program("begin()") == 0
    client.make("two")
    assert client.is_on_a_part("two")


def test_a_primary_context_that_was_reset_is_not_made_anew(a_node: Any) -> None:
    client = Client(a_node, percent=25)
    assert client.program("call('cuDevicePrimaryCtxReset_v2', 0)") == 0
    assert client.program("call('cuStreamCreate', ctypes.byref(U64()), 1)") != 0
    states = "(lambda a: [call('cuDevicePrimaryCtxGetState', 0, ctypes.byref(U64()), ctypes.byref(a)), a.value])"
    assert client.program(f"{states}(ctypes.c_int(7))") == [0, 0]


def test_where_the_driver_refuses_streams_are_plain_and_it_is_said_once(a_node: Any, tmp_path: Path) -> None:
    log = tmp_path / "hook.log"
    faults = {"ALIQUOT_SOFTGPU_FAULTS": "cuGreenCtxCreate:1=801,cuGreenCtxCreate:2=801"}
    client = Client(a_node, 25, ALIQUOT_HOOK_LOG=str(log), **faults)
    client.make("one")
    client.make("two")
    assert not client.is_on_a_part("one")
    assert not client.is_on_a_part("two")
    assert log.read_text().count("event=green_context_refused") == 1
