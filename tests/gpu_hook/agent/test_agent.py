"""The agent as its clients see it: reservations, the connections that hold them, restarts, an idle end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks

MIB = 1 << 20
QUOTA = 512 * MIB


class TestReservations:
    def test_a_grant_tells_all_that_a_process_needs(self, a_node: Any, a_holder: Any) -> None:
        grant = a_holder.reserve(label="0.5 GPU", attributes={"colour": "red"})["grant"]
        want_devices = [
            {
                "uuid": "GPU-00000000-0000-0000-0000-0000000000a0",
                "index": 0,
                "hundredths": 50,
                "quota_bytes": QUOTA,
                "guarantee_bytes": QUOTA,
            }
        ]
        assert grant["devices"] == want_devices
        assert grant["env"]["CUDA_VISIBLE_DEVICES"] == want_devices[0]["uuid"]
        assert grant["env"]["ALIQUOT_VISIBLE_DEVICES"] == want_devices[0]["uuid"]
        assert grant["env"]["ALIQUOT_KERNEL_DIR"] == grant["kernel_dir"] == str(a_node.folder / "kernels" / "k")
        assert grant["env"]["LD_LIBRARY_PATH_PREPEND"].endswith("native/shim")
        assert grant["env"]["LD_AUDIT_PREPEND"].endswith("native/shim/libaliquot-audit.so")
        assert (Path(grant["kernel_dir"]) / "hook.sock").is_socket()
        kernel = a_node.kernel()
        assert (kernel["label"], kernel["attributes"]) == ("0.5 GPU", {"colour": "red"})

    def test_the_same_request_is_answered_with_the_same_grant(self, a_holder: Any) -> None:
        assert a_holder.reserve()["grant"] == a_holder.reserve()["grant"]
        refused = a_holder.reserve(hundredths=25)
        assert refused["code"] == "conflict"
        assert "release it first" in refused["message"]

    def test_what_does_not_fit_now_waits_for_changed(self, a_holder: Any) -> None:
        assert a_holder.ask("subscribe")["ok"]
        a_holder.reserve("a", 75)
        assert a_holder.wait_for_event() == {"event": "changed"}
        refused = a_holder.reserve("b", 50)
        assert refused["code"] == "no_room"
        assert "largest free part is 0.25 on gpu0. Queued" in refused["message"]
        assert a_holder.ask("release", kernel_id="a")["released"] is True
        assert a_holder.wait_for_event() == {"event": "changed"}
        assert a_holder.reserve("b", 50)["ok"]
        assert a_holder.reserve("c", 101)["code"] == "never_fits"

    def test_release_is_idempotent(self, a_node: Any, a_holder: Any) -> None:
        a_holder.reserve()
        assert a_holder.ask("release", kernel_id="k")["released"] is True
        assert a_holder.ask("release", kernel_id="k")["released"] is False
        assert a_node.status()["devices"][0]["reserved_bytes"] == 0
        assert not (a_node.folder / "kernels" / "k").exists()

    @pytest.mark.parametrize(
        ("fields", "want"),
        [
            pytest.param({"kernel_id": "../x"}, "kernel_id", id="a path for a name"),
            pytest.param({"kernel_id": "x" * 37}, "kernel_id", id="a long name"),
            pytest.param({"hundredths": 0}, "Requested 0 GPU", id="nothing"),
            pytest.param({"hundredths": -5}, "Requested -0.05 GPU", id="a negative share"),
            pytest.param({"hundredths": 12.5}, "hundredths is 12.5", id="half a hundredth"),
            pytest.param({"hundredths": True}, "hundredths is True", id="a boolean"),
            pytest.param({"hundredths": 10**30}, "hundredths", id="a huge share"),
            pytest.param({"memory_limit": -1}, "memory_limit", id="a negative limit"),
            pytest.param({"memory_limit": "8g"}, "memory_limit", id="a limit in words"),
            pytest.param({"workload_class": "vip"}, "class is 'vip'", id="an unknown class"),
            pytest.param({"owner": None}, "owner", id="no owner"),
            pytest.param({"owner_limit": "1"}, "owner_limit", id="a limit that is no number"),
            pytest.param({"attributes": {"a": 1}}, "attribute 'a'", id="an attribute that is no text"),
            pytest.param({"placement": {"uuid": 1}}, "placement", id="a placement that is no list"),
        ],
    )
    def test_bad_requests_are_told_what_is_wrong(self, a_holder: Any, fields: dict[str, Any], want: str) -> None:
        request = {"kernel_id": "k", "owner": "ada", "hundredths": 50, **fields}
        refused = a_holder.ask("reserve", **request)
        assert refused["code"] == "bad_request"
        assert want in refused["message"]

    def test_an_owner_holds_no_more_than_the_limit_of_the_request(self, a_holder: Any) -> None:
        first = a_holder.reserve("k", 25, owner_limit=50)
        assert first["grant"]["owner_hundredths"] == 25
        refused = a_holder.reserve("l", 26, owner_limit=50)
        assert refused["code"] == "over_limit"
        assert "Requested 0.26 GPU, but ada holds 0.25 GPU and may hold 0.5 in all" in refused["message"]
        assert a_holder.reserve("l", 25, owner_limit=50)["grant"]["owner_hundredths"] == 50
        assert a_holder.reserve("l", 25, owner_limit=50)["ok"], "another holder of the same takes nothing more"
        assert "owner_hundredths" not in a_holder.reserve("m", 25)["grant"]

    def test_a_vanished_device_is_lost_and_comes_back(self, a_node: Any, a_holder: Any) -> None:
        a_holder.reserve()
        a_holder.ask("subscribe")
        a_node.set_devices(count=1, lost=[0])
        assert a_holder.wait_for_event() == {"event": "changed"}
        assert a_node.status()["devices"][0]["lost"] is True
        uuid = "GPU-00000000-0000-0000-0000-0000000000a0"
        placement = [{"uuid": uuid, "hundredths": 25}]
        assert a_holder.reserve("l", 25, placement=placement)["code"] == "device_lost"
        assert "gpu0 lost" in a_holder.reserve("l", 25)["message"]
        a_node.set_devices(count=1)
        assert a_holder.wait_for_event() == {"event": "changed"}
        assert a_holder.reserve("l", 25, placement=placement)["ok"]

    def test_gpu_time_of_processes_is_booked_on_their_kernel(self, a_node: Any, a_holder: Any) -> None:
        a_holder.reserve()
        a_node.a_hook().hello()
        a_node.set_devices(count=1, busy={os.getpid(): 0.25, 1: 5})
        a_node.until(lambda: a_node.device()["busy_seconds"] >= 0.25)
        assert a_node.device()["busy_seconds"] % 0.25 == 0


class TestHolders:
    def test_a_reservation_ends_with_its_last_connection(self, a_node: Any, open_holder: Callable[[], Any]) -> None:
        first, second = open_holder(), open_holder()
        first.reserve()
        second.reserve()
        first.close()
        assert a_node.kernel() is not None
        second.close()
        a_node.until(lambda: a_node.kernel() is None)
        assert a_node.status()["devices"][0]["reserved_hundredths"] == 0

    def test_a_bound_process_holds_its_reservation(self, a_node: Any, open_holder: Callable[[], Any]) -> None:
        sleeper = subprocess.Popen(["sleep", "60"])
        a_node.helpers.append(sleeper)
        holder = open_holder()
        holder.reserve()
        refused = holder.ask("bind", kernel_id="k", pid=sleeper.pid, start_time_ticks=1)
        assert refused["code"] == "bad_request", "a pid with another start is another process"
        assert holder.ask("bind", kernel_id="n", pid=1, start_time_ticks=1)["code"] == "not_found"
        ticks = start_time_ticks(sleeper.pid)
        assert holder.ask("bind", kernel_id="k", pid=sleeper.pid, start_time_ticks=ticks)["ok"]
        holder.close()
        a_node.until(lambda: a_node.status()["connections"] == 1)
        assert a_node.kernel()["pids"] == [sleeper.pid]
        sleeper.kill()
        sleeper.wait()
        a_node.until(lambda: a_node.kernel() is None)

    def test_a_connected_process_holds_its_reservation(self, a_node: Any, open_holder: Callable[[], Any]) -> None:
        holder = open_holder()
        holder.reserve()
        process = a_node.a_hook_process("10")
        assert process.stdout.readline() == "10\n"
        holder.close()
        a_node.until(lambda: a_node.status()["connections"] == 1)
        assert a_node.kernel()["pids"] == [process.pid]
        process.kill()
        a_node.until(lambda: a_node.kernel() is None)

    def test_a_holder_that_comes_back_in_time_keeps_it(self, a_node: Any, open_holder: Callable[[], Any]) -> None:
        first = open_holder()
        want = first.reserve()["grant"]
        first.close()
        assert open_holder().reserve()["grant"] == want

    def test_a_released_kernel_that_still_has_bytes_keeps_its_room_until_it_ends(
        self, a_node: Any, a_holder: Any
    ) -> None:
        a_holder.reserve("k", 100)
        process = a_node.a_hook_process("1000")
        process.stdout.readline()
        assert a_holder.ask("release", kernel_id="k")["released"] is True
        assert a_node.kernel()["ending"] is True
        assert a_node.status()["ending_kernels"] == ["k"], "a gateway counts it for its user"
        assert a_holder.reserve("l", 25)["code"] == "no_room"
        process.stdin.write("borrow 5\n")
        process.stdin.flush()
        assert process.stdout.readline() == "0\n", "it gets no more"
        process.kill()
        a_node.until(lambda: a_node.kernel() is None)
        assert a_node.status()["ending_kernels"] == []
        assert a_holder.reserve("l", 100)["ok"]

    def test_a_killed_process_frees_its_room_with_the_release(self, a_node: Any, a_holder: Any) -> None:
        a_holder.reserve("k", 100)
        process = a_node.a_hook_process("1000")
        process.stdout.readline()
        process.kill()
        process.wait()
        a_holder.ask("release", kernel_id="k")
        assert a_holder.reserve("l", 100)["ok"]


class TestControlSocket:
    def test_what_is_no_request_is_told_so(self, a_holder: Any) -> None:
        for line in (b"hello\n", b"[1]\n", b'{"op":"status"}\n', b'{"id":1,"op":"dance"}\n', b"[" * 9000 + b"\n"):
            a_holder.send(line)
            assert a_holder.line()["code"] == "bad_request"
        assert a_holder.ask("hello", version=9, name="x")["code"] == "version"

    def test_an_activity_without_id_is_kept_and_not_answered(self, a_holder: Any) -> None:
        a_holder.reserve("k")
        for kernel_id in ("k", "unknown"):
            told = {"op": "activity", "kernel_id": kernel_id, "open": 1, "work": 1, "since": None}
            a_holder.send(json.dumps(told).encode() + b"\n")
        (kernel,) = a_holder.ask("status")["kernels"]
        assert (kernel["activity"]["open"], kernel["activity"]["work"]) == (1, 1)

    def test_a_line_without_end_ends_its_connection(self, a_node: Any, a_holder: Any) -> None:
        with pytest.raises(OSError, match=r"."):
            a_holder.send(b"x" * (64 << 20))
        assert a_node.answers()
        assert "reason='a line has more than 1048576 bytes'" in a_node.log()

    def test_a_client_that_does_not_read_is_dropped(self, a_node: Any, a_holder: Any) -> None:
        a_holder.reserve(label="x" * 250, attributes={str(i): "y" * 250 for i in range(60)})
        with pytest.raises(OSError, match=r"."):
            a_holder.send(b'{"id":1,"op":"status"}\n' * 1_000_000)
        a_node.until(lambda: a_node.status()["connections"] == 1)

    @pytest.mark.parametrize(
        ("fields", "want"),
        [
            pytest.param({"kernel_id": "../x"}, "kernel_id", id="a path for a name"),
            pytest.param({"open": -1}, "open is -1", id="a negative number"),
            pytest.param({"open": 1.5}, "open is 1.5", id="half a request"),
            pytest.param({"work": True}, "work is True", id="a boolean"),
            pytest.param({"work": 3}, "work on 3 of 2", id="more work than requests"),
            pytest.param({"since": "now"}, "since is now", id="a time in words"),
            pytest.param({"since": float("nan")}, "since is nan", id="a time that is none"),
            pytest.param({"since": -1}, "since is -1", id="a time before time"),
        ],
    )
    def test_an_activity_that_cannot_be_is_refused(self, a_holder: Any, fields: dict[str, Any], want: str) -> None:
        a_holder.reserve()
        refused = a_holder.ask("activity", **{"kernel_id": "k", "open": 2, "work": 1, "since": 1763.5, **fields})
        assert refused["code"] == "bad_request"
        assert want in refused["message"]

    def test_a_service_is_not_shut_down_by_a_client(self, a_holder: Any) -> None:
        assert "runs as a service" in a_holder.ask("shutdown")["message"]


class TestRestart:
    def test_a_killed_agent_rebuilds_its_ledger_from_its_kernels(
        self, an_idle_node: Any, open_holder: Callable[[], Any]
    ) -> None:
        node = an_idle_node
        node.start()
        holder = open_holder()
        want = holder.reserve()["grant"]
        processes = [node.a_hook_process(str(100 * MIB), "reconnect") for _ in range(3)]
        for process in processes:
            assert process.stdout.readline() == f"{100 * MIB}\n"
        node.end(signal.SIGKILL)
        node.start()
        for process in processes:
            assert process.stdout.readline() == "back\n"
        assert node.device()["lent_bytes"] == 300 * MIB
        assert open_holder().reserve()["grant"] == want
        processes[0].stdin.write(f"borrow {QUOTA - 300 * MIB + 1}\n")
        processes[0].stdin.flush()
        assert processes[0].stdout.readline() == "0\n"
        for process in processes:
            process.kill()
        node.until(lambda: node.device()["lent_bytes"] == 0)

    def test_a_stopped_agent_leaves_living_kernels_to_the_next(
        self, an_idle_node: Any, open_holder: Callable[[], Any]
    ) -> None:
        node = an_idle_node
        node.start()
        holder = open_holder()
        sleeper = subprocess.Popen(["sleep", "60"])
        node.helpers.append(sleeper)
        want = holder.reserve()["grant"]
        holder.ask("bind", kernel_id="k", pid=sleeper.pid, start_time_ticks=start_time_ticks(sleeper.pid))
        want_launching = holder.reserve("launching", 25)["grant"]
        assert node.end(signal.SIGTERM) == 0
        assert not (node.folder / "agent.sock").exists()
        node.start()
        assert node.kernel()["pids"] == [sleeper.pid]
        holder = open_holder()
        assert holder.reserve()["grant"] == want
        assert holder.reserve("launching", 25)["grant"] == want_launching

    def test_a_kernel_on_a_device_that_is_gone_keeps_what_it_has_on_the_others(
        self, an_idle_node: Any, open_holder: Callable[[], Any]
    ) -> None:
        node = an_idle_node
        node.set_devices(count=2)
        node.start()
        holder = open_holder()
        sleeper = subprocess.Popen(["sleep", "60"])
        node.helpers.append(sleeper)
        holder.reserve("k", 200)
        holder.ask("bind", kernel_id="k", pid=sleeper.pid, start_time_ticks=start_time_ticks(sleeper.pid))
        node.end(signal.SIGKILL)
        node.set_devices(count=1)
        node.start()
        assert [device["lost"] for device in node.status()["devices"]] == [False, True]
        assert open_holder().reserve("j", 100)["code"] == "no_room"
        node.set_devices(count=2)
        node.until(lambda: [device["lost"] for device in node.status()["devices"]] == [False, False])
        assert node.status()["devices"][1]["memory_bytes"] == 1 << 30

    def test_kernels_from_before_a_reboot_are_gone_and_told(
        self, an_idle_node: Any, open_holder: Callable[[], Any]
    ) -> None:
        node = an_idle_node
        node.start()
        sleeper = subprocess.Popen(["sleep", "60"])  # has the pid and the start time of the earlier kernel
        node.helpers.append(sleeper)
        holder = open_holder()
        for name in ("k", "other"):
            holder.reserve(name, label="half")
            ticks = start_time_ticks(sleeper.pid)
            holder.ask("bind", kernel_id=name, pid=sleeper.pid, start_time_ticks=ticks)
        node.end(signal.SIGKILL)
        journal = node.folder / "kernels" / "k" / "grant.json"
        journal.write_text(json.dumps({**json.loads(journal.read_text()), "boot_id": "another"}))
        node.start()
        assert node.status()["lost_kernels"] == [{"kernel_id": "k", "owner": "ada", "label": "half"}]
        assert [kernel["kernel_id"] for kernel in node.status()["kernels"]] == ["other"]
        assert node.status()["devices"][0]["reserved_hundredths"] == 50
        assert not journal.parent.exists()
        assert "event=node_lost kernel=k owner='ada'" in node.log()
        assert open_holder().reserve()["ok"]
        assert node.status()["lost_kernels"] == []

    def test_a_damaged_journal_costs_its_kernel_only(self, an_idle_node: Any) -> None:
        for name, text in (("a", "{"), ("b", '{"version": 1}'), ("c", "[]"), ("d", '{"version": 9}')):
            folder = an_idle_node.folder / "kernels" / name
            folder.mkdir(parents=True)
            (folder / "grant.json").write_text(text)
        an_idle_node.start()
        assert an_idle_node.status()["kernels"] == []
        assert list((an_idle_node.folder / "kernels").iterdir()) == []

    @pytest.mark.parametrize("is_replaced", [False, True])
    def test_its_socket_is_made_again_where_it_was_removed_and_who_is_connected_stays(
        self, a_node: Any, a_holder: Any, is_replaced: bool
    ) -> None:
        a_holder.reserve()
        path = a_node.folder / "agent.sock"
        path.unlink()
        if is_replaced:
            path.write_text("no socket")
        a_node.until(a_node.answers)
        assert [kernel["kernel_id"] for kernel in a_node.status()["kernels"]] == ["k"]
        assert a_holder.ask("release", kernel_id="k")["ok"]
        assert a_node.status()["kernels"] == []
        assert (path.stat().st_mode & 0o777) == 0o600
        assert "event=socket_made_again" in a_node.log()

    def test_a_stale_socket_is_replaced(self, an_idle_node: Any) -> None:
        an_idle_node.start()
        an_idle_node.end(signal.SIGKILL)
        assert (an_idle_node.folder / "agent.sock").is_socket()
        an_idle_node.start()
        assert an_idle_node.answers()


class TestIdle:
    def test_an_idle_agent_ends_and_leaves_its_folder_clean(self, an_idle_node: Any) -> None:
        command = an_idle_node.command("--log-file", str(an_idle_node.folder / "agent.log"), "--exit-when-idle", "0.3")
        # it may have ended before anything asks whether it answers
        an_idle_node.process = subprocess.Popen(command)
        assert an_idle_node.process.wait(60) == 0
        an_idle_node.process = None
        left = {path.name for path in an_idle_node.folder.iterdir()}
        assert left == {"agent.lock", "agent.log", "devices", "kernels"}

    def test_an_agent_with_a_client_is_not_idle_and_ends_when_told(
        self, an_idle_node: Any, open_holder: Callable[[], Any]
    ) -> None:
        an_idle_node.start("--exit-when-idle", "2")
        holder = open_holder()
        assert holder.ask("status")["ok"]
        with pytest.raises(subprocess.TimeoutExpired):
            an_idle_node.process.wait(3)
        assert holder.ask("shutdown")["ok"]
        assert an_idle_node.process.wait(60) == 0
        an_idle_node.process = None

    def test_agent_json_tells_what_runs(self, a_node: Any) -> None:
        info = json.loads((a_node.folder / "agent.json").read_text())
        assert (info["pid"], info["version"], info["driver"]) == (a_node.process.pid, 1, "nvidia")
