"""ALIQUOT_SOFTGPU_STRICT: calls at which a real driver may crash end the process."""

from __future__ import annotations

import signal
from typing import Any

import pytest

INVALID_CONTEXT = 201
END_AND_ASK = """
check(cuda.cuInit(0)); made = vp(); check(cuda.cuCtxCreate_v2(ctypes.byref(made), 0, 0))
check(cuda.cuCtxDestroy_v2(made))
say(cuda.{call})
"""
QUESTIONS = [
    "cuCtxGetApiVersion(made, ctypes.byref(ctypes.c_uint()))",
    "cuCtxSetCurrent(made)",
    "cuCtxPushCurrent_v2(made)",
    "cuCtxDestroy_v2(made)",
]


@pytest.mark.parametrize("call", QUESTIONS)
def test_a_context_that_has_ended_is_refused_or_with_strict_the_end(call: str, make_machine: Any) -> None:
    machine = make_machine()
    assert machine.run(END_AND_ASK.format(call=call)) == str(INVALID_CONTEXT)
    machine.run(END_AND_ASK.format(call=call), want_code=-signal.SIGABRT, ALIQUOT_SOFTGPU_STRICT="1")


def test_strict_forgives_what_is_not_named(make_machine: Any) -> None:
    """CUDA defines the answers for a current context that has ended, and for NULL."""
    code = "start(); check(cuda.cuCtxDestroy_v2(vp()) - 201); check(cuda.cuCtxSetCurrent(vp())); say('on')"
    assert make_machine().run(code, ALIQUOT_SOFTGPU_STRICT="1") == "on"


EXIT_BESIDE_CALLS = """
import threading
start()
def call():
    while True:
        cuda.cuCtxGetCurrent(ctypes.byref(vp()))
threading.Thread(target=call, daemon=True).start()
ctypes.CDLL(None).exit(0)  # not Python's, which would stop the thread first
"""


def test_a_call_beside_the_teardown_is_harmless_or_with_strict_the_end(make_machine: Any) -> None:
    make_machine().run(EXIT_BESIDE_CALLS)
    make_machine().run(EXIT_BESIDE_CALLS, want_code=-signal.SIGABRT, ALIQUOT_SOFTGPU_STRICT="1")
