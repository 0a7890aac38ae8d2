"""Amounts of memory in people's words: units are binary, and a small number without one is refused."""

from __future__ import annotations

import argparse

import pytest

from jupyter_aliquot.gpu_hook.agent.settings import parse_bytes
from jupyter_aliquot.gpu_hook.base.memory_text import parse_memory
from jupyter_aliquot.provisioner.resources import Bytes

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "want"),
    [
        *(("8GiB", 8 * GIB), ("8g", 8 * GIB), ("512 MiB", 512 * MIB), ("1.5GB", 3 * GIB // 2), ("4k", 4 * KIB)),
        *(("1073741824", GIB), ("1048576", MIB), ("80b", 80), ("80 B", 80)),
    ],
)
def test_an_amount_is_the_same_for_all_who_read_one(text: str, want: int) -> None:
    assert (parse_memory(text), Bytes.parse(text), parse_bytes(text)) == (want, want, want)


@pytest.mark.parametrize("text", ["80", " 12 ", "0.5", "1048575"])
def test_a_small_number_without_a_unit_is_refused_with_what_was_probably_meant(text: str) -> None:
    number = text.strip()
    want = f"{text!r} is {number} bytes, without a unit. Did you mean {number}GiB? Write {number}b for bytes"
    for read in (parse_memory, Bytes.parse):
        with pytest.raises(ValueError, match="without a unit") as caught:
            read(text)
        assert str(caught.value) == want
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        parse_bytes(text)
    assert str(refused.value) == want


def test_nothing_is_an_amount_but_of_no_option_of_the_agent() -> None:
    assert (parse_memory("0"), Bytes.parse("0")) == (0, 0)
    with pytest.raises(argparse.ArgumentTypeError, match="above 0"):
        parse_bytes("0")


@pytest.mark.parametrize("text", ["", "many", "-1", "1x", "1e3", "GiB"])
def test_other_words_are_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount of memory"):
        parse_memory(text)
