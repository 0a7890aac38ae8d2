"""Streams of production in the upper half of the device's priorities, of opportunistic kernels in the lower."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hook_sources import SOURCES, source as hook_source
from shared_words import store_half

from jupyter_aliquot.gpu_hook.protocol.codec import Actuators, AgentPage, WorkloadClass

MIB = 1 << 20
STREAM = "streams.setdefault({name!r}, U64())"
DRIVER = "ctypes.CDLL(os.environ['ALIQUOT_REAL_CUDA'])"
RANGE = "(lambda a, b: [call('cuCtxGetStreamPriorityRange', ctypes.byref(a), ctypes.byref(b)), a.value, b.value])"
RANGE += "(ctypes.c_int(), ctypes.c_int())"


def levels(least: int, greatest: int) -> list[int]:
    """From the least priority up."""
    return list(range(least, greatest - 1, -1))


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory, include_dir: Path) -> Callable[..., int]:
    """The rule of stream_priority.c alone."""
    library = tmp_path_factory.mktemp("priority") / "rule.so"
    rule = hook_source("stream_priority.c").read_text()
    start, end = rule.index("static int within"), rule.index("bool stream_priority_choose")
    source = library.with_suffix(".c")
    source.write_text('#include "streams/stream_priority.h"\n' + rule[start:end])
    flags = ["-shared", "-fPIC", "-w", f"-I{SOURCES}", f"-I{include_dir}", f"-I{source.parent}"]
    (source.parent / "driver_calls.h").write_text("")
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    found = ctypes.CDLL(str(library)).priority_bounded

    class Wish(ctypes.Structure):
        _fields_ = (("asked", ctypes.c_int), ("is_explicit", ctypes.c_bool))

    class Range(ctypes.Structure):
        _fields_ = (("least", ctypes.c_int), ("greatest", ctypes.c_int))

    found.argtypes = (ctypes.c_bool, Wish, Range)
    return lambda is_production, asked, is_explicit, least, greatest: int(
        found(is_production, Wish(asked, is_explicit), Range(least, greatest))
    )


@pytest.mark.parametrize(("least", "greatest"), [(0, -1), (0, -2), (0, -5), (2, -3), (0, -6)])
def test_the_classes_have_no_priority_in_common(bounded: Callable[..., int], least: int, greatest: int) -> None:
    asked = range(least + 3, greatest - 4, -1)
    production = {bounded(True, one, True, least, greatest) for one in asked}
    opportunistic = {bounded(False, one, True, least, greatest) for one in asked}
    assert sorted(production | opportunistic, reverse=True) == levels(least, greatest)
    assert min(opportunistic) > max(production)  # the greatest priority is the smallest number
    assert len(production) - len(opportunistic) == len(levels(least, greatest)) % 2


def test_what_fits_the_class_is_left_as_it_was_asked(bounded: Callable[..., int]) -> None:
    assert [bounded(True, one, True, 0, -5) for one in (-3, -4, -5)] == [-3, -4, -5]
    assert [bounded(False, one, True, 0, -5) for one in (0, -1, -2)] == [0, -1, -2]


def test_streams_that_name_no_priority_get_the_least_or_the_middle(bounded: Callable[..., int]) -> None:
    assert bounded(False, -2, False, 0, -5) == 0
    assert bounded(True, 0, False, 0, -5) == -3


def test_a_device_with_one_level_keeps_it(bounded: Callable[..., int]) -> None:
    assert bounded(True, 0, True, 0, 0) == bounded(False, 0, False, 0, 0) == 0


def make(program: Any, name: str, priority: int | None = None) -> None:
    stream = f"ctypes.byref({STREAM.format(name=name)})"
    if priority is None:
        assert program(f"call('cuStreamCreate', {stream}, 1)") == 0
    else:
        assert program(f"call('cuStreamCreateWithPriority', {stream}, 1, {priority})") == 0


def shown(program: Any, name: str) -> int:
    """What the program reads of its stream."""
    question = f"(lambda a: [call('cuStreamGetPriority', {STREAM.format(name=name)}, ctypes.byref(a)), a.value])"
    code, value = program(f"{question}(ctypes.c_int())")
    assert code == 0
    return int(value)


def given(program: Any, name: str) -> int:
    """What the driver made of it, asked past the hook."""
    question = f"(lambda a: [{DRIVER}.cuStreamGetPriority({STREAM.format(name=name)}, ctypes.byref(a)), a.value])"
    code, value = program(f"{question}(ctypes.c_int())")
    assert code == 0
    return int(value)


def begin(node: Any, workload: WorkloadClass, actuators: Actuators, **env: str) -> Any:
    outsider = node.outsider()
    assert outsider("begin()") == 0
    agent = node.grant((outsider("uuid(0)"), 64 * MIB))
    program = node.program(**env)
    assert program("begin()") == 0
    store_half(agent.process(program.pid).agent_page, AgentPage.ACTUATORS, actuators)
    agent.set_workload_class(workload)
    return program


@pytest.mark.parametrize("workload", list(WorkloadClass))
def test_a_program_reads_what_it_asked_for_and_the_driver_got_its_class(a_node: Any, workload: WorkloadClass) -> None:
    program = begin(a_node, workload, Actuators.STREAM_PRIORITY)
    _, least, greatest = program(RANGE)
    half = len(levels(least, greatest)) // 2
    for index, asked in enumerate(levels(least, greatest)):
        make(program, f"s{index}", asked)
        assert shown(program, f"s{index}") == asked
        is_upper = least - given(program, f"s{index}") >= half
        assert is_upper == (workload is WorkloadClass.PRODUCTION)
    make(program, "beyond", greatest - 100)
    assert shown(program, "beyond") == greatest  # as the driver says it
    make(program, "plain")
    assert shown(program, "plain") == 0
    assert (given(program, "plain") == least) == (workload is WorkloadClass.OPPORTUNISTIC)


def test_without_the_actuator_every_stream_is_as_it_was_asked(a_node: Any) -> None:
    program = begin(a_node, WorkloadClass.OPPORTUNISTIC, Actuators(0))
    _, least, greatest = program(RANGE)
    for asked in levels(least, greatest):
        make(program, str(asked), asked)
        assert (shown(program, str(asked)), given(program, str(asked))) == (asked, asked)


def test_a_stream_with_the_handle_of_an_ended_one_shows_its_own_priority(a_node: Any) -> None:
    program = begin(a_node, WorkloadClass.OPPORTUNISTIC, Actuators.STREAM_PRIORITY)
    greatest = program(RANGE)[2]
    for _ in range(50):
        make(program, "one", greatest)
        assert shown(program, "one") == greatest
        assert program("call('cuStreamDestroy_v2', streams['one'])") == 0
        make(program, "one", 0)
        assert shown(program, "one") == 0
        assert program("call('cuStreamDestroy_v2', streams['one'])") == 0


def test_a_stream_that_could_not_be_ended_shows_what_was_asked(a_node: Any) -> None:
    faults = {"ALIQUOT_SOFTGPU_FAULTS": "cuStreamDestroy_v2:1=999"}
    program = begin(a_node, WorkloadClass.PRODUCTION, Actuators.STREAM_PRIORITY, **faults)
    make(program, "one", 0)
    assert given(program, "one") != 0
    assert program(f"call('cuStreamDestroy_v2', {STREAM.format(name='one')})") == 999
    assert shown(program, "one") == 0


def test_more_streams_than_are_remembered_show_what_was_asked(a_node: Any) -> None:
    program = begin(a_node, WorkloadClass.PRODUCTION, Actuators.STREAM_PRIORITY)
    for number in range(1300):
        make(program, f"s{number}", 0)
    assert {shown(program, f"s{number}") for number in range(1300)} == {0}


def test_contexts_that_come_and_go_leave_room_for_streams(a_node: Any) -> None:
    program = begin(a_node, WorkloadClass.PRODUCTION, Actuators.STREAM_PRIORITY)
    context = "ctypes.byref(streams.setdefault('context', U64()))"
    for _ in range(30):
        assert program(f"call('cuCtxCreate_v2', {context}, 0, 0)") == 0
        for number in range(40):
            make(program, f"s{number}", 0)
        assert program("call('cuCtxDestroy_v2', streams['context'])") == 0
        make(program, "after", 0)
        assert given(program, "after") != 0
