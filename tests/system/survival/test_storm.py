"""Storms below kernels at work: processes are killed and stopped, files unlinked, disks filled.

Each part stays usable. Cells run all the while: none twice, none out of order, and none lost,
except those under way during a kill.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from storm_cells import Blow, Browser, Prober, count

from jupyter_aliquot.gpu_hook.client.client import query

SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
KERNELS = 2 if SOAK == 1 else 12
SECONDS = 0.0 if SOAK == 1 else 15.0 * SOAK
LONGEST_STOP_SECONDS = 0.5 if SOAK == 1 else 8.0
WANT_GATEWAY_SECONDS, WANT_AGENT_SECONDS = 3.0, 1.0  # from the start of its process to its first answer
# In a relay's folder, and in the runtime folder.
NAMES = ("relay.json", "f-1", "c-1", "b-1", "k/s-1")
NODE_NAMES = ("gateway.sock", "relay.sock", "agent.sock")
# A host accepts three kills of a kernel's relays in a minute, and takes a fourth for a fault of the
# kernel's.
RELAY_KILLS, RELAY_KILLS_SECONDS = 2, 70.0
FATAL = frozenset({"kill_gateway", "kill_relay", "kill_kernel"})


@dataclass(frozen=True)
class Recovery:
    """The time from a process's start to its first answer, and its system counters until then."""

    seconds: float
    processor_seconds: float
    queued_seconds: float  # ready to run, while other processes had the processors

    @classmethod
    def of(cls, pid: int, began: float) -> Recovery:
        took = time.monotonic() - began
        texts = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        ran, queued = (sum(int(text[at]) for text in texts) / 1e9 for at in (0, 1))
        return cls(took, ran, queued)

    def __str__(self) -> str:
        return (
            f"in {self.seconds:.2f} s: it computed for {self.processor_seconds:.2f} s, "
            f"and was ready for {self.queued_seconds:.2f} s while others did"
        )


class Storm:
    """Strikes one thing at a time, by a seed.

    ``names``: the files in relays' folders that it removes.
    """

    def __init__(self, node: Any, seed: int, names: tuple[str, ...], disk: Path | None) -> None:
        self.node = node
        self.dice = random.Random(seed)
        self.names = names
        self.disk = disk
        self.gateway = node.serve().wait_until_up()
        sizes = ("python3.gpu-0.05", "python3")
        self.kernels = {self.gateway.start_kernel(sizes[n % 2]): n % 2 == 0 for n in range(KERNELS)}
        self.blows: list[Blow] = []
        self.gateway_back: list[Recovery] = []
        self.agent_back: list[Recovery] = []

    def ask(self, path: str) -> Any:
        return self.gateway.call("GET", path)

    def _struck(self, kind: str, kernel_id: str | None = None) -> None:
        self.blows.append(Blow(kind, time.monotonic(), kernel_id))

    def _is_over(self) -> None:
        """Record the end of a blow, 2 s from now.

        Hooks look for a new agent once in a second at most.
        """
        self.blows[-1] = replace(self.blows[-1], until=time.monotonic() + 2.0)

    def kill_gateway(self) -> None:
        self._struck("kill_gateway")
        self.gateway.stop(signal.SIGKILL)
        began = time.monotonic()
        self.gateway = self.node.succeed(self.gateway)
        self.gateway_back.append(Recovery.of(self.gateway.process.pid, began))

    def kill_agent(self) -> None:
        how = self.dice.choice((signal.SIGTERM, signal.SIGKILL))
        self._struck(f"{how.name}_to_agent")
        self.node.kill_agent(how)
        began = time.monotonic()
        self.node.start_agent()
        self.agent_back.append(Recovery.of(self.node.agent_pid, began))
        self._is_over()

    def _relay(self) -> Any:
        relays = self.node.relays()
        recent = Counter(
            blow.kernel_id
            for blow in self.blows
            if blow.kind == "kill_relay" and time.monotonic() - blow.at < RELAY_KILLS_SECONDS
        )
        return relays[self.dice.choice([name for name in sorted(relays) if recent[name] < RELAY_KILLS])]

    def kill_relay(self) -> None:
        relay = self._relay()
        self._struck("kill_relay", relay.kernel_id)
        os.kill(relay.pid, signal.SIGKILL)

    def kill_kernel(self) -> None:
        relay = self._relay()
        assert relay.kernel is not None
        self._struck("kill_kernel", relay.kernel_id)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(relay.kernel.pid, signal.SIGKILL)

    def stop_something(self) -> None:
        """Stop a process for a while."""
        relay = self._relay()
        pids = {"gateway": self.gateway.process.pid, "agent": self.node.agent_pid, "relay": relay.pid}
        name = self.dice.choice(sorted(pids))
        self._struck(f"stop_{name}")
        os.kill(pids[name], signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.1, LONGEST_STOP_SECONDS))  # seconds
        os.kill(pids[name], signal.SIGCONT)
        self._is_over()

    def unlink(self) -> None:
        name = self.dice.choice(self.names)
        self._struck(f"unlink_{name}")
        (self._relay().folder / name).unlink(missing_ok=True)

    def unlink_of_node(self) -> None:
        name = self.dice.choice(NODE_NAMES)
        self._struck(f"unlink_{name}")
        (self.node.runtime.path / name).unlink(missing_ok=True)

    def fill_disk(self) -> None:
        """Fill the disk of the gateway's state for a while."""
        if self.disk is None:
            return
        self._struck("fill_disk")
        filler = self.disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        time.sleep(self.dice.uniform(0.5, 2.0))  # seconds
        filler.unlink()

    KINDS: tuple[Callable[[Storm], None], ...] = (
        unlink,
        kill_gateway,
        kill_relay,
        stop_something,
        kill_agent,
        unlink_of_node,
        kill_kernel,
        fill_disk,
    )


@pytest.fixture
def a_small_disk(a_machine: Any) -> Iterator[Path | None]:
    """A disk of 16 MiB for the gateway's files; None if no file system may be mounted."""
    folder = a_machine.folder / "data"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(folder)], capture_output=True)
    yield folder if mounted.returncode == 0 else None
    if mounted.returncode == 0:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def blow(storm: Storm, browsers: list[Browser], eventually: Any) -> None:
    """Strike each kind once, then any for as long as the storm lasts.

    Cells run between two blows.
    """
    until, left = time.monotonic() + SECONDS, list(Storm.KINDS)
    while left or time.monotonic() < until:
        before = [len(browser.cells) for browser in browsers]
        (left.pop(0) if left else storm.dice.choice(Storm.KINDS))(storm)
        eventually(lambda: all(len(b.cells) > had for b, had in zip(browsers, before, strict=True)))  # noqa: B023
        eventually(lambda: set(storm.kernels) <= set(storm.node.relays()))


def is_nothing_held(node: Any) -> bool:
    """Return whether the agent holds nothing.

    No reservation, no byte of a device, of a host copy, or of an untracked process.
    """
    status = query("status", runtime_dir=node.runtime.path)
    used = [status["kernels"], status["foreign_processes"], status["host_copies"]["used_bytes"]]
    return not any([*used, *(device["used_bytes"] for device in status["devices"])])


@pytest.mark.soak(alone="kills everything below kernels for minutes")
@pytest.mark.timeout(300 if SOAK == 1 else 900 + 60 * SOAK)
@pytest.mark.parametrize("names", [(*NAMES, "link.sock"), NAMES], ids=["link.sock too", "link.sock spared"])
def test_after_a_storm_each_kernel_works_and_nothing_is_left_of_those_that_end(
    a_node: Any, a_small_disk: Path | None, world: Any, open_tab: Any, eventually: Any, names: tuple[str, ...]
) -> None:
    storm = Storm(a_node, int(os.environ.get("ALIQUOT_SEED", "11")), names, a_small_disk)
    browsers = [Browser(storm.gateway, name, a_node.folder, has_gpu) for name, has_gpu in storm.kernels.items()]
    prober = Prober(storm.ask, world.Refusal)
    for thread in (*browsers, prober):
        thread.start()
    eventually(lambda: all(len(browser.cells) > 1 for browser in browsers))
    blow(storm, browsers, eventually)
    for thread in (*browsers, prober):
        thread.finish()
    toll = count(browsers, storm.blows, FATAL)
    print(dict(Counter(blow.kind for blow in storm.blows)), toll)
    for name, all_back in (("gateway", storm.gateway_back), ("agent", storm.agent_back)):
        print(f"{name} up again:", *all_back, sep="\n  ")
    print(f"asked {prober.asked}, failed {dict(prober.failures)}, slowest {prober.slowest_seconds:.2f} s")
    for kernel_id in storm.kernels:
        assert open_tab(storm.gateway, kernel_id).run("print(6 * 7)") == "42"
        storm.gateway.call("DELETE", f"/api/kernels/{kernel_id}")
    eventually(lambda: not a_node.processes() and not a_node.relays())
    eventually(lambda: is_nothing_held(a_node))
    assert toll.cells > len(storm.blows)
    assert (toll.twice, toll.reordered, toll.output_reordered, toll.unexplained) == (0, 0, 0, [])
    assert not prober.failures
    assert prober.slowest_seconds < 30
    if SOAK > 1:
        assert max(back.seconds for back in storm.gateway_back) <= WANT_GATEWAY_SECONDS
        assert max(back.seconds for back in storm.agent_back) <= WANT_AGENT_SECONDS
