"""Start of a kernel that runs as its owner, against stock JupyterHub's own kernel under the same spawner.

Two Hubs of root run side by side, with LocalProcessSpawner and the same accounts: one stock, whose
user's server starts the kernel itself, and one with Aliquot's gateway and relay host. Starts
alternate in ABBA order, so that drift of the machine affects both. Bound, on medians: ≤ 1.10 ×.
Under `nice`, give /sys/fs/cgroup/cpu/aliquot.slice, where owners' kernels are, the same weight.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack

from report import ROOT, Row, at_most, publish, read_arguments

from gateway import STOCK, Server, measure_start

sys.path.insert(0, str(ROOT / "tests"))
from hub_accounts import HubOfAccounts, accounts_problem

USER = "ada"
SMOKE = {"starts": 1}
# Of the user's server: those of STOCK that the Hub does not set itself.
_STOCK_ARGUMENTS = [
    f"--ServerApp.{name}={value}"
    for name, value in STOCK.items()
    if name not in ("identity_provider_class", "authorizer_class")
]
_NAMES = ("stock JupyterHub", "Aliquot, as its owner", "Aliquot, as its owner with 0.25 GPU")


class StockHub(HubOfAccounts):
    """The same Hub without Aliquot: its users' servers start kernels themselves."""

    CONFIGURE = f"c.Spawner.args += {_STOCK_ARGUMENTS!r}\n".replace("{", "{{").replace("}", "}}")

    def wait_for_gateway(self) -> None:
        """There is none."""


def server_of(hub: HubOfAccounts, kernel_name: str) -> Server:
    return Server(f"{hub.url}/user/{USER}", kernel_name, hub.token_of(USER))


def interleave(servers: list[Server], repeats: int) -> list[list[float]]:
    """Return the seconds of the starts on each server. Each second round goes backwards."""
    found: list[list[float]] = [[] for _ in servers]
    for repeat in range(repeats):
        order = range(len(servers)) if repeat % 2 == 0 else reversed(range(len(servers)))
        for which in order:
            found[which].append(measure_start(servers[which]))
        if repeat % max(1, repeats // 5) == 0:
            print(f"starts: {repeat + 1} of {repeats}", flush=True)
    return found


def rows_of(found: list[list[float]]) -> list[Row]:
    stock = found[0]
    rows = [
        Row(f"kernel start, {name} (median)", statistics.median(times), "s")
        for name, times in zip(_NAMES, found, strict=True)
    ]
    ratio = statistics.median(found[1]) / statistics.median(stock)
    rows.append(at_most("kernel start of an owner, ratio of medians", ratio, "×", 1.10))
    for name, times in zip(_NAMES[1:], found[1:], strict=True):
        pairs = [ours / theirs for ours, theirs in zip(times, stock, strict=True)]
        rows.append(Row(f"kernel start, {name}, median of paired ratios", statistics.median(pairs), "×"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=30, help="kernel starts of each kind")
    arguments = read_arguments(parser, SMOKE)
    if problem := accounts_problem():
        raise SystemExit(f"No measurement: {problem}")
    with ExitStack() as stack:
        stock, ours = stack.enter_context(StockHub()), stack.enter_context(HubOfAccounts())
        for hub in (stock, ours):
            hub.start_server(USER)
        servers = [server_of(stock, "python3"), server_of(ours, "python3"), server_of(ours, "python3.gpu-0.25")]
        for server in servers:
            measure_start(server)
        found = interleave(servers, arguments.starts)
    raise SystemExit(0 if publish(arguments, "owner", "software GPU", rows_of(found)) else 1)


if __name__ == "__main__":
    main()
