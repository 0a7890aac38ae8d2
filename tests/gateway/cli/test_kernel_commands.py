"""`aliquot resize`, `swap` and `restore`: names of kernels, requests, and messages of refusals."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.cli.app import main
from jupyter_aliquot.gateway.cli.commands.swap import SwapCommand, why_not_moved
from jupyter_aliquot.gateway.status.residency import residency_report, residency_text, state_text, waiting_text
from jupyter_aliquot.gateway.terminal.gateway_tables import ended_kernels, ended_rows, queue_rows, waiting_kernels
from jupyter_aliquot.gateway.terminal.kernel_client import NoSuchKernelError, pick_kernel
from jupyter_aliquot.gpu_hook.agent.scheduling.views import ASKED_OUT_SECONDS
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus
from jupyter_aliquot.gpu_hook.client.residency_reports import MODE_IS_OFF, read_residency


def a_kernel_status(**more: Any) -> KernelStatus:
    pids = more.pop("pids")
    return KernelStatus("k", "ada", "", 25, None, "production", 1, (), 1000.0, "holds", pids, False, (), **more)


def told(kernel_id: str, label: str = "", state: str = "on_gpu", **more: Any) -> dict[str, Any]:
    return {"id": kernel_id, "label": label, "owner": "ada", "state": state, **more}


KERNELS = [
    told("abc-1", "work/train.ipynb"),
    told("abc-2", "other/train.ipynb"),
    told("def-3", "notes.ipynb", "swapped_out"),
    told("ghi-4", "gone.ipynb", "ended"),
]


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("abc-1", "abc-1"),
        ("def", "def-3"),
        ("notes.ipynb", "def-3"),
        ("other/train.ipynb", "abc-2"),
        ("train.ipynb", "names 2 kernels: abc-1 of ada, abc-2 of ada"),
        ("abc", "names 2 kernels"),
        ("notes", "def-3"),
        ("train", "names 2 kernels"),
        ("de", "no running kernel has"),
        ("gone.ipynb", "there are: work/train.ipynb, other/train.ipynb, notes.ipynb"),
    ],
)
def test_a_kernel_is_named_by_id_or_notebook(word: str, want: str) -> None:
    try:
        found = str(pick_kernel(KERNELS, word)["id"])
    except NoSuchKernelError as error:
        found = str(error)
    assert want in found


def test_an_empty_word_names_no_kernel_also_where_one_has_no_notebook() -> None:
    with pytest.raises(NoSuchKernelError, match="the id or the notebook ''; there are: jkl-5"):
        pick_kernel([told("jkl-5")], "")


@pytest.mark.parametrize(
    ("residency", "want"),
    [
        (None, "–"),
        ({"state": "resident", "mode": "vmm"}, "on GPU"),
        ({"state": "resident", "mode": "off"}, "on GPU, never swapped"),
        ({"state": "resident", "mode": "off", "mode_reason": MODE_IS_OFF}, "on GPU, never swapped"),
        (
            {"state": "resident", "mode": "off", "mode_reason": "unknown driver function cuFoo"},
            "on GPU, not swappable: unknown driver function cuFoo",
        ),
        (
            {"state": "resident", "mode": "vmm", "swap_out_waits_for": "host memory for its copy"},
            "on GPU, to be swapped out: waits for host memory for its copy",
        ),
        ({"state": "swapped", "mode": "vmm", "swapped_bytes": 3 << 30}, "swapped out 3.0 GiB"),
        (
            {"state": "swapped", "mode": "vmm", "swapped_bytes": 3 << 30, "restore_seconds": 1.2},
            "swapped out 3.0 GiB (about 2 s to restore)",
        ),
        (
            {"state": "swapped", "mode": "vmm", "waits": {"reason": "r", "seconds": 1, "before": 2}},
            "restoring (2 ahead)",
        ),
        ({"state": "swapping_in", "mode": "vmm"}, "restoring"),
        ({"state": "checkpointed", "mode": "vmm", "is_lost": True, "refusal": "r"}, "lost: restart the kernel"),
    ],
)
def test_where_memory_is_fits_a_cell_of_the_table(residency: Any, want: str) -> None:
    assert residency_text(a_kernel_status(residency=read_residency(residency), pids=(7,))) == want


def test_a_swap_out_that_waits_is_told_in_the_kernels_reason() -> None:
    found = read_residency({"state": "resident", "mode": "vmm", "swap_out_waits_for": "host memory for its copy"})
    assert waiting_text(found) == "is to be swapped out: waits for host memory for its copy"


@pytest.mark.parametrize("waits", [None, {"reason": "r", "seconds": 1}])
def test_a_kernel_whose_memory_is_lost_tells_so_whether_a_cell_waits_or_not(waits: Any) -> None:
    lost = {
        "state": "checkpointed",
        "mode": "vmm",
        "is_lost": True,
        "refusal": "its GPU memory is lost",
        "waits": waits,
    }
    assert waiting_text(read_residency(lost)) == "its GPU memory is lost"
    assert waiting_text(read_residency({**lost, "is_lost": False, "waits": None})) is None


@pytest.mark.parametrize(("pids", "want"), [((), "starting"), ((7,), "on GPU")])
def test_a_program_that_never_used_its_gpu_is_on_it_in_every_place(pids: tuple[int, ...], want: str) -> None:
    known = a_kernel_status(residency=read_residency({"state": "starting", "mode": "vmm"}), pids=pids)
    report = residency_report(known.residency, runs=bool(pids))
    assert report is not None
    assert residency_text(known) == state_text(report["state"]) == want


@pytest.mark.parametrize(
    ("at", "want"),
    [
        (None, "no room"),
        ("2026-01-01T23:59:00.500Z", "no room. Expected to start at 23:59"),
        ("2026-01-02T00:00:00.000Z", "no room. Expected to start at 2026-01-02 00:00"),
    ],
)
@pytest.mark.usefixtures("in_utc")
def test_a_row_tells_when_the_kernel_is_expected_to_start(at: str | None, want: str) -> None:
    size = {"gpus": 0.5, "priority": "normal", "reason": "no room", "created": "2026-01-01T00:00:00Z"}
    place = {"queue_position": 1, "queue_length": 1, "expected_start": at}
    [row] = queue_rows([told("k1", "late.ipynb", "queued", resize=None, **place, **size)], 1767225600.0 + 60)
    assert row[-1] == want


def test_rows_tell_who_waits_and_who_ended() -> None:
    size = {"gpus": 0.5, "priority": "low", "reason": "no room", "created": "2026-01-01T00:00:00Z"}
    grows = {**size, "gpus": 0.75, "position": 1, "queue_length": 2, "since": "2026-01-01T00:00:30Z"}
    ending = {"code": "oom", "message": "the host's memory was used up", "at": "2026-01-01T00:00:00Z"}
    kernels = [
        told("k1", "late.ipynb", "queued", queue_position=2, queue_length=2, resize=None, **size),
        told("k2", "grows.ipynb", queue_position=None, resize=grows, **size),
        told("k3", "gone\x1b.ipynb", "ended", queue_position=None, resize=None, termination=ending, **size),
        told("k4", "plain.ipynb", "ended", queue_position=None, resize=None, termination=None, **{**size, "gpus": 0}),
    ]
    now = 1767225600.0 + 60
    assert queue_rows(waiting_kernels(kernels), now) == [
        ("grows.ipynb", "k2", "ada", "0.75 GPU low", "1 of 2", "30 s", "no room"),
        ("late.ipynb", "k1", "ada", "0.5 GPU low", "2 of 2", "1 min", "no room"),
    ]
    assert ended_rows(ended_kernels(kernels), now) == [
        ("gone\ufffd.ipynb", "ada", "0.5 GPU low", "1 min", "oom", "the host's memory was used up"),
        ("plain.ipynb", "ada", "no GPU", "–", "–", "no room"),
    ]
    assert len(ended_kernels(kernels, 1)) == 1


def test_swap_waits_for_as_long_as_the_agent_tries_and_says_what_a_request_waited_for() -> None:
    assert SwapCommand.seconds.default_value > ASKED_OUT_SECONDS
    waits = "is to be swapped out: waits for host memory for its copy"
    kept = told("k1", "a.ipynb", reason=waits, residency={"refusal": None})
    assert why_not_moved(kept, waits) == f": {waits}"
    want = f". Its request ended with a new cell, or after 120 s; until then it {waits}"
    assert why_not_moved({**kept, "reason": None}, waits) == want
    assert why_not_moved({**kept, "reason": None}) == "; it is on GPU"


RunHere = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], a_runtime_folder: Path) -> RunHere:
    """Run the command in this process; return its exit code, stdout and stderr."""
    monkeypatch.setenv("ALIQUOT_RUNTIME_DIR", str(a_runtime_folder))

    def run(*words: str) -> tuple[Any, str, str]:
        code: Any = 0
        try:
            main(list(words))
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ((), "name a kernel; usage: aliquot resize KERNEL"),
        (("k1",), "Name a change: GPUS"),
        (("k1", "half"), "Requested 'half' GPUs, which is not a number. Use one such as 0.25"),
        (("k1", "0.5", "--withdraw"), "--withdraw alone"),
        (("k1", "0.5", "1"), "'1' was not expected; usage: aliquot resize KERNEL"),
        (("k1", "--priority", "prod"), "--priority 'prod' is not a priority. Use normal or low"),
        (("k1", "--memory", "12x"), "--memory '12x' is not an amount of memory"),
        (("k1", "--memory", "12"), "--memory '12' is 12 bytes, without a unit. Did you mean 12GiB?"),
        (("k1", "--size", "1"), "no option --size"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(run_here: RunHere, words: tuple[str, ...], want: str) -> None:
    code, _, told = run_here("resize", *words)
    assert (code, want in told) == (2, True), told


@pytest.fixture
def reserve(an_agent: Any, a_runtime_folder: Path) -> Iterator[Callable[..., None]]:
    """Reserve at the agent, and hold the reservation."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(a_runtime_folder / "agent.sock"))
        answers = connection.makefile("rb")

        def ask(kernel_id: str, hundredths: int, label: str) -> None:
            asked = {"kernel_id": kernel_id, "owner": "ada", "hundredths": hundredths, "label": label}
            more = {"memory_limit": None, "workload_class": "production"}
            connection.sendall(json.dumps({"id": 1, "op": "reserve", **asked, **more}).encode() + b"\n")
            assert json.loads(answers.readline())["ok"]

        yield ask


def test_without_a_gateway_the_agent_is_asked(run_here: RunHere, reserve: Callable[..., None]) -> None:
    reserve("k-one", 25, "work/a.ipynb")
    code, said, why = run_here("resize", "a.ipynb", "0.5", "--priority", "low")
    assert (code, said) == (0, "work/a.ipynb has 0.5 GPU low, 512.0 MiB\n"), why
    limited = json.loads(run_here("resize", "k-one", "--memory", "256MiB", "--json")[1])
    assert (limited["gpus"], limited["requested_memory_bytes"], limited["memory_limit_bytes"]) == (
        0.5,
        256 << 20,
        256 << 20,
    )
    shared = json.loads(run_here("resize", "k-one", "--memory", "share", "--json")[1])
    assert shared["requested_memory_bytes"] is None
    code, _, why = run_here("resize", "k-one", "2")
    assert (code, "keeps its number of devices" in why) == (1, True), why
    reserve("k-two", 50, "b.ipynb")
    code, _, why = run_here("resize", "b.ipynb", "0.75")
    assert (code, why[: len("aliquot: Requested 0.75 of gpu0")]) == (1, "aliquot: Requested 0.75 of gpu0")
    code, _, why = run_here("resize", "b.ipynb", "--withdraw")
    assert (code, "no change is queued" in why) == (1, True)
    code, _, why = run_here("restore", "nobody")
    assert (code, "no running kernel has" in why) == (1, True)
    code, _, why = run_here("swap", "b.ipynb")
    want = "aliquot: kernel k-two has no GPU memory: there is nothing to swap out before it uses CUDA"
    assert (code, why.splitlines()[0]) == (1, want), "it has no process that uses CUDA"
