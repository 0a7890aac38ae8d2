"""What a hook's page tells of its process's calls, for who judges whether it is idle. Untrusted numbers."""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.agent.pages.hook_page import HookSide

from .idleness import Telemetry


def telemetry_of(page: HookSide) -> Telemetry:
    words = page.read_residency()
    return Telemetry(words.last_call or None, words.calls_inside, words.waiting_calls)


def launches(page: HookSide, device_count: int) -> int:
    return sum(page.launches(device) for device in range(device_count))
