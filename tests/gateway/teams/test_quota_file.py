from __future__ import annotations

import asyncio
import logging
import os
import resource
import threading
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.teams.quota_file import QuotaFile
from jupyter_aliquot.gateway.teams.reading import QuotaFileError, read_quotas
from jupyter_aliquot.gateway.teams.warnings import quota_warnings

LOG = logging.getLogger("test")
GOOD = """\
organization: Example University
queue:
  order: drf
  backfill: false
defaults:
  reclaimMinRuntime: 5m
  overcommit: 2
teams:
  research:
    nominalQuota: 2
  vision:
    parent: research
    users: [alice, bob]
    groups: [vision]
    nominalQuota: 1.5
    borrowingLimit: 0.5
    lendingLimit: 1
    overQuotaWeight: 3
    reclaimMinRuntime: 90s
    mayBeEnded: low
    borrowingPriority: low
    overcommit: 1.5
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(QuotaFileError) as caught:
        read_quotas(text, "aliquot.yaml")
    return str(caught.value).splitlines()


def test_a_file_is_read_whole() -> None:
    quotas = read_quotas(GOOD, "aliquot.yaml")
    vision = quotas.teams["vision"]
    assert (quotas.organization, quotas.order, quotas.is_backfilling) == ("Example University", "drf", False)
    assert (vision.line, vision.parent, vision.users, vision.groups) == (11, "research", ("alice", "bob"), ("vision",))
    assert (dict(vision.nominal), dict(vision.borrowing or {}), dict(vision.lending or {})) == (
        {"": 150},
        {"": 50},
        {"": 100},
    )
    assert (vision.weight, vision.reclaim_seconds, vision.may_be_ended, vision.borrowers) == (3, 90, "low", "low")
    assert quotas.teams["research"].reclaim_seconds == 300
    assert (vision.overcommit, quotas.teams["research"].overcommit) == (1.5, 2)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "organization: Lab\n", "queue: {order: drf}\n"])
def test_a_file_without_teams_is_refused_unless_it_says_so(text: str) -> None:
    assert problems_of(text) == [
        "aliquot.yaml: The file has no teams. Write them below the key teams, or teams: {} for none"
    ]
    assert read_quotas("teams: {}\n", "aliquot.yaml").teams == {}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "teams:\n  a:\n    nominalquota: 1\n",
            "aliquot.yaml:3: teams.a.nominalquota is no known key. Use nominalQuota",
        ),
        ("team: {}\n", "aliquot.yaml:1: team is no known key. Use teams"),
        (
            "teams:\n  a:\n    nominalQuota: -1\n",
            "aliquot.yaml:3: teams.a.nominalQuota is '-1'. Use a number of GPUs from 0 to 9999 in steps of 0.01",
        ),
        ("teams:\n  a: {nominalQuota: .nan}\n", "teams.a.nominalQuota is '.nan'"),
        ("teams:\n  a: {nominalQuota: 0.125}\n", "in steps of 0.01"),
        (
            "teams:\n  a: {parent: b}\n  b: {parent: c}\n  c: {parent: a}\n",
            "aliquot.yaml:2: teams.a is its own parent: a → b → c → a. Remove one of these parents",
        ),
        ("teams:\n  a: {parent: a}\n", "aliquot.yaml:2: teams.a is its own parent: a → a."),
        ("teams:\n  a: {queueOrder: drf}\n", "aliquot.yaml:2: teams.a.queueOrder is 'drf'"),
        ("teams:\n  a: {parent: b}\n", "aliquot.yaml:2: teams.a has the parent 'b', which is no team."),
        (
            "teams:\n  a: {users: [ann]}\n  b: {users: [bob, ann]}\n",
            "aliquot.yaml:3: teams.b.users names 'ann', as teams.a in line 2 does. Name each in one team",
        ),
        ("teams:\n  a: {}\n  b: {}\n  a: {}\n", "aliquot.yaml:4: teams.a stands in line 2 already."),
        ("teams:\n  a: {reclaimMinRuntime: soon}\n", "Use a duration such as 90s, 10m or 2h"),
        ("teams:\n  a: {overQuotaWeight: 0}\n", "Use a number above 0"),
        ("teams:\n  a: {overcommit: 0.5}\n", "Use a number from 1, such as 1 or 1.5"),
        ("teams:\n  a: {overQuotaWeight: 1_0}\n", "Use a number above 0"),
        ("teams:\n  a: {nominalQuota: 1e999999}\n", "Use a number of GPUs from 0 to 9999"),
        ("teams:\n  a: {nominalQuota: 1_0}\n", "Use a number of GPUs from 0 to 9999"),
        ("teams:\n  a: {nominalQuota: ١}\n", "Use a number of GPUs from 0 to 9999"),
        (f"teams:\n  a: {{nominalQuota: {'9' * 400}}}\n", "Use a number of GPUs from 0 to 9999"),
        (f"teams:\n  a: {{reclaimMinRuntime: {'9' * 400}}}\n", "Use a duration such as 90s, 10m or 2h, 365d at most"),
        ("teams:\n  a: {reclaimMinRuntime: 366d}\n", "Use a duration such as 90s, 10m or 2h, 365d at most"),
        (f"#{'ä' * (128 << 10)}\nteams: {{}}\n", "The file has more than 262144 bytes"),
        ("teams:\n  a: {mayBeEnded: always}\n", "Use one of never, low, any"),
        ("queue: {order: lifo}\n", "queue.order is 'lifo'. Use one of fifo, las, gittins, srtf, drf"),
        (
            "teams:\n  a: {nominalQuota: {H200: 1}}\n  b: {nominalQuota: 1}\n",
            "aliquot.yaml:3: teams.b and teams.a in line 2 count differently: one by GPU model",
        ),
        ("teams: [a\n", "aliquot.yaml:2: This is no YAML"),
        ("teams: &x\n  a: *x\n", "teams.a.a is no known key"),
        ("a: 1\n---\nb: 2\n", "This is no YAML"),
        ("- a\n", "The file is a list. Use a table of names and values"),
        ("teams:\n  ? [a]\n  : {}\n", "has a key that is no name"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(text: str, want: str) -> None:
    assert any(want in problem for problem in problems_of(text)), problems_of(text)


def test_all_problems_are_told_at_once() -> None:
    found = problems_of("queu: {}\nteams:\n  a:\n    user: [ann]\n    nominalQuota: x\n")
    assert [problem.split(":")[1] for problem in found] == ["1", "4", "5"]


def test_a_user_counts_in_the_team_that_names_the_user_then_in_that_of_a_group() -> None:
    quotas = read_quotas(
        "teams:\n  a: {groups: [g]}\n  b: {users: [ann], groups: [h]}\n  rest: {users: ['*']}\n", "aliquot.yaml"
    )
    found = [quotas.team_of(*of) for of in (("ann", ["g"]), ("bob", ["h", "g"]), ("bob", ["x"]), ("*", []))]
    assert [team and team.name for team in found] == ["b", "a", "rest", "rest"]


def test_quotas_beyond_the_node_are_told_with_their_numbers() -> None:
    quotas = read_quotas("teams:\n  a: {nominalQuota: 1.5}\n  b: {nominalQuota: 1}\n", "aliquot.yaml")
    assert quota_warnings(quotas, {"": 250}) == ()
    assert quota_warnings(quotas, {"": 200}) == (
        "The nominal quotas come to 2.5 GPUs (a 1.5, b 1), and there are 2. Not every team can have its quota at once",
    )
    assert quota_warnings(quotas, {}) == (), "the node is not known yet"


def a_file(path: Path, kept_in: Path | None = None) -> QuotaFile:
    return QuotaFile(path, kept_in, SystemClock(), LOG)


def write(path: Path, text: str) -> None:
    """Replace the file, as editors and configuration management do."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def test_a_bad_file_leaves_the_old_one_in_force_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text("teams:\n  a: {}\n")
    file = a_file(path)
    told: list[int] = []
    file.listen(lambda: told.append(1))
    file.open()
    write(path, "teams:\n  a: {nominal: 1}\n")
    with pytest.raises(QuotaFileError):
        file.reload()
    assert file.quotas is not None
    assert list(file.quotas.teams) == ["a"]
    assert file.problem.startswith(f"{path}:2: teams.a.nominal is no known key")
    write(path, "teams:\n  b: {}\n")
    file.reload()
    assert list(file.quotas.teams) == ["b"]
    assert (file.problem, told) == ("", [1, 1])


def test_a_start_with_a_bad_file_uses_the_last_good_one(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text("teams:\n  a: {}\n")
    a_file(path, tmp_path).open()
    path.unlink()
    with pytest.raises(QuotaFileError, match="cannot be read"):
        a_file(path).open()
    again = a_file(path, tmp_path)
    again.open()
    assert again.quotas is not None
    assert list(again.quotas.teams) == ["a"]
    assert "cannot be read" in again.problem


async def changed(file: QuotaFile, text: str) -> None:
    """Write the file, and wait until the watch has put it in force."""
    seen = asyncio.Event()
    file.listen(seen.set)
    assert file.path is not None
    write(file.path, text)
    await asyncio.wait_for(seen.wait(), 60)


def test_a_changed_file_is_put_in_force_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text("teams:\n  a: {}\n")
    file = a_file(path)
    file.open()

    async def act() -> None:
        file.start()
        try:
            await changed(file, "teams:\n  b: {}\n")
        finally:
            await file.stop()

    asyncio.run(act())
    assert file.quotas is not None
    assert list(file.quotas.teams) == ["b"]


def the_teams(file: QuotaFile) -> list[str]:
    assert file.quotas is not None
    return list(file.quotas.teams)


def looks(file: QuotaFile, times: int) -> list[str]:
    """Look so often, as the watch does, and return the teams in force."""
    for _ in range(times):
        asyncio.run(file.look())
    return the_teams(file)


def test_a_file_that_is_written_in_place_is_put_in_force_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text("teams:\n  a: {}\n  b: {}\n")
    file = a_file(path, tmp_path)
    file.open()
    path.write_text("teams:\n  a: {}\n")
    assert looks(file, 1) == ["a", "b"]
    path.write_text("teams:\n  a: {}\n  b: {}\n  c: {}\n")
    assert looks(file, 1) == ["a", "b"]
    assert looks(file, 1) == ["a", "b", "c"]


def test_an_emptied_file_leaves_the_last_good_one_in_force_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text("teams:\n  a: {}\n")
    file = a_file(path, tmp_path)
    file.open()
    path.write_text("")
    assert looks(file, 3) == ["a"]
    assert "has no teams" in file.problem
    again = a_file(path, tmp_path)
    again.open()
    assert the_teams(again) == ["a"]


def test_a_file_that_is_written_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    os.mkfifo(path)
    os.utime(path, (1, 1))
    # The writer waits until the pipe is opened to be read, which comes after the first look at its times.
    writer = threading.Thread(target=path.write_text, args=("teams: {}\n",))
    writer.start()
    with pytest.raises(QuotaFileError, match="was written while it was read"):
        a_file(path).reload()
    writer.join()


def test_a_change_that_keeps_size_and_time_of_the_content_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text("teams:\n  a: {}\n")
    file = a_file(path)
    file.open()
    before = path.stat()
    path.write_text("teams:\n  b: {}\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the file system's clock has coarse steps
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert looks(file, 2) == ["b"]


def test_a_file_that_could_not_be_read_is_read_again_though_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "aliquot.yaml"
    path.write_text("teams:\n  a: {}\n")
    file = a_file(path)
    file.open()
    write(path, "teams:\n  b: {}\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(QuotaFileError, match="Too many open files"):
            file.reload()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert looks(file, 2) == ["b"]
    assert file.problem == ""
