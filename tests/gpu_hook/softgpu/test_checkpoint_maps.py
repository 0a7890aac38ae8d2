"""A restore with a map of GPUs: which maps the software GPU takes, and where the process is then."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

LOCKED, CHECKPOINTED = 1, 2
INVALID_VALUE = 1

_UUID = """
    def bus_of(device):
        found, same = ctypes.create_string_buffer(32), ctypes.c_int(-1)
        check(cuda.cuDeviceGetPCIBusId(found, 32, device)); check(cuda.cuDeviceGetByPCIBusId(ctypes.byref(same), found))
        assert same.value == device
        return found.value.decode()
    def uuid_of(device):
        found = (ctypes.c_ubyte * 16)(); check(cuda.cuDeviceGetUuid_v2(found, device)); return bytes(found).hex()
"""
_TARGET = (
    _UUID
    + """
    start(); p = alloc(16 * MIB)[1]; data = os.urandom(16 * MIB); upload(p, data)
    say(os.getpid())
    for line in sys.stdin:
        free, more = free_bytes() // MIB, alloc(8 * MIB)[1]
        check(launch("aliquot_fill", u64(more), ctypes.c_uint32(7), u64(8 * MIB // 4)))
        check(cuda.cuCtxSynchronize())
        left = free_bytes() // MIB
        check(cuda.cuMemFree_v2(u64(more)))
        say(download(p, 16 * MIB) == data, uuid_of(0), free, left, bus_of(0))
"""
)
_KEEPER = (
    _UUID
    + """
    class Pair(ctypes.Structure):
        _fields_ = [("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16)]
    class Restore(ctypes.Structure):
        _fields_ = [("pairs", ctypes.POINTER(Pair)), ("count", ctypes.c_uint), ("rest", ctypes.c_ubyte * 52)]
    check(cuda.cuInit(0)); say("up")
    contexts = [start(device) for device in range(3)]
    def state(pid):
        found = ctypes.c_int(-1); check(cuda.cuCheckpointProcessGetState(pid, ctypes.byref(found))); return found.value
    def restore(pid, words):
        pairs = [word.split(">") for word in words]
        raw = [Pair(*((ctypes.c_ubyte * 16)(*bytes.fromhex(one)) for one in pair)) for pair in pairs]
        asked = Restore((Pair * len(raw))(*raw), len(raw))
        return cuda.cuCheckpointProcessRestore(pid, ctypes.byref(asked))
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "buses": say(*(bus_of(device) for device in range(3)))
        elif verb == "uuids": say(*(uuid_of(device) for device in range(3)))
        elif verb == "free":
            said = []
            for context in contexts:
                check(cuda.cuCtxSetCurrent(context)); said.append(free_bytes() // MIB)
            say(*said)
        elif verb == "take":
            check(cuda.cuCtxSetCurrent(contexts[int(words[0])])); say(alloc(int(words[1]) * MIB)[0])
        elif verb == "restore": say(restore(int(words[0]), words[1:]), state(int(words[0])))
        else: say(getattr(cuda, "cuCheckpointProcess" + verb)(int(words[0]), None), state(int(words[0])))
"""
)


def _ask(client: subprocess.Popen[str], line: str) -> str:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(line + "\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


class Scene:
    """A process with memory on the first of three GPUs, saved by another process."""

    def __init__(self, a_machine, **extra: str) -> None:
        a_machine.settings["DEVICES"] = "3"
        self.keeper = a_machine.popen(_KEEPER)
        assert self.keeper.stdout.readline() == "up\n"
        self.uuids = _ask(self.keeper, "uuids").split()
        self.target = a_machine.popen(_TARGET, **extra)
        self.pid = int(self.target.stdout.readline())
        self.before = self.free()
        self.save()

    def save(self) -> None:
        assert _ask(self.keeper, f"Lock {self.pid}") == f"0 {LOCKED}"
        assert _ask(self.keeper, f"Checkpoint {self.pid}") == f"0 {CHECKPOINTED}"

    def free(self) -> list[int]:
        return [int(one) for one in _ask(self.keeper, "free").split()]

    def restore(self, pairs: Sequence[tuple[int, int]]) -> str:
        words = " ".join(f"{self.uuids[old]}>{self.uuids[new]}" for old, new in pairs)
        return _ask(self.keeper, f"restore {self.pid} {words}")

    def look(self) -> tuple[str, str, int]:
        """Let the process go on; return whether its bytes are whole, its GPU, and what an allocation took."""
        assert _ask(self.keeper, f"Unlock {self.pid}") == "0 0"
        whole, uuid, before, after, self.bus = _ask(self.target, "look").split()
        return whole, uuid, int(before) - int(after)


@pytest.mark.parametrize("visible", [{}, {"CUDA_VISIBLE_DEVICES": "0"}], ids=["all GPUs", "one GPU visible"])
def test_a_process_is_restored_on_another_gpu_with_its_bytes(a_machine, visible) -> None:
    scene = Scene(a_machine, **visible)
    assert scene.restore([(0, 1), (1, 0), (2, 2)]) == f"0 {LOCKED}"
    assert scene.free() == [scene.before[0] + 16, scene.before[1] - 16, scene.before[2]]
    assert scene.look() == ("True", scene.uuids[1], 8)


@pytest.mark.parametrize(("stale", "want"), [("", (1, 0)), ("0", (1, 1)), ("1", (1, 0)), ("2", (0, 0))])
def test_a_restored_process_may_be_told_the_gpu_before(a_machine, stale, want) -> None:
    """Drivers are said to tell the PCI bus id of the GPU before: NVIDIA/cuda-checkpoint#48."""
    scene = Scene(a_machine, **({"ALIQUOT_SOFTGPU_STALE": stale} if stale else {}))
    buses = _ask(scene.keeper, "buses").split()
    assert scene.restore([(0, 1), (1, 0), (2, 2)]) == f"0 {LOCKED}"
    assert scene.free() == [scene.before[0] + 16, scene.before[1] - 16, scene.before[2]]
    _, uuid, taken = scene.look()
    assert (scene.uuids.index(uuid), buses.index(scene.bus)) == want
    assert taken == 8, "whatever it is told, it allocates on the GPU where it is"


def test_a_process_that_was_moved_is_moved_again_from_where_it_is(a_machine) -> None:
    scene = Scene(a_machine)
    assert scene.restore([(0, 1), (1, 0), (2, 2)]) == f"0 {LOCKED}"
    assert scene.look()[1] == scene.uuids[1]
    scene.save()
    assert scene.restore([(1, 2), (2, 1), (0, 0)]) == f"0 {LOCKED}"
    assert scene.look() == ("True", scene.uuids[2], 8)
    assert scene.free() == [scene.before[0] + 16, scene.before[1], scene.before[2] - 16]


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1)],
        [(0, 1), (1, 0)],
        [(0, 1), (1, 1), (2, 2)],
        [(0, 1), (0, 0), (2, 2)],
        [(0, 1), (1, 0), (2, 2), (2, 2)],
    ],
    ids=["its own GPU alone", "one is missing", "two take one place", "one is named twice", "too many"],
)
def test_a_map_that_is_no_permutation_of_all_gpus_is_refused(a_machine, pairs) -> None:
    """The driver's map has to name every GPU that the kernel-mode driver sees, and each once."""
    scene = Scene(a_machine, CUDA_VISIBLE_DEVICES="0")
    assert scene.restore(pairs) == f"{INVALID_VALUE} {CHECKPOINTED}"
    assert scene.restore([(one, one) for one in range(3)]) == f"0 {LOCKED}"
    assert scene.look() == ("True", scene.uuids[0], 8)
    assert scene.free() == scene.before


def test_an_unknown_gpu_in_the_map_is_refused(a_machine) -> None:
    scene = Scene(a_machine)
    scene.uuids.append("00" * 16)
    assert scene.restore([(0, 3), (1, 1), (2, 2)]) == f"{INVALID_VALUE} {CHECKPOINTED}"


def test_a_moved_process_that_ends_leaves_its_new_gpu(a_machine) -> None:
    scene = Scene(a_machine)
    scene.restore([(0, 1), (1, 0), (2, 2)])
    scene.target.kill()
    scene.target.wait(timeout=20)
    assert scene.free() == [scene.before[0] + 16, scene.before[1], scene.before[2]]
