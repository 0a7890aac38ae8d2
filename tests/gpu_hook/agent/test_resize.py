"""A kernel gets another size or class while it runs.

The change comes through the control socket; hooks watch their pages.
"""

from __future__ import annotations

import signal
from typing import Any

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage

MIB = 1 << 20


def resize(a_holder: Any, hundredths: int, **more: Any) -> Any:
    return a_holder.ask("resize", kernel_id="k", hundredths=hundredths, **more)


def generation(hook: Any) -> int:
    return int.from_bytes(hook.agent_page[AgentPage.GENERATION : AgentPage.GENERATION + 8], "little")


def test_a_larger_size_is_in_force_at_once(a_holder: Any, a_node: Any) -> None:
    a_holder.reserve(hundredths=25)
    hook = a_node.a_hook()
    hook.hello()
    assert hook.borrow(400 * MIB) == 0
    grant = resize(a_holder, 50)["grant"]
    assert (grant["generation"], grant["devices"][0]["quota_bytes"]) == (2, 512 * MIB)
    assert (generation(hook), hook.read(AgentPage.QUOTA)) == (2, 512 * MIB)
    assert hook.borrow(400 * MIB) == 400 * MIB


def test_what_does_not_fit_changes_nothing(a_holder: Any, a_node: Any) -> None:
    a_holder.reserve(hundredths=25)
    a_holder.reserve("other", 60)
    refused = resize(a_holder, 50)
    assert refused["code"] == "no_room"
    assert "0.4" in refused["message"]
    assert a_node.kernel()["generation"] == 1


def test_another_number_of_devices_takes_a_restart(a_holder: Any) -> None:
    a_holder.reserve(hundredths=25)
    refused = resize(a_holder, 150)
    assert refused["code"] == "bad_request"
    assert "Restart it" in refused["message"]


def test_a_smaller_size_takes_nothing_away_and_lends_nothing_more(a_holder: Any, a_node: Any) -> None:
    a_holder.reserve(hundredths=50)
    hook = a_node.a_hook()
    hook.hello()
    assert hook.borrow(400 * MIB) == 400 * MIB
    assert resize(a_holder, 25)["ok"]
    device = a_node.kernel()["devices"][0]
    assert (device["quota_bytes"], device["lent_bytes"]) == (256 * MIB, 400 * MIB)
    assert hook.borrow(2 * MIB) == 0
    hook.give_back(200 * MIB)
    assert hook.borrow(2 * MIB) == 2 * MIB


def test_a_class_is_changed_in_place(a_holder: Any, a_node: Any) -> None:
    a_holder.reserve(hundredths=25)
    assert resize(a_holder, 25, workload_class="opportunistic")["grant"]["workload_class"] == "opportunistic"
    assert a_node.status()["devices"][0]["reserved_by_production"] == {"bytes": 0, "hundredths": 0}


def test_the_same_size_again_is_no_change(a_holder: Any) -> None:
    a_holder.reserve(hundredths=25)
    assert resize(a_holder, 25)["grant"]["generation"] == 1


def test_memory_beyond_the_share_is_burstable_where_it_can_be_given_back(a_holder: Any) -> None:
    burstable = a_holder.reserve("burstable", 25, memory_limit=512 * MIB)["grant"]["devices"][0]
    assert (burstable["quota_bytes"], burstable["guarantee_bytes"]) == (512 * MIB, 256 * MIB)
    firm = a_holder.reserve("firm", 25, memory_limit=512 * MIB, residency="off")["grant"]["devices"][0]
    assert (firm["quota_bytes"], firm["guarantee_bytes"]) == (512 * MIB, 512 * MIB)


def test_a_resized_kernel_is_the_same_after_the_agents_restart(a_holder: Any, a_node: Any) -> None:
    a_holder.reserve(hundredths=25)
    hook = a_node.a_hook()
    hook.hello()
    assert resize(a_holder, 50)["ok"]
    a_node.end(signal.SIGKILL)
    a_node.start()
    assert (a_node.kernel()["generation"], a_node.kernel()["hundredths"]) == (2, 50)
    hook.close()
