"""Hubs of accounts that lack a part: a relay host of root, without which no kernel starts, or control groups."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator

import pytest
from hub_accounts import AccountUsers, HubOfAccounts, accounts_problem
from made_accounts import GATEWAY, UIDS

from jupyter_aliquot.gpu_hook.paths import RuntimeDir, prepare_shared_runtime_dir
from jupyter_aliquot.provisioner.control_groups import WITHOUT_GROUPS

_HIDES_GROUPS = ("sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh")


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


class HubWithoutGroups(HubOfAccounts):
    """A Hub in whose mount namespace no control groups are."""

    def _command(self) -> list[str]:
        namespace = self.accounts.command(())
        return [*namespace, *_HIDES_GROUPS, *super()._command()[len(namespace) :]]


@pytest.fixture(scope="module")
def without_groups() -> Iterator[AccountUsers]:
    if problem := accounts_problem():
        pytest.skip(problem)
    with HubWithoutGroups() as hub:
        yield AccountUsers(hub, "ada")


def test_kernels_without_control_groups_run_and_the_status_says_that_they_have_no_limits(
    without_groups: AccountUsers,
) -> None:
    users = without_groups
    users.kernels["ada"] = users.start("ada", name="python3")
    assert "aliquot.slice" not in users.cell("ada", "print(open('/proc/self/cgroup').read())")
    status = users.hub.gateway("aliquot/api/v1/status", token=users.tokens["ada"])
    assert WITHOUT_GROUPS in status["node"]["message"]
