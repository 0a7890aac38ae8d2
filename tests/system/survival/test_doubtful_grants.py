"""A kernel whose GPU went to another user while no gateway and no agent knew of it.

Its user is informed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import warm_start

from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.provisioner.relay.wire.proc import start_time_ticks


def report(gateway: Any, kernel_id: str) -> dict[str, Any]:
    found: dict[str, Any] = gateway.call("GET", f"/aliquot/api/v1/kernels/{kernel_id}")
    return found


def test_a_kernel_whose_gpu_went_to_a_third_party_is_said_to_be_doubtful_until_it_is_confirmed(
    a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve().wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.5")
    assert open_tab(gateway, kernel_id).run("print(1)") == "1"
    eventually(lambda: report(gateway, kernel_id)["reason"] is None)
    relay = a_node.relays()[kernel_id]
    gateway.stop(signal.SIGKILL)
    third = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        # The kernel's relay would request the same again within a second: it sleeps until the other
        # kernel has it.
        os.kill(relay.pid, signal.SIGSTOP)
        a_node.kill_agent()
        shutil.rmtree(a_node.folder / "run" / "kernels" / kernel_id)
        a_node.start_agent()
        query("reserve", runtime_dir=a_node.runtime.path, kernel_id="third", owner="eve", hundredths=75)
        ticks = start_time_ticks(third.pid)
        query("bind", runtime_dir=a_node.runtime.path, kernel_id="third", pid=third.pid, start_time_ticks=ticks)
        os.kill(relay.pid, signal.SIGCONT)
        after = a_node.succeed(gateway)
        eventually(lambda: "does not confirm this kernel's GPU" in (report(after, kernel_id)["reason"] or ""))
        assert "Requested 0.5 of gpu0" in report(after, kernel_id)["reason"]
        assert a_node.held() == {"third": 75}
        words = [*warm_start.ALIQUOT, "status"]
        shown = warm_start.run(warm_start.SERVER, words, env=a_node.environment, timeout=90)
        assert "does not confirm this kernel's GPU" in " ".join(shown.stdout.split()), shown
    finally:
        os.kill(relay.pid, signal.SIGCONT)
        third.kill()
        third.communicate()
    eventually(lambda: a_node.held() == {kernel_id: 50})
    eventually(lambda: report(after, kernel_id)["reason"] is None)
