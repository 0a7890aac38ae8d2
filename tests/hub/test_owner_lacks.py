"""A Hub of accounts whose relay host of root is missing: said at its start, and no kernel is the gateway's instead."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator

import pytest
from hub_accounts import HubOfAccounts, accounts_problem
from made_accounts import GATEWAY, UIDS

from jupyter_aliquot.gpu_hook.paths import RuntimeDir, prepare_shared_runtime_dir


@pytest.fixture(scope="module")
def hub() -> Iterator[HubOfAccounts]:
    if problem := accounts_problem():
        pytest.skip(problem)
    made = HubOfAccounts(start_relay_host=False)
    prepare_shared_runtime_dir(RuntimeDir(made.home / "run"), UIDS[GATEWAY])
    with made:
        yield made


def test_a_relay_host_that_does_not_run_is_said_with_the_command_that_starts_it(hub: HubOfAccounts) -> None:
    (said,) = [line for line in hub.log.splitlines() if "no relay host listens at" in line]
    assert f"{hub.home}/run/relay.sock. Start its unit (sudo systemctl restart aliquot-relay; " in said


def test_no_kernel_is_the_gateways_in_its_place(hub: HubOfAccounts) -> None:
    token = hub.token_of("ada")
    with pytest.raises(urllib.error.HTTPError) as caught:
        hub.gateway("api/kernels", "POST", {"name": "python3"}, token=token)
    assert "but it did not start: the relay host" in caught.value.read().decode()
