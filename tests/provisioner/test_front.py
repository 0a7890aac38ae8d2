from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from jupyter_aliquot.provisioner.relay.client.connection_info import (
    curve_keys,
    keep_links,
    lead_clients,
    reason_against,
)
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord, RelayRequest, connection_info


@pytest.fixture
def a_relay(tmp_path: Path) -> RelayRecord:
    front: Mapping[str, Any] = connection_info(tmp_path / "f", RelayRequest("k", "secret"))
    for number in range(1, 6):
        (tmp_path / f"f-{number}").touch()
    return RelayRecord("k", tmp_path, front, 1, 1, "boot", 1, {})


@pytest.mark.parametrize(
    ("traits", "want"),
    [
        ({}, ""),
        ({"ip": "localhost"}, ""),
        ({"transport": "ipc"}, ""),
        ({"shell_port": 5555}, "ports of its own (5555, 0, 0, 0, 0)"),
        ({"transport": "ipc", "ip": "/somewhere/else", "hb_port": 3}, "ports of its own"),
        ({"ip": "192.0.2.7"}, "is to listen at 192.0.2.7"),
        ({"ip": "*"}, "is to listen at 0.0.0.0"),
    ],
)
def test_only_clients_that_are_free_can_be_led(traits: dict[str, Any], want: str, tmp_path: Path) -> None:
    found = reason_against(KernelManager(**traits), tmp_path)
    assert want in found
    assert bool(want) == bool(found)


def test_a_led_manager_writes_where_its_relay_is(a_relay: RelayRecord, tmp_path: Path) -> None:
    manager = KernelManager(connection_file=str(tmp_path / "connection.json"))
    lead_clients(manager, a_relay)
    manager.write_connection_file()
    info = json.loads((tmp_path / "connection.json").read_text())
    assert info["transport"] == "ipc"
    for channel in ("shell", "iopub", "stdin", "hb", "control"):
        link = Path(f"{info['ip']}-{info[channel + '_port']}")
        assert link.resolve() == tmp_path / f"f-{a_relay.front[channel + '_port']}"
    manager._reconcile_connection_info(manager.get_connection_info())
    assert reason_against(manager, a_relay.folder) == "", "a restart leads it again"


def test_the_relays_sockets_survive_the_managers_clean_up(a_relay: RelayRecord) -> None:
    manager = KernelManager()
    lead_clients(manager, a_relay)
    manager.cleanup_ipc_files()
    assert not list(a_relay.folder.glob("c-*"))
    assert len(list(a_relay.folder.glob("f-*"))) == 5
    keep_links(a_relay.folder)
    keep_links(a_relay.folder)
    assert len(list(a_relay.folder.glob("c-*"))) == 5


@pytest.mark.parametrize(
    ("policy", "declares", "want_keys"),
    [("disabled", True, False), ("auto", False, False), ("auto", True, True), ("required", True, True)],
)
def test_encryption_follows_the_managers_policy(policy: str, declares: bool, want_keys: bool) -> None:
    manager = KernelManager(transport_encryption=policy)
    manager._kernel_supports_curve_encryption = lambda: declares  # type: ignore[method-assign]
    keys = curve_keys(manager)
    assert all(keys) == want_keys
    assert curve_keys(manager) == keys, "a restart keeps them"
