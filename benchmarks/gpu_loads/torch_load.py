"""A typical notebook load in plain PyTorch: `torch_load.py convnet|transformer|decode [--pauses]`.

It prints "ready" when it is warm. A line on stdin begins a run and the next one ends it. Each step
is a line, "step <index> <begin us> <length us>" by the clock, including the wait for the end of its
work on the device; "done <steps>" is the last line. The end of stdin ends the program. `--pauses`
adds those of a production program: reading input, or thinking between answers.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import select
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], None]
WARM_STEPS = 10


def convnet() -> Step:
    """Train a small convolutional network."""
    layers: list[nn.Module] = []
    widths = (3, 64, 128, 256, 256)
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(64, 3, 96, 96, device="cuda"), torch.randint(0, 100, (64,), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def transformer() -> Step:
    """Train a small transformer in bfloat16."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    net = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    tokens = torch.randn(16, 256, 512, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = (net(tokens) - tokens).pow(2).mean()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def decode() -> Step:
    """Answer token by token, each a replay of one CUDA graph."""
    blocks = ((nn.LayerNorm(2048), nn.Linear(2048, 4096), nn.GELU(), nn.Linear(4096, 2048)) for _ in range(16))
    net = nn.Sequential(*itertools.chain.from_iterable(blocks)).cuda().bfloat16()
    state = torch.randn(8, 2048, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    with torch.no_grad():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                net(state)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            best = net(state).argmax()

    def step() -> None:
        graph.replay()
        best.item()

    return step


LOADS = {"convnet": convnet, "transformer": transformer, "decode": decode}


def pause_after(load: str, index: int, chance: random.Random) -> float:
    """Return seconds: a loader that does not keep up, nothing, or the time until the next question."""
    if load == "convnet":
        return chance.uniform(0.002, 0.02)
    return chance.uniform(0.02, 0.1) if load == "decode" and index % 32 == 31 else 0.0


def is_told() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def read_line() -> bytes:
    """Read a line without a buffer; empty at the end of stdin.

    ``is_told`` would not see a line that a buffer already holds.
    """
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(sys.stdin.fileno(), 1)):
        line += byte
    return line


def run(load: str, step: Step, has_pauses: bool) -> None:
    chance, first, index = random.Random(7), time.perf_counter(), 0
    while not is_told():
        begin = time.perf_counter()
        step()
        end = time.perf_counter()
        print(f"step {index} {(begin - first) * 1e6:.1f} {(end - begin) * 1e6:.1f}")
        pause = pause_after(load, index, chance) if has_pauses else 0.0
        if pause:
            time.sleep(pause)
        index += 1
    read_line()
    print(f"done {index}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=tuple(LOADS))
    parser.add_argument("--pauses", action="store_true")
    asked = parser.parse_args()
    torch.manual_seed(7)
    step = LOADS[asked.load]()
    for _ in range(WARM_STEPS):
        step()
    torch.cuda.synchronize()
    print("ready", flush=True)
    while read_line():
        run(asked.load, step, asked.pauses)


if __name__ == "__main__":
    main()
