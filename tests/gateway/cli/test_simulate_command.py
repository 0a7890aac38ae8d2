"""`aliquot simulate`: a table, JSON, a picture, and what a mistaken command line is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TRACE = "name,gpus,submit,seconds\nlarge,8,0,100\nhuge,16,1,50\nsmall,0.5,2,20\n"


@pytest.fixture
def a_trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def test_policies_are_compared(run_aliquot, a_trace: Path) -> None:
    picture = a_trace.with_name("jobs.svg")
    done = run_aliquot(
        "simulate", str(a_trace), "--cluster", "2x8", "--policy", "fifo,backfill", "--json", "--plot", str(picture)
    )
    assert done.returncode == 0, done.stderr
    fifo, backfill = json.loads(done.stdout)["policies"]
    assert fifo["mean_wait_seconds"] == pytest.approx((0 + 99 + 148) / 3)
    assert backfill["mean_wait_seconds"] == pytest.approx(33)
    assert "<svg" in picture.read_text()


def test_a_table_tells_what_was_left_out(run_aliquot, a_trace: Path) -> None:
    done = run_aliquot("simulate", str(a_trace), "--cluster", "1x8", "--policy", "las")
    assert done.returncode == 0, done.stderr
    assert "3 jobs on 1x8, placement fragmentation" in done.stdout
    assert "Larger than the cluster, and left out: 1 of 3 jobs." in done.stdout


def test_all_rows_are_of_the_same_jobs(run_aliquot, a_trace: Path) -> None:
    """A gang over two nodes runs under fifo, and is refused by the gateway, whose kernels are on one node."""
    options = ("simulate", str(a_trace), "--cluster", "2x8", "--policy", "fifo,gateway")
    done = run_aliquot(*options, "--json")
    assert done.returncode == 0, done.stderr
    fifo, gateway = json.loads(done.stdout)["policies"]
    assert [fifo["policy"], gateway["policy"]] == ["fifo", "gateway"]
    assert (fifo["jobs"], gateway["jobs"]) == (2, 2)
    assert fifo["mean_completion_seconds"] == gateway["mean_completion_seconds"] == pytest.approx((100 + 20) / 2)
    assert "left out of each row: 1 of 3 jobs" in run_aliquot(*options).stdout


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--policy", "srt"), 2, "'srt' is none of gateway, fifo, backfill, fair, las, gittins, srtf, srsf; did you"),
        (("--policy", "gittins"), 2, "gittins needs --past FILE"),
        (("--placement", "luck"), 2, "'luck' is none of fragmentation, best-fit, spread, none"),
        (("--cluster", "big"), 2, "'big' is not NODESxDEVICES"),
        (
            ("--policy", "fair", "--weights", "sales=2"),
            2,
            "--weights 'sales' is no team of the trace. Its teams: none",
        ),
        (("--policy", "fair", "--weights", "a=2,a=1"), 2, "--weights names 'a' twice"),
        (("--weights", "a=2"), 2, "--weights is for the policy fair. Add it to --policy"),
        (("--past", "/no/such.csv"), 2, "--past is for the policy gittins. Add it to --policy"),
        (("--policy", "fair", "--weights", "a=2,b"), 2, "--weights 'b' is not TEAM=WEIGHT"),
        (("--policy", "fair", "--weights", "a=-1"), 2, "--weights 'a=-1' is not TEAM=WEIGHT with a weight above 0"),
        (("--overhead", "much"), 2, "'much' is none of none, start, event"),
        (("--policy", "gittins", "--past", "/no/such.csv"), 1, "/no/such.csv: The trace cannot be read"),
        (("--policy", "fifo", "--plot", "/no/such/folder/jobs.svg"), 1, "The picture cannot be written"),
        (("another.csv",), 2, "Name one trace"),
        (("--policy", "gateway", "--overhead", "event"), 2, "--policy gateway has no --overhead event"),
        (("--quotas", "/no/quotas.yaml"), 2, "--quotas is for the policy gateway"),
        (("--policy", "gateway", "--quotas", "/no/quotas.yaml"), 1, "/no/quotas.yaml: The file cannot be read"),
    ],
)
def test_a_mistaken_command_line_is_told_what_is_wrong(run_aliquot, a_trace, options, code, words) -> None:
    done = run_aliquot("simulate", str(a_trace), *options)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_gateways_own_plan_takes_a_quota_file_and_one_node_for_a_kernel(run_aliquot, tmp_path: Path) -> None:
    trace, quotas = tmp_path / "jobs.csv", tmp_path / "quotas.yaml"
    trace.write_text("name,gpus,submit,seconds,team\nloan,8,0,100,a\nhuge,16,1,50,b\nowed,2,10,20,b\n")
    quotas.write_text("teams:\n  b: {nominalQuota: 8}\n  a: {}\n")
    options = ("--cluster", "1x8", "--policy", "gateway", "--quotas", str(quotas))
    done = run_aliquot("simulate", str(trace), *options, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["policies"]
    assert (row["never_fits"], row["preemptions"], row["makespan_seconds"]) == (1, 1, 120.0)
    assert (
        "Refused by the policy gateway, and left out of each row: 1 of 3 jobs."
        in run_aliquot("simulate", str(trace), *options).stdout
    )
    quotas.write_text("teams:\n  b: {nominalQuota: 8}\n  c: {nominalQuota: -1}\n")
    assert f"{quotas}:3: teams.c.nominalQuota is '-1'" in run_aliquot("simulate", str(trace), *options).stderr
    quotas.write_text("teams:\n  b: {nominalQuota: 8}\n")
    refused = run_aliquot("simulate", str(trace), *options)
    assert (refused.returncode, "'loan' is of the team 'a', which the quota file does not have" in refused.stderr) == (
        1,
        True,
    )
