"""The demo's judgment: each claim fails without its observation, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.demo.claims import Claim, Reclaim, Seen, check_claims
from jupyter_aliquot.demo.command import busy_words
from jupyter_aliquot.demo.oversubscription import Owner, Turns
from jupyter_aliquot.demo.two_classes import Pauses
from jupyter_aliquot.gpu_hook.client.reports import KernelDeviceStatus, KernelStatus
from jupyter_aliquot.provisioner.resources import Bytes

GIB, MIB = 1 << 30, 1 << 20
HELD = Bytes(256 * MIB)
GONE = Reclaim(HELD, 0.03)


def a_status(quota: int, **changes: object) -> KernelStatus:
    device = KernelDeviceStatus(
        uuid="GPU-1", index=0, hundredths=25, quota_bytes=quota, charged_bytes=0, lent_bytes=0,
        peak_bytes=quota // 2, busy_seconds=1.5, refusals=1,
    )  # fmt: skip
    device = replace(device, **{k: v for k, v in changes.items() if hasattr(device, k)})
    return KernelStatus(
        kernel_id="k", owner="alice", label="", hundredths=25, memory_limit=None, workload_class="production",
        generation=1, attributes=(), created=0.0, interception=str(changes.get("interception", "holds")), pids=(7,),
        ending=False, devices=(device,),
    )  # fmt: skip


def a_kernel(name: str, gpus: str, gib: float, **facts: object) -> Seen:
    quota = int(gib * GIB)
    outputs = {"size": f"this GPU has {quota / MIB:,.0f} MiB, all of it free", "verify": "unchanged: 00ff\n"}
    kernel = Seen(
        name=name, gpus=gpus, is_greedy=False, is_victim=False, is_finished=True, is_dead=False, error="",
        outputs=outputs, status=a_status(quota),
    )  # fmt: skip
    return replace(kernel, **facts)


def the_kernels() -> list[Seen]:
    plain = a_kernel("kernel 1", "0.5", 2)
    greedy = a_kernel("kernel 2", "0.25", 1, is_greedy=True)
    greedy.outputs["greedy"] = "requested 2,048 MiB: CUDA_ERROR_OUT_OF_MEMORY\nand the work goes on\n"
    victim = a_kernel("kernel 3", "0.25", 1, is_victim=True, is_finished=False, is_dead=True)
    victim.outputs.pop("verify")
    return [plain, greedy, victim]


def falling(kernels: list[Seen], reclaim: Reclaim | None = GONE, left: str = "", granted: int = 3) -> list[Claim]:
    return [claim for claim in check_claims(kernels, granted, reclaim, left) if not claim.holds]


def test_all_claims_hold_when_all_was_seen() -> None:
    assert falling(the_kernels()) == []
    assert len(check_claims(the_kernels(), 3, GONE, "")) == 9


CASES = [
    (0, {"status": a_status(2 * GIB, uuid="GPU-2")}, "shared one GPU"),
    (0, {"status": a_status(3 * GIB)}, "GPU of its size"),
    (1, {"status": a_status(GIB, interception="failed: libcuda.so")}, "self-check"),
    (0, {"status": a_status(2 * GIB, peak_bytes=3 * GIB)}, "exceeded its memory limit"),
    (1, {"status": a_status(GIB, refusals=0)}, "got CUDA_ERROR_OUT_OF_MEMORY"),
    (2, {"is_dead": False}, "killed mid-cell"),
    (0, {"is_finished": False, "error": "cell verify: AssertionError: the work changed"}, "unchanged"),
]


@pytest.mark.parametrize(("which", "facts", "want"), CASES, ids=[case[2] for case in CASES])
def test_a_claim_falls_when_its_fact_is_missing(which: int, facts: dict[str, object], want: str) -> None:
    kernels = the_kernels()
    kernels[which] = replace(kernels[which], **facts)
    (claim,) = falling(kernels)
    assert want in claim.text
    assert claim.found


def test_an_error_that_is_not_in_the_cells_output_does_not_count() -> None:
    kernels = the_kernels()
    kernels[1].outputs["greedy"] = "requested 2,048 MiB: CUDA_ERROR_INVALID_VALUE"
    (claim,) = falling(kernels)
    assert "CUDA_ERROR_INVALID_VALUE" in claim.found


@pytest.mark.parametrize(
    ("reclaim", "want"),
    [
        (None, "could not be killed"),
        (Reclaim(HELD, None), "were still there"),
        (Reclaim(HELD, 1.2), "it took 1.20 s"),
        (Reclaim(Bytes(0), 0.01), "it took 0.01 s"),
    ],
)
def test_bytes_that_come_back_late_or_never_are_said(reclaim: Reclaim | None, want: str) -> None:
    (claim,) = falling(the_kernels(), reclaim)
    assert want in claim.found


def test_a_grant_that_went_past_the_gateway_is_said() -> None:
    (claim,) = falling(the_kernels(), granted=2)
    assert claim.found == "it granted 2 requests"


def test_memory_that_is_left_allocated_is_said() -> None:
    (claim,) = falling(the_kernels(), left="1 kernels, 256.0 MiB charged, 1.0 GiB reserved")
    assert "256.0 MiB" in claim.found


def test_outcomes_are_told_in_words() -> None:
    outcomes = [kernel.outcome for kernel in the_kernels()]
    assert outcomes == ["finished", "out of memory once, went on, finished", "killed in its long cell"]


def owner(number: int, **changes: Any) -> Owner:
    whole = {"outcome": "finished", "filled": "600 MiB at 0x10", "verified": "unchanged at 0x10: 00ff\n"}
    return Owner(
        **{"name": f"owner {number}", **whole, "used": Bytes(600 * MIB), "swaps_out": 1, "swaps_in": 1, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({}, True),
        ({"swaps_out": 0}, False),
        ({"swaps_in": 0}, False),
        ({"verified": ""}, False),
        ({"used": Bytes(200 * MIB)}, False),
    ],
)
def test_turns_are_claimed_of_what_was_out_and_came_back(changes: dict[str, Any], want: bool) -> None:
    turns = Turns((owner(1), owner(2, **changes)), GIB, begun_together=2)
    [claim] = [
        claim for claim in check_claims(the_kernels(), 3, GONE, "", turns=turns) if "two notebooks held" in claim.text
    ]
    assert claim.holds == want


@pytest.mark.parametrize(("begun", "want"), [(2, True), (1, False), (0, False)])
def test_a_notebook_that_waited_to_begin_fails_its_claim(begun: int, want: bool) -> None:
    turns = Turns((owner(1), owner(2)), GIB, begun_together=begun)
    [claim] = [
        claim for claim in check_claims(the_kernels(), 3, GONE, "", turns=turns) if "began at once" in claim.text
    ]
    assert (claim.holds, f"{begun} had a GPU" in claim.found) == (want, True)


def test_an_act_that_was_left_out_is_not_claimed() -> None:
    assert len(check_claims(the_kernels(), 3, GONE, "", turns=Turns(reason="the host is small"))) == 9


PAUSES = Pauses(slowed=1.02, paused=2.4, filled=2.0, throttled=1.6)


@pytest.mark.parametrize(
    ("changes", "want_fallen"),
    [
        ({}, []),
        ({"slowed": 1.96}, ["did not slow the steps"]),
        ({"slowed": 0.0}, ["did not slow the steps"]),
        ({"throttled": 0.0}, ["did not slow the steps"]),
        ({"filled": 0.5}, ["ran in the pauses"]),
        ({"paused": 0.0}, ["ran in the pauses"]),
        ({"error": "cell beside: KeyError: 'x'"}, ["did not slow the steps", "ran in the pauses"]),
    ],
)
def test_the_pauses_hold_when_normal_priority_kept_its_pace_and_low_priority_ran_in_them(
    changes: dict[str, Any], want_fallen: list[str]
) -> None:
    claims = check_claims(the_kernels(), 3, GONE, "", replace(PAUSES, **changes))
    fallen = [claim for claim in claims if not claim.holds]
    assert [want for want, claim in zip(want_fallen, fallen, strict=True) if want in claim.text] == want_fallen
    assert all(claim.found for claim in fallen)


def test_without_pacing_nothing_is_claimed_of_classes() -> None:
    claims = check_claims(the_kernels(), 3, GONE, "", Pauses(reason="nothing paces launches here"))
    assert len(claims) == 9


def test_a_failure_on_a_busy_machine_says_so() -> None:
    assert busy_words(14.7, 2).startswith(". This machine is busy (load 15 on 2 processors)")
    assert busy_words(4.0, 2) == ""
