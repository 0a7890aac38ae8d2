"""`aliquot capacity`: what a server carries, as the node agent would find it, and the memory for more."""

from __future__ import annotations

import json

import pytest

from jupyter_aliquot.gateway.cli.administration.capacity import RATIOS, capacity

GIB = 1 << 30


def test_it_tells_what_the_page_of_capacity_tells(run_aliquot) -> None:
    done = run_aliquot("capacity", "--gpus", "4", "--gpu-memory", "80GiB", "--host-memory", "512GiB", "--json")
    told = json.loads(done.stdout)
    assert (told["overcommit"], told["kernels"]["1"], told["kernels"]["0.25"]) == (1.3, 4, 20)
    assert told["copies_bytes"] == 256 * GIB
    assert told["reason"].startswith("the host has 256.0 GiB for copies")


@pytest.mark.parametrize(("gpus", "memory"), [(1, 24), (2, 48), (8, 141)])
@pytest.mark.parametrize("ratio", RATIOS)
def test_the_memory_for_more_is_enough_and_not_too_much(gpus: int, memory: int, ratio: float) -> None:
    need = capacity(gpus, memory * GIB, 0, GIB // 8).copies_bytes[ratio]
    assert capacity(gpus, memory * GIB, need, GIB // 8).ratio == ratio
    assert capacity(gpus, memory * GIB, need - GIB, GIB // 8).ratio < ratio


def test_half_of_the_hosts_memory_is_for_copies_unless_it_is_told(run_aliquot) -> None:
    words = ("capacity", "--gpus", "1", "--gpu-memory", "24GiB", "--host-memory", "64GiB")
    assert "32.0 GiB of it for copies" in run_aliquot(*words).stdout
    assert "48.0 GiB of it for copies" in run_aliquot(*words, "--swap-memory", "48GiB").stdout


def test_large_contexts_are_the_limit_and_are_named() -> None:
    found = capacity(1, 24 * GIB, 480 * GIB, 4 * GIB)
    assert (found.ratio, found.reason.split(" takes ")[0]) == (2.5, "each context")


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("--gpus", "0"), "Requested 0 GPUs, but a server has 1 to 16"),
        (("--gpu-memory", "eighty"), "--gpu-memory: 'eighty' is not an amount of memory"),
        (("--gpu-memory", "0"), "--gpu-memory is 0"),
        (("--gpu-memory", "80"), "--gpu-memory: '80' is 80 bytes, without a unit. Did you mean 80GiB?"),
        (("--host-memory", "512"), "--host-memory: '512' is 512 bytes"),
        (("--swap-memory", "256"), "--swap-memory: '256' is 256 bytes"),
        (("--context", "1048575"), "--context: '1048575' is 1048575 bytes"),
        (("--swap-memory", "much"), "--swap-memory: 'much' is not an amount of memory"),
        (("--swap-memory", "2TiB"), "Requested 2.0 TiB for copies (--swap-memory), but the server has 512.0 GiB"),
        (("--gpu", "4"), "--gpu"),
    ],
)
def test_a_wrong_amount_is_told_in_a_line(run_aliquot, words: tuple[str, ...], want: str) -> None:
    done = run_aliquot("capacity", *words)
    assert done.returncode == 2
    assert want in done.stderr
    assert "Traceback" not in done.stderr
