"""A process of a kernel that works on all its devices from several threads, and checks its bytes.

``THREADS``. It prints ``ready``, then obeys lines, each with one line of answer: ``work`` (until
each thread took some steps more), ``pause`` and ``go on`` (its threads), ``verify`` (the number of
correct buffers), ``end``. A wrong byte ends it.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time

CUDA = ctypes.CDLL("libcuda.so.1")
U64, SIZE = ctypes.c_uint64, ctypes.c_size_t
FILL = (
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry aliquot_fill(.param .u64 to, .param .u32 value, "
    b".param .u64 words)\n{\n ret;\n}\n"
)
SIZES = (4096, 300_000, 1 << 20, 3 << 20, (2 << 20) + 4096)
MOST = 12  # buffers of a thread


def call(name: str, *arguments: object) -> None:
    code = getattr(CUDA, name)(*arguments)
    if code != 0:
        print(f"{name} answered {code}", flush=True)
        os._exit(3)


class Worker(threading.Thread):
    """Allocates, fills by kernel and by copy, copies, compares and frees on one device."""

    def __init__(self, number: int, context: ctypes.c_void_p) -> None:
        super().__init__(daemon=True)
        self._context = context
        self._random = random.Random(number)
        self._buffers: list[tuple[int, bytes]] = []
        self.steps = 0
        self.may_go = threading.Event()
        self.may_go.set()
        self.is_still = threading.Event()

    def run(self) -> None:
        call("cuCtxSetCurrent", self._context)
        module, self._fill, self._stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(module), FILL)
        call("cuModuleGetFunction", ctypes.byref(self._fill), module, b"aliquot_fill")
        call("cuStreamCreate", ctypes.byref(self._stream), 1)
        while True:
            if not self.may_go.is_set():
                self.is_still.set()
                self.may_go.wait()
            self._step()
            self.steps += 1

    def _step(self) -> None:
        """Take a step at random. The first buffer stays, and can be swapped out: some memory always leaves."""
        choice = self._random.random()
        if len(self._buffers) < (MOST if choice < 0.4 else 2):
            self._allocate()
        elif choice < 0.6:
            pointer, _ = self._buffers.pop(self._random.randrange(1, len(self._buffers)))
            call("cuMemFree_v2", U64(pointer))
        elif choice < 0.8:
            self._launch(self._random.randrange(len(self._buffers)))
        else:
            self.check(self._random.randrange(len(self._buffers)))

    def _allocate(self) -> None:
        size, pointer = self._random.choice(SIZES) if self._buffers else SIZES[-1], U64()
        content = self._random.randbytes(size)
        call("cuMemAlloc_v2", ctypes.byref(pointer), SIZE(size))
        call("cuMemcpyHtoD_v2", pointer, content, SIZE(size))
        self._buffers.append((pointer.value, content))

    def _launch(self, index: int) -> None:
        """Fill the front half by a kernel."""
        pointer, content = self._buffers[index]
        words = len(content) // 8
        value = self._random.getrandbits(32)
        held = (U64(pointer), ctypes.c_uint32(value), U64(words))
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(word) for word in held))
        call("cuLaunchKernel", self._fill, 8, 1, 1, 64, 1, 1, 0, self._stream, arguments, None)
        call("cuStreamSynchronize", self._stream)
        self._buffers[index] = (pointer, value.to_bytes(4, sys.byteorder) * words + content[4 * words :])

    def check(self, index: int) -> None:
        pointer, content = self._buffers[index]
        found = ctypes.create_string_buffer(len(content))
        call("cuMemcpyDtoH_v2", found, U64(pointer), SIZE(len(content)))
        if found.raw != content:
            print(f"a buffer of {len(content)} bytes at {pointer:#x} is not as it was", flush=True)
            os._exit(4)

    def verify(self) -> int:
        for index in range(len(self._buffers)):
            self.check(index)
        return len(self._buffers)


def open_devices() -> list[ctypes.c_void_p]:
    call("cuInit", 0)
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    contexts = []
    for device in range(count.value):
        context = ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        contexts.append(context)
    return contexts


def main() -> None:
    contexts = open_devices()
    seed = os.getpid()
    workers = [Worker(seed * 64 + n, contexts[n % len(contexts)]) for n in range(int(sys.argv[1]))]
    for worker in workers:
        worker.start()
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "work":
            want = [worker.steps + 3 for worker in workers]
            while any(worker.steps < least for worker, least in zip(workers, want, strict=True)):
                time.sleep(0.002)
            print("True", flush=True)
        elif word == "pause":
            for worker in workers:
                worker.is_still.clear()
                worker.may_go.clear()
            print(all(worker.is_still.wait(60) for worker in workers), flush=True)
        elif word == "go on":
            for worker in workers:
                worker.may_go.set()
            print("True", flush=True)
        elif word == "verify":
            call("cuCtxSetCurrent", contexts[0])
            print(sum(worker.verify() for worker in workers), flush=True)
        else:
            break
    os._exit(0)


if __name__ == "__main__":
    main()
