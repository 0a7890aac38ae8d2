"""A kernel's record on its pod: what was written is read again, whatever its texts are."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.provisioner.errors import StateError
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod
from jupyter_aliquot.provisioner.kubernetes.record import (
    RECORD_ANNOTATION,
    KernelRecord,
    kernel_labels,
    kernel_selector,
    label_value,
    read_kernel,
)
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request, WorkloadClass

from .manifests import CLUSTER, PLAN, RECORD

LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
amounts = st.integers(0, 1 << 50).map(Bytes)
shares = st.integers(1, 800).map(GpuShare)
kernel_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,35}", fullmatch=True)
requests = st.builds(
    Request, shares, st.none() | amounts, st.sampled_from(WorkloadClass), st.sampled_from(["", "vmm", "managed", "off"])
)
quotas = st.builds(Quota, texts, st.integers(0, 15), shares, amounts, st.none() | amounts)
environments = st.dictionaries(texts, texts, max_size=4).map(lambda env: tuple(sorted(env.items())))
grants = st.builds(
    Grant,
    kernel_ids,
    texts,
    requests,
    texts,
    st.lists(quotas, max_size=4).map(tuple),
    texts,
    environments,
    st.integers(1, 99),
)
records = st.builds(
    KernelRecord,
    kernel_ids,
    texts,
    texts,
    requests,
    texts,
    texts,
    st.frozensets(texts, max_size=4),
    texts,
    st.floats(0, 4e9),
    st.none() | grants,
)


def metadata_of(record: KernelRecord) -> dict[str, Any]:
    """Return the metadata as an API server gives it back."""
    told: dict[str, Any] = json.loads(json.dumps(kernel_pod(CLUSTER, record, PLAN)["metadata"]))
    return told


@given(records)
def test_a_record_is_read_as_it_was_written(record: KernelRecord) -> None:
    read = read_kernel(metadata_of(record))
    assert read == record
    assert read.request.residency == record.request.residency, "requests compare equal without it"


@given(records)
def test_labels_are_those_that_an_api_server_takes(record: KernelRecord) -> None:
    for value in kernel_labels(record).values():
        assert LABEL.fullmatch(value), value


@given(texts, texts)
def test_two_texts_have_two_values(one: str, other: str) -> None:
    assert (label_value(one) == label_value(other)) == (one == other)


def test_no_text_looks_like_the_digest_of_another() -> None:
    digest = label_value("a text with spaces")
    assert label_value(digest) != digest


def test_the_selector_selects_the_kernels_of_one_gateway() -> None:
    pairs = dict(one.split("=") for one in kernel_selector(RECORD.gateway).split(","))
    assert pairs.items() <= kernel_labels(RECORD).items()
    assert not pairs.items() <= kernel_labels(replace(RECORD, gateway="another")).items()


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", "null", '{"version": 1}', '{"version": 2}', "no JSON"],
)
def test_a_record_that_cannot_be_read_is_an_error_that_leaves_the_pod(content: str) -> None:
    metadata = metadata_of(RECORD)
    metadata["annotations"][RECORD_ANNOTATION] = content
    with pytest.raises(StateError, match="leaves the pod as it is"):
        read_kernel(metadata)


def test_a_pod_without_a_record_is_an_error() -> None:
    for metadata in ({"name": "p"}, {"name": "p", "annotations": None}):
        with pytest.raises(StateError, match="pod p"):
            read_kernel(metadata)


def test_a_record_under_another_kernels_labels_is_an_error() -> None:
    metadata = metadata_of(RECORD)
    metadata["labels"]["aliquot.dev/owner"] = "mallory"
    with pytest.raises(StateError, match="changed by another program"):
        read_kernel(metadata)


def test_no_field_of_a_record_is_forgotten() -> None:
    told = json.loads(metadata_of(RECORD)["annotations"][RECORD_ANNOTATION])
    assert set(told) == {"version", *RECORD.__dataclass_fields__}
