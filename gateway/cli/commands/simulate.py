"""The command `aliquot simulate`: a trace of jobs through the orders and node rules of the planner."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from traitlets import Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.planning.jobs import DEVICE, Job
from jupyter_aliquot.gateway.simulation.cluster import PLACEMENTS, ClusterError, parse_cluster
from jupyter_aliquot.gateway.simulation.gateway_replay import GatewayReplay
from jupyter_aliquot.gateway.simulation.plot import draw
from jupyter_aliquot.gateway.simulation.policies import GATEWAY, GATEWAY_TEXT, POLICIES, PolicyInput
from jupyter_aliquot.gateway.simulation.simulator import Outcome, Overhead, Simulation
from jupyter_aliquot.gateway.simulation.summary import Summary, summarize
from jupyter_aliquot.gateway.simulation.traces import TraceError, read_services, read_trace
from jupyter_aliquot.gateway.teams.reading import QuotaFileError, read_quotas
from jupyter_aliquot.gateway.teams.values import Quotas
from jupyter_aliquot.gateway.teams.yaml_nodes import Problem
from jupyter_aliquot.gateway.terminal.tables import console

from .base import JSON_FLAG, Command, nearest

_TEXTS = {GATEWAY: GATEWAY_TEXT, **{name: policy.text for name, policy in POLICIES.items()}}
_POLICY_TEXT = "\n".join(f"      {name:<9} {text}" for name, text in _TEXTS.items())


class SimulateCommand(Command):
    """Simulate each policy, and compare them."""

    name = "aliquot simulate"
    usage = "aliquot simulate TRACE [options]"
    accepts_arguments = True
    description = f"""Simulate a trace of jobs on a cluster, and compare policies. No gateway is needed.

    TRACE is a CSV file with the columns name, gpus, submit, seconds (and, if wanted, team and start_overhead), or a
    published one of Muri, Tiresias or Philly. Policies:
{_POLICY_TEXT}"""
    examples = """
    aliquot simulate jobs.csv --cluster 8x8
    aliquot simulate jobs.csv --cluster 4x8,2x4 --policy backfill,las --plot jobs.svg
    aliquot simulate jobs.csv --policy gateway,fifo --quotas aliquot.yaml
    """
    flags = {**Command.flags, **JSON_FLAG}
    aliases = {
        "policy": "SimulateCommand.policy",
        "cluster": "SimulateCommand.cluster",
        "placement": "SimulateCommand.placement",
        "quotas": "SimulateCommand.quotas",
        "past": "SimulateCommand.past",
        "weights": "SimulateCommand.weights",
        "start-overheads": "SimulateCommand.start_overheads",
        "overhead": "SimulateCommand.overhead",
        "plot": "SimulateCommand.plot",
    }
    policy = Unicode("fifo,backfill,las,srtf", help="Policies, with commas between them.").tag(config=True)
    cluster = Unicode("8x8", help="The nodes and their devices: 8x8, or 4x8,2x4.").tag(config=True)
    placement = Unicode(
        "fragmentation", help=f"How a job gets its devices: {', '.join(PLACEMENTS)} (GPUs are only counted)."
    ).tag(config=True)
    quotas = Unicode("", help="Quota file for the policy gateway, which has the names of the trace's teams.").tag(
        config=True
    )
    past = Unicode("", help="CSV file with the GPU-seconds of past jobs (column duration), for gittins.").tag(
        config=True
    )
    weights = Unicode("", help="Weights of teams for fair, as vision=2,speech=1; others have 1.").tag(config=True)
    start_overheads = Unicode("", help="CSV file with the seconds that a model takes to start.").tag(config=True)
    overhead = Unicode(
        Overhead.AT_START.value,
        help="When a job loses its start overhead: start, none, or event, as the published simulators do.",
    ).tag(config=True)
    plot = Unicode("", help="Write completion times and use of the GPUs to this SVG file.").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        if len(self.extra_args) != 1:
            raise UsageError(f"Name one trace. Usage: {self.usage}")
        chosen, overhead, weights = self._policies(), self._overhead(), self._weights()
        if self.placement not in PLACEMENTS:
            raise UsageError(f"--placement {self.placement!r} is none of {', '.join(PLACEMENTS)}")
        try:
            sizes = parse_cluster(self.cluster)
            jobs = read_trace(Path(self.extra_args[0]), Path(self.start_overheads) if self.start_overheads else None)
            past = read_services(Path(self.past)) if self.past else ()
            quotas = _quotas(Path(self.quotas)) if self.quotas else None
        except ClusterError as error:
            raise UsageError(f"--cluster {error}") from None
        except (TraceError, QuotaFileError) as error:
            raise CommandError(str(error)) from None
        _refuse_unknown_teams(weights, jobs)
        facts = PolicyInput(DEVICE * sum(sizes), past, weights)
        outcomes: dict[str, Outcome] = {}
        for name in sorted(chosen, key=lambda one: one != GATEWAY):
            # Jobs that the gateway refuses run under no other policy either: the rows are of the same jobs.
            refused = set(outcomes[GATEWAY].never) if GATEWAY in outcomes else set()
            played = [job for job in jobs if job not in refused]
            with _progress(name) as on_progress:
                if name == GATEWAY:
                    outcomes[name] = _replayed(jobs, sizes, quotas, overhead, on_progress)
                    continue
                pool, order = PLACEMENTS[self.placement](sizes, played), POLICIES[name].make(facts)
                outcomes[name] = Simulation(played, pool, order, overhead, on_progress).run()
        self._publish(jobs, {name: outcomes[name] for name in chosen})

    def _policies(self) -> list[str]:
        names = [name.strip() for name in self.policy.split(",")]
        for name in names:
            if name not in _TEXTS:
                raise UsageError(f"--policy {name!r} is none of {', '.join(_TEXTS)}{nearest(name, list(_TEXTS))}")
            if name != GATEWAY and POLICIES[name].needs_past and not self.past:
                raise UsageError(f"--policy {name} needs --past FILE, the GPU-seconds of past jobs")
        if GATEWAY in names and self.overhead == Overhead.EACH_EVENT.value:
            raise UsageError("--policy gateway has no --overhead event: a kernel loses its start overhead at its start")
        if self.quotas and GATEWAY not in names:
            raise UsageError("--quotas is for the policy gateway. Add it to --policy")
        if self.weights and "fair" not in names:
            raise UsageError("--weights is for the policy fair. Add it to --policy")
        if self.past and not any(name != GATEWAY and POLICIES[name].needs_past for name in names):
            needing = ", ".join(name for name, policy in POLICIES.items() if policy.needs_past)
            raise UsageError(f"--past is for the policy {needing}. Add it to --policy")
        return names

    def _weights(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for part in filter(None, self.weights.split(",")):
            team, _, value = part.strip().partition("=")
            if team in found:
                raise UsageError(f"--weights names {team!r} twice. Give each team one weight")
            try:
                found[team] = float(value)
            except ValueError:
                found[team] = 0.0
            if not team or not 0 < found[team] < math.inf:
                raise UsageError(f"--weights {part.strip()!r} is not TEAM=WEIGHT with a weight above 0")
        return found

    def _overhead(self) -> Overhead:
        try:
            return Overhead(self.overhead)
        except ValueError:
            raise UsageError(
                f"--overhead {self.overhead!r} is none of {', '.join(one.value for one in Overhead)}"
            ) from None

    def _publish(self, jobs: tuple[Job, ...], outcomes: Mapping[str, Outcome]) -> None:
        if self.plot:
            try:
                Path(self.plot).write_text(draw(outcomes), encoding="utf-8")
            except OSError as error:
                raise CommandError(f"The picture cannot be written to {self.plot}: {error.strerror}") from None
        rows = [summarize(name, outcome) for name, outcome in outcomes.items()]
        if self.json_output:
            print(json.dumps({"cluster": self.cluster, "placement": self.placement, "policies": rows}, indent=2))
            return
        title = f"{len(jobs)} jobs on {self.cluster}, placement {self.placement}"
        console().print(_table(title, rows))
        larger = {row["policy"]: row["never_fits"] for row in rows}
        of_nodes = larger.pop(GATEWAY, 0)
        if any(larger.values()):
            console().print(f"Larger than the cluster, and left out: {max(larger.values())} of {len(jobs)} jobs.")
        if of_nodes:
            console().print(
                f"Refused by the policy gateway, and left out of each row: {of_nodes} of {len(jobs)} jobs. A kernel "
                "fits one node, and what its team may hold."
            )


def _refuse_unknown_teams(weights: Mapping[str, float], jobs: Iterable[Job]) -> None:
    """Raise UsageError for a weight of a team that the trace does not have."""
    teams = {job.team for job in jobs if job.team}
    if unknown := sorted(weights.keys() - teams):
        raise UsageError(
            f"--weights {unknown[0]!r} is no team of the trace. Its teams: {', '.join(sorted(teams)) or 'none'}"
        )


def _quotas(path: Path) -> Quotas:
    """Read a quota file. Raises QuotaFileError."""
    try:
        return read_quotas(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise QuotaFileError(str(path), [Problem(0, f"The file cannot be read: {why}")]) from None


def _replayed(
    jobs: tuple[Job, ...],
    sizes: tuple[int, ...],
    quotas: Quotas | None,
    overhead: Overhead,
    on_progress: Callable[[int, int], None],
) -> Outcome:
    """Play a trace through the gateway's own plan."""
    has_overhead = overhead is Overhead.AT_START
    try:
        return GatewayReplay(jobs, sizes, quotas, has_overhead=has_overhead, on_progress=on_progress).run()
    except TraceError as error:
        raise CommandError(str(error)) from None


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on the error stream, if that is a terminal."""
    bar = Progress(console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty())
    task = bar.add_task(name, total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _table(title: str, rows: list[Summary]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("policy")
    for heading in ("mean", "p50", "p95", "p99", "mean wait", "makespan", "GPUs in use", "preemptions"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row["policy"],
            *(
                f"{seconds:,.0f} s"
                for seconds in (
                    row["mean_completion_seconds"],
                    row["p50_completion_seconds"],
                    row["p95_completion_seconds"],
                    row["p99_completion_seconds"],
                    row["mean_wait_seconds"],
                    row["makespan_seconds"],
                )
            ),
            f"{row['utilization']:.1%}",
            f"{row['preemptions']}",
        )
    return table
