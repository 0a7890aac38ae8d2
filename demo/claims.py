"""The claims of the demo, and the check of each.

A check is a pure function from the observations to sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.client.reports import KernelStatus
from jupyter_aliquot.provisioner.resources import Bytes

from .oversubscription import Turns
from .two_classes import Pauses

RECLAIM_SECONDS = 1.0
# Wide, for any machine: without a controller steps take twice as long, and the target is two percent.
MOST_SLOWED = 1.25
LEAST_FILLED = 0.4
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
_MIB = 1 << 20


@dataclass(frozen=True)
class Seen:
    """The observations of one kernel, by its notebook and by the node agent."""

    name: str
    gpus: str
    is_greedy: bool
    is_victim: bool
    is_finished: bool
    is_dead: bool
    error: str
    outputs: dict[str, str]
    status: KernelStatus | None

    @property
    def quota(self) -> Bytes:
        return Bytes(sum(device.quota_bytes for device in self.status.devices) if self.status else 0)

    @property
    def peak(self) -> Bytes:
        return Bytes(sum(device.peak_bytes for device in self.status.devices) if self.status else 0)

    @property
    def busy_seconds(self) -> float:
        return sum(device.busy_seconds for device in self.status.devices) if self.status else 0.0

    @property
    def outcome(self) -> str:
        """The outcome in a few words."""
        if self.error:
            return self.error
        if self.is_dead:
            return "killed in its long cell" if self.is_victim else "its kernel died"
        if not self.is_finished:
            return "did not finish"
        return "out of memory once, went on, finished" if self.is_greedy else "finished"


@dataclass(frozen=True)
class Reclaim:
    """The release of memory after the SIGKILL.

    ``seconds`` None: it did not happen within the observed time.
    """

    held: Bytes
    seconds: float | None


@dataclass(frozen=True)
class Claim:
    """One sentence of the demo, and the observation if it does not hold."""

    text: str
    holds: bool
    found: str = ""


def check_claims(
    kernels: list[Seen],
    granted: int,
    reclaim: Reclaim | None,
    left: str,
    pauses: Pauses | None = None,
    turns: Turns | None = None,
) -> list[Claim]:
    """Check every claim of the demo.

    ``granted``: the number of requests that the gateway granted, by its count.

    ``pauses`` and ``turns``: the acts after the first, where they were held. ``left``: what the
    ledger still held when all kernels had ended; empty for nothing.
    """
    return [
        Claim("the gateway granted each kernel its size", granted == len(kernels), f"it granted {granted} requests"),
        _shared_one_gpu(kernels),
        _saw_their_size(kernels),
        _interception_held(kernels),
        _stayed_in_quota(kernels),
        _greedy_was_refused(kernels),
        _victim_gave_back(kernels, reclaim),
        _others_unchanged(kernels),
        *([] if pauses is None or pauses.reason else [_yielded(pauses), _filled_pauses(pauses)]),
        *([] if turns is None or turns.reason else [_both_began(turns), _took_turns(turns)]),
        Claim("no memory is left allocated", not left, left),
    ]


def _shared_one_gpu(kernels: list[Seen]) -> Claim:
    devices = {device.uuid for kernel in kernels if kernel.status for device in kernel.status.devices}
    is_known = all(kernel.status for kernel in kernels)
    return Claim("three kernels shared one GPU", is_known and len(devices) == 1, f"devices: {sorted(devices)}")


def _saw_their_size(kernels: list[Seen]) -> Claim:
    wrong = [k.name for k in kernels if f"{k.quota / _MIB:,.0f} MiB" not in k.outputs.get("size", "")]
    return Claim("each kernel saw a GPU of its size, in CUDA and in NVML", not wrong, f"not so in {', '.join(wrong)}")


def _interception_held(kernels: list[Seen]) -> Claim:
    found = {k.name: k.status.interception if k.status else "unknown" for k in kernels}
    return Claim("the hook's self-check holds in each kernel", set(found.values()) == {"holds"}, str(found))


def _stayed_in_quota(kernels: list[Seen]) -> Claim:
    over = [k.name for k in kernels if not 0 < k.peak <= k.quota]
    return Claim("no kernel exceeded its memory limit", not over, f"the peak is wrong in {', '.join(over)}")


def _greedy_was_refused(kernels: list[Seen]) -> Claim:
    text = f"{_names(kernels, 'is_greedy')} requested twice its memory, got {OUT_OF_MEMORY}, and went on"
    greedy = [k for k in kernels if k.is_greedy]
    refused = [
        k
        for k in greedy
        if OUT_OF_MEMORY in k.outputs.get("greedy", "")
        and k.status
        and sum(device.refusals for device in k.status.devices) > 0
        and k.is_finished
    ]
    found = "; ".join(f"{k.name}: {k.outcome}, printed {k.outputs.get('greedy', '')!r}" for k in greedy)
    return Claim(text, bool(greedy) and refused == greedy, found)


def _victim_gave_back(kernels: list[Seen], reclaim: Reclaim | None) -> Claim:
    who = _names(kernels, "is_victim")
    text = f"{who} was killed mid-cell, and its memory was free within {RECLAIM_SECONDS:.0f} s"
    if reclaim is None or not any(k.is_victim and k.is_dead for k in kernels):
        return Claim(text, False, "it could not be killed in its long cell")
    if reclaim.seconds is None:
        return Claim(text, False, f"{reclaim.held} were still there")
    text += f" (after {reclaim.seconds * 1000:.0f} ms: {reclaim.held})"
    return Claim(text, reclaim.held > 0 and reclaim.seconds < RECLAIM_SECONDS, f"it took {reclaim.seconds:.2f} s")


def _others_unchanged(kernels: list[Seen]) -> Claim:
    changed = [
        f"{k.name}: {k.outcome}"
        for k in kernels
        if not k.is_victim and not (k.is_finished and "unchanged" in k.outputs.get("verify", ""))
    ]
    return Claim("the other kernels' memory is unchanged, by its checksums", not changed, "; ".join(changed))


def _yielded(pauses: Pauses) -> Claim:
    found = f"they took {pauses.slowed:g} times as long; the other one waited {pauses.throttled:.2f} s"
    return Claim(
        "a low-priority notebook did not slow the steps of a normal-priority one",
        not pauses.error and 0 < pauses.slowed <= MOST_SLOWED and pauses.throttled > 0,
        pauses.error or found,
    )


def _filled_pauses(pauses: Pauses) -> Claim:
    found = f"it had {pauses.filled:.2f} s of {pauses.paused:.2f} s"
    is_filled = pauses.paused > 0 and pauses.filled >= LEAST_FILLED * pauses.paused
    return Claim(
        "the low-priority notebook ran in the pauses between them",
        not pauses.error and is_filled,
        pauses.error or found,
    )


def _both_began(turns: Turns) -> Claim:
    begun = turns.begun_together
    return Claim(
        "two notebooks with the whole GPU each began at once: neither waited for the other",
        begun == len(turns.owners) > 1,
        f"{begun} had a GPU before the first cell ran",
    )


def _took_turns(turns: Turns) -> Claim:
    used = Bytes(sum(owner.used for owner in turns.owners))
    text = f"two notebooks held {used} on {Bytes(turns.memory_bytes)}: each was swapped out and restored at its address"
    wrong = [
        f"{owner.name}: {owner.outcome}, {owner.swaps_out} times out, {owner.swaps_in} in, {owner.verified!r}"
        for owner in turns.owners
        if not (owner.verified.startswith("unchanged at ") and owner.swaps_out and owner.swaps_in)
    ]
    return Claim(text, bool(turns.owners) and not wrong and used > turns.memory_bytes, "; ".join(wrong))


def _names(kernels: list[Seen], role: str) -> str:
    return ", ".join(k.name for k in kernels if getattr(k, role))
