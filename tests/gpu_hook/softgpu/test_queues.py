"""A stream's full queue: the calls that wait for room in it, and those that go on beside."""

from __future__ import annotations

import pytest

# A stream whose first item is a host function that waits, and a thread that fills the queue behind
# it.
BEGIN = """
    import threading
    context = start(); stream = vp(); check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    may_go, began, done = threading.Event(), [], []
    hold = ctypes.CFUNCTYPE(None, vp)(lambda _: may_go.wait())
    check(cuda.cuLaunchHostFunc(stream, hold, None))

    def in_thread(calls, work):
        def run():
            check(cuda.cuCtxSetCurrent(context))
            for index in range(calls):
                began.append(index)
                check(work())
                done.append(index)
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def wait_until(claim):
        while not claim(): time.sleep(0.001)

    def is_asleep(thread):
        with open(f"/proc/self/task/{thread.native_id}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "S"
"""
WORKS = {
    "launch": "launch('aliquot_spin', u64(1000), stream=stream)",
    "record": "cuda.cuEventRecord(mark, stream)",
    "wait": "cuda.cuStreamWaitEvent(stream, mark, 0)",
    "host function": "cuda.cuLaunchHostFunc(stream, nothing, None)",
    "fill": "cuda.cuMemsetD8Async(u64(pointer), 0, ctypes.c_size_t(64), stream)",
    "graph": "cuda.cuGraphLaunch(graph, stream)",
}
PREPARE = """
    mark = event(); check(cuda.cuEventRecord(mark, None)); pointer = alloc(4096)[1]
    nothing = ctypes.CFUNCTYPE(None, vp)(lambda _: None)
    side, made, graph = vp(), vp(), vp()
    check(cuda.cuStreamCreate(ctypes.byref(side), 1)); check(cuda.cuStreamBeginCapture_v2(side, 2))
    check(launch("aliquot_spin", u64(1000), stream=side)); check(cuda.cuStreamEndCapture(side, ctypes.byref(made)))
    check(cuda.cuGraphInstantiateWithFlags(ctypes.byref(graph), made, u64(0)))
"""


@pytest.mark.parametrize("kind", WORKS)
def test_a_call_into_a_full_queue_waits_for_room(make_machine, kind):
    """A graph of one node is three work items: its begin, its node and its end."""
    works, calls = (3, 5) if kind == "graph" else (1, 15)
    said = make_machine(QUEUE=str(1 + works * calls)).run(
        BEGIN
        + PREPARE
        + f"""
    thread = in_thread({calls + 1}, lambda: {WORKS[kind]})
    wait_until(lambda: len(began) == {calls + 1})
    wait_until(lambda: is_asleep(thread))
    for _ in range(200): time.sleep(0.001)
    say(len(done), cuda.cuStreamQuery(stream))
    may_go.set(); thread.join(); check(cuda.cuStreamSynchronize(stream)); say(len(done))
    """
    )
    want_not_ready = 600
    assert said.split("\n") == [f"{calls} {want_not_ready}", f"{calls + 1}"]


def test_a_full_queue_holds_up_no_other_stream(make_machine):
    said = make_machine(QUEUE="4").run(
        BEGIN
        + """
    thread = in_thread(4, lambda: launch("aliquot_spin", u64(1000), stream=stream))
    wait_until(lambda: len(began) == 4)
    other = vp(); check(cuda.cuStreamCreate(ctypes.byref(other), 1))
    for _ in range(40): check(launch("aliquot_spin", u64(1000), stream=other))
    check(cuda.cuStreamSynchronize(other)); check(cuda.cuStreamDestroy_v2(other)); say(len(done))
    may_go.set(); thread.join(); check(cuda.cuCtxSynchronize()); say(len(done))
    """
    )
    assert said.split("\n") == ["3", "4"]


def test_a_stream_that_ends_lets_a_waiting_call_go(make_machine):
    said = make_machine(QUEUE="4").run(
        BEGIN
        + """
    codes = []
    thread = in_thread(4, lambda: codes.append(launch("aliquot_spin", u64(1000), stream=stream)) or 0)
    wait_until(lambda: len(began) == 4)
    wait_until(lambda: is_asleep(thread))
    check(cuda.cuStreamDestroy_v2(stream)); thread.join(); say(codes[-1])
    may_go.set(); check(cuda.cuCtxSynchronize()); say("through")
    """
    )
    want_invalid_handle = "400"
    assert said.split("\n") == [want_invalid_handle, "through"]


def test_queues_have_no_bound_by_default(a_machine):
    said = a_machine.run(
        BEGIN
        + """
    for _ in range(5000): check(launch("aliquot_spin", u64(100), stream=stream))
    say("queued"); may_go.set(); check(cuda.cuStreamSynchronize(stream))
    """
    )
    assert said == "queued"


@pytest.mark.parametrize("value", ["-1", "many", "1048577"])
def test_a_bound_that_cannot_be_read_is_an_error(make_machine, value):
    want_not_ready = "802"
    assert make_machine(QUEUE=value).run("say(cuda.cuInit(0))") == want_not_ready
