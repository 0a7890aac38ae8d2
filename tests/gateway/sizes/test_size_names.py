"""The grammar of sized kernelspec names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gateway.sizes.grammar import (
    PATTERN,
    SizedName,
    describe_grammar,
    parse_size,
    parse_size_name,
    parse_whole_size,
    resized_name,
    size_label,
    size_name,
)
from jupyter_aliquot.provisioner.errors import SizeNameError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, HostPart, Request, WorkloadClass

GIB = 1 << 30
LOW = WorkloadClass.OPPORTUNISTIC

bases = st.text("abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1, max_size=20).filter(
    lambda b: ".gpu-" not in f"{b}."
)
requests = st.builds(
    Request,
    gpus=st.integers(1, 999_999).map(GpuShare),
    memory_limit=st.none() | st.integers(1, 99_999).map(lambda gib: Bytes(gib * GIB)),
    workload_class=st.sampled_from(WorkloadClass),
)

folders = st.text("abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1, max_size=10).filter(
    lambda name: name[0].isalnum() and ".with-" not in f".{name}." and name != "none" and ".gpu-" not in name
)
hosts = st.builds(
    HostPart,
    cpus=st.none() | st.integers(1, 400).map(lambda halves: halves / 2),
    memory=st.none() | st.integers(1, 99_999).map(lambda gib: Bytes(gib * GIB)),
    folders=st.none() | st.lists(folders, max_size=3, unique=True).map(tuple),
)


@given(base=bases, request=requests, host=hosts)
def test_a_name_is_read_back_as_it_was_written(base: str, request: Request, host: HostPart) -> None:
    name = size_name(base, request, host)
    assert parse_size_name(name) == SizedName(base, request, host)
    assert re.fullmatch(re.sub(r"\(\?<(\w)", r"(?P<\1", PATTERN), name)


@given(base=bases, before=requests, after=requests, host=hosts)
def test_a_name_in_another_size_keeps_its_part_of_the_host(
    base: str, before: Request, after: Request, host: HostPart
) -> None:
    assert resized_name(size_name(base, before, host), after) == size_name(base, after, host)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("python3.gpu-0.5-4cpu", HostPart(cpus=4)),
        ("python3.gpu-0.5-0.5CPU-16RAM-low", HostPart(0.5, Bytes(16 * GIB))),
        ("python3.gpu-0.5-8g-16ram", HostPart(memory=Bytes(16 * GIB))),
        ("python3.gpu-1.with-sets.with-a.b", HostPart(folders=("sets", "a.b"))),
        ("python3.gpu-1-low.with-none", HostPart(folders=())),
    ],
)
def test_a_name_carries_a_part_of_the_host(name: str, want: HostPart) -> None:
    sized = parse_size_name(name)
    assert sized is not None
    assert sized.host == want


@pytest.mark.parametrize("folders", [("x.gpu-1",), ("a.with-b",), ("a.with-",), ("none",), ("sets", "sets")])
def test_folders_that_a_name_would_not_give_back_are_refused(folders: tuple[str, ...]) -> None:
    with pytest.raises(SizeNameError, match=r"Choose others|Name each once"):
        size_name("python3", Request(GpuShare(50)), HostPart(folders=folders))


def test_a_preset_has_no_part_of_the_host() -> None:
    with pytest.raises(SizeNameError, match="CPUs or memory of the host"):
        parse_size("0.25-4cpu")


@pytest.mark.parametrize(
    ("name", "request_", "want"),
    [
        ("python3", Request(GpuShare(50)), "python3"),
        ("my.gpu-kernel", Request(GpuShare(50)), "my.gpu-kernel"),
        ("python3.gpu-none", Request(GpuShare(50)), "python3.gpu-none"),
        ("Python3.GPU-0.50", Request(GpuShare(50)), "Python3.GPU-0.50"),
        ("python3.gpu-0.5-8g", Request(GpuShare(50)), "python3.gpu-0.5"),
        ("python3.gpu-0.5", Request(GpuShare(50), Bytes(3 * GIB // 2)), "python3.gpu-0.5-2g"),
        ("python3.gpu-0.5", Request(GpuShare(37), Bytes(5 * GIB), LOW), "python3.gpu-0.37-5g-low"),
    ],
)
def test_a_name_that_is_no_size_or_this_one_stays(name: str, request_: Request, want: str) -> None:
    assert resized_name(name, request_) == want


@given(name=st.text(max_size=40) | st.builds("{}.gpu-{}".format, bases, st.text("0123456789.-glow", max_size=12)))
def test_every_name_is_plain_or_valid_or_refused_by_our_error(name: str) -> None:
    try:
        sized = parse_size_name(name, GpuShare(800))
    except SizeNameError:
        return
    assert sized is None or parse_size_name(size_name(sized.base, sized.request)) == sized


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("python3.gpu-0.25", Request(GpuShare(25))),
        ("python3.gpu-2.5", Request(GpuShare(250))),
        ("python3.gpu-1", Request(GpuShare(100))),
        ("python3.gpu-1.0", Request(GpuShare(100))),
        ("python3.gpu-0.25-low", Request(GpuShare(25), None, LOW)),
        ("python3.gpu-0.5-8g", Request(GpuShare(50), Bytes(8 * GIB))),
        ("python3.gpu-0.5-8g-low", Request(GpuShare(50), Bytes(8 * GIB), LOW)),
        ("Python3.GPU-0.5-8G-LOW", Request(GpuShare(50), Bytes(8 * GIB), LOW)),
    ],
)
def test_a_valid_name_is_its_request(name: str, want: Request) -> None:
    sized = parse_size_name(name)
    assert sized is not None
    assert sized.request == want


@pytest.mark.parametrize("name", ["python3", "python3.gpu", "gpu-1", "python3-gpu-1", ""])
def test_a_plain_name_is_no_size(name: str) -> None:
    assert parse_size_name(name) is None


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("python3.gpu-0", "a share of 0 GPUs"),
        ("python3.gpu-0.00", "a share of 0 GPUs"),
        ("python3.gpu--0.5", "negative"),
        ("python3.gpu-0.255", "more than two decimals"),
        ("python3.gpu-0.250", "more than two decimals"),
        ("python3.gpu-half", "no number of GPUs"),
        ("python3.gpu-", "no number of GPUs"),
        ("python3.gpu-.5", "no number of GPUs"),
        ("python3.gpu-1e1", "no number of GPUs"),
        ("python3.gpu-nan", "no number of GPUs"),
        ("python3.gpu-٢", "no number of GPUs"),
        ("python3.gpu-8.01", "more than the 8 GPUs"),
        ("python3.gpu-99999999", "no number of GPUs"),
        ("python3.gpu-0.5-0g", "1 GiB or more"),
        ("python3.gpu-0.5-8", "no option"),
        ("python3.gpu-0.5-low-8g", "comes before -low"),
        ("python3.gpu-0.5-low-low", "no option"),
        ("python3.gpu-0.5-high", "no option"),
        ("python3.gpu-0.5-16ram-4cpu", "no option"),
        ("python3.gpu-0.5-0cpu", "0.5 or more"),
        ("python3.gpu-0.5-0ram", "1 GiB or more"),
        ("python3.gpu-0.5-4.2cpu", "no option"),
        ("python3.gpu-0.5.with-", "the name of one folder"),
        ("python3.gpu-0.5.with-a.with-a", "the name of one folder"),
        ("python3.gpu-0.5.with-a.with-none", "the name of one folder"),
        (".gpu-0.5", "one kernelspec's name"),
        ("python3.gpu-0.5.gpu-0.5", "one kernelspec's name"),
    ],
)
def test_an_invalid_size_is_refused_with_grammar_and_range(name: str, want: str) -> None:
    with pytest.raises(SizeNameError) as caught:
        parse_size_name(name, GpuShare(800))
    message = str(caught.value)
    assert want in message
    assert repr(name) in message
    assert (
        "<base>.gpu-<gpus>[-<n>g][-<n>cpu][-<n>ram][-low][.with-<folder>…] with gpus from 0.01 to 8 in steps of 0.01"
        in message
    )


@given(st.none() | st.integers(1, 400).map(GpuShare))
def test_the_examples_of_the_grammar_are_sizes_that_may_be_asked_for(largest: GpuShare | None) -> None:
    examples = re.findall(r"python3[.]gpu-\S+[0-9a-z]", describe_grammar(largest))
    assert len(examples) == 3
    for example in examples:
        assert parse_size_name(example, largest) is not None


def examples_in(error: SizeNameError) -> list[str]:
    *first, last = str(error).rpartition("; such as ")[2].split(", ")
    return [*first, *last.split(" or ")]


@given(st.none() | st.integers(1, 400).map(GpuShare))
def test_a_refused_size_without_a_base_has_examples_without_one(largest: GpuShare | None) -> None:
    for before in ("", "gpu-"):
        with pytest.raises(SizeNameError) as caught:
            parse_size("python3.gpu-1", largest, before)
        examples = examples_in(caught.value)
        assert len(examples) == 3
        for example in examples:
            assert example.startswith(before)
            assert parse_size(example.removeprefix(before), largest).gpus <= (largest or GpuShare(100))
    with pytest.raises(SizeNameError) as caught:
        parse_whole_size("python3.gpu-1", largest)
    assert all(parse_whole_size(example, largest) for example in examples_in(caught.value))


def test_a_refused_size_of_a_kernelspec_has_examples_of_the_same_kernelspec() -> None:
    for name in ("julia.gpu-9", "julia.gpu-0.5.gpu-0.5"):
        with pytest.raises(SizeNameError) as caught:
            parse_size_name(name, GpuShare(100))
        assert examples_in(caught.value) == ["julia.gpu-0.25", "julia.gpu-1-low", "julia.gpu-0.5-1g"]


pieces = st.sampled_from(
    [
        ".gpu-",
        ".GPU-",
        "0",
        "0.25",
        "2.5",
        "00.0",
        "1.255",
        "-8g",
        "-0g",
        "-16G",
        "-4cpu",
        "-0.5CPU",
        "-0cpu",
        "-16ram",
        "-0RAM",
        "-low",
        "-LOW",
        "-",
    ]
)
namelike = st.lists(pieces | st.text("ab3._-", max_size=3), max_size=6).map("".join)


@given(namelike | namelike.map(lambda tail: f"python3.gpu-0.5{tail}"))
def test_the_pattern_for_other_languages_reads_what_the_grammar_reads(name: str) -> None:
    try:
        sized = parse_size_name(name)
    except SizeNameError:
        sized = None
    match = re.fullmatch(PATTERN.replace("(?<", "(?P<"), name)
    if match is None:
        assert sized is None
        return
    assert sized is not None
    limit = sized.request.memory_limit
    assert match["kernelspec"] == sized.base
    assert GpuShare.parse(match["gpus"]) == sized.request.gpus
    assert (None if limit is None else limit // GIB) == (match["memory_gib"] and int(match["memory_gib"]))
    assert bool(match["low"]) == (sized.request.workload_class is LOW)


def test_a_preset_is_a_size_without_its_base() -> None:
    assert parse_size("0.25-low") == Request(GpuShare(25), None, LOW)


def test_a_memory_limit_that_is_no_whole_gib_has_no_name() -> None:
    with pytest.raises(SizeNameError, match="whole GiB"):
        size_name("python3", Request(GpuShare(25), Bytes(GIB + 1)))


def test_the_label_says_share_limit_and_class() -> None:
    want = "2.5 GPUs · 8 GiB · low"
    assert size_label(Request(GpuShare(250), Bytes(8 * GIB), LOW)) == want
