"""The command line: its help, and refusals of unknown words in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.cli.app import COMMANDS
from jupyter_aliquot.gpu_hook.paths import nvidia_driver

WRONG_LINES = [
    (["frobnicate"], 2, "no command 'frobnicate'"),
    (["statsu"], 2, "did you mean status?"),
    (["--colour"], 2, "no option --colour"),
    (["status", "--jsn"], 2, "did you mean --json?"),
    (["status", "now"], 2, "'now' was not expected"),
    (["status", "--runtime-dir"], 2, "needs a value"),
    (["status", "--StatusCommand.colour=1"], 2, "no option --StatusCommand.colour"),
    (["demo", "--driver", "amd"], 2, "Use auto, nvidia or softgpu"),
    (["demo", "--softgpu-memory", "-4GiB"], 2, "--softgpu-memory needs a value"),
    (["demo", "--notebook", __file__], 1, "which cannot be read: Notebook does not appear to be JSON"),
    (["demo", "--softgpu-memory", "much"], 2, "'much' is not an amount of memory"),
    (["demo", "--softgpu-memory", "4"], 2, "Did you mean 4GiB?"),
    (["demo", "--softgpu-memory", "1m"], 2, "64.0 MiB or more"),
    (["demo", "--driver", "nvidia"], 1, "Requested the NVIDIA driver"),
    (["demo", "--notebook", "/nowhere.ipynb"], 1, "which does not exist"),
    (["sizes", "--user"], 2, "Add --install"),
    (["swap"], 2, "name a kernel; usage: aliquot swap KERNEL"),
    (["swap", "k1", "--seconds", "-1"], 2, "--seconds -1 is out of range. Use a number from 0"),
    (["swap", "k1", "--seconds=soon"], 2, "--seconds 'soon' is not a number"),
    (["status", "--interval", "abc"], 2, "--interval 'abc' is not a number"),
    (["status", "--watch", "--interval", "0"], 2, "--interval 0, which is out of range"),
    (["status", "--watch", "--json"], 2, "Use one of them"),
    (["resize", "k1", "--priority", "prod"], 2, "--priority 'prod' is not a priority. Use normal or low"),
    (["sizes", "--install", "--user", "--sys-prefix"], 2, "Use one of"),
    (["sizes", "--install", "--json"], 2, "Use one of"),
    (["sizes", "--install", "0.333"], 2, "0.333"),
    (["resize", "k1", "0"], 2, "Requested 0 GPUs, but a kernel has 0.01 or more"),
    (["resize", "k1", "0.333"], 2, "a size comes in steps of 0.01"),
    (["resize", "k1", "nan"], 2, "a size comes in steps of 0.01"),
    (["resize", "k1", "half"], 2, "Requested 'half' GPUs, which is not a number"),
    (["resize", "k1", "--memory", "0"], 2, "--memory '0' is no limit. Use an amount above 0, or 'share'"),
    (["resize", "k1", "--memory", ""], 2, "option --memory needs a value"),
    (["usage", "--month", "foo"], 2, "Requested the month 'foo', which does not exist"),
    (["usage", "--month", "2026-13"], 2, "such as 2026-11"),
    (["usage", "--month", "2026-11", "--from", "2026-11-01"], 2, "--month and --from. Use one of them"),
    (["usage", "--from", "2026-11-01"], 2, "Requested --from without --to"),
    (["usage", "--from", "soon", "--to", "2026-11-01"], 2, "--from 'soon' is no day. Use one such as 2026-11-01"),
    (["usage", "--from", "2026-11-02", "--to", "2026-11-02"], 2, "--to 2026-11-02 is not after --from 2026-11-02"),
    (["usage", "--by", "user,colour"], 2, "--by 'colour' is none of user, team"),
    (["usage", "--csv", "--json"], 2, "--csv and --json. Use one of them"),
    (["history", "--csv", "--json"], 2, "--csv and --json. Use one of them"),
    (["status", "--interval", "3"], 2, "--interval is for --watch. Add --watch, or leave --interval out"),
    (["doctor", "--namespace", "x"], 2, "--namespace is for --cluster. Add --cluster, or leave --namespace out"),
    (["doctor", "--relay-port=8787"], 2, "--relay-port is for --cluster"),
    (["doctor", "--cluster", "--relay-port=70000"], 2, "--relay-port 70000 is no port"),
    (["doctor", "--user", "x"], 2, "--user is for --hub"),
    (["doctor", "--gateway-url", "http://x"], 2, "--gateway-url is for --hub"),
    (["doctor", "--hub", "--cluster"], 2, "--hub and --cluster. Use one of them"),
    (["defragment", "--size", "huge"], 2, "--size: "),
    (["defragment", "--size", "python3.gpu-1"], 2, "such as 0.25, 1-low or 0.5-1g"),
    (["status", "--json=1"], 2, "option --json takes no value"),
    (["resize", "k1", "--withdraw", "0.5"], 2, "Name a change: GPUS, --memory, --priority, or --withdraw alone"),
    (["resize", "k1", "--priority", "low", "half"], 2, "Requested 'half' GPUs"),
    (["quota", "--json", "reload", "now"], 2, "'now' was not expected"),
    (["doctor", "--hub", "--gateway-url", "host:8890"], 2, "Write http:// or https:// before HOST:PORT"),
    (["install-service", "--dry-run", "--user", "a b"], 2, "is no name of an account"),
    (["install-service", "--uninstall", "--driver", "softgpu"], 2, "--driver and --uninstall. Use one of them"),
    (["message", "k1", " "], 2, "the text is empty"),
    (["sizes", "--Aliquot.presets=0.333"], 1, "more than two decimals"),
    (["agent", "--softgpu-memory", "-1"], 2, "--softgpu-memory"),
    (["agent", "--softgpu-memory", "16"], 2, "Did you mean 16GiB?"),
    (["agent", "--swap-memory", "16"], 2, "Did you mean 16GiB?"),
    (["agent", "--host-memory-floor", "16"], 2, "Did you mean 16GiB?"),
    (["agent", "--driver", "amd"], 2, "invalid choice"),
    (["relay", "--exit-when-idle", "soon"], 2, "Use a number above 0"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(run_aliquot, command: str) -> None:
    done = run_aliquot(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: aliquot {command}")


def test_jupyter_finds_the_command_line(run_aliquot) -> None:
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        [scripts / "jupyter", "aliquot", "--version"],
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == run_aliquot("--version").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_tells_the_version(run_aliquot, command: str) -> None:
    done = run_aliquot(command, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == run_aliquot("--version").stdout.strip() != ""


@pytest.mark.parametrize(("words", "want_code", "want_text"), WRONG_LINES, ids=lambda v: str(v))
def test_a_wrong_line_gets_one_clear_answer(run_aliquot, words: list[str], want_code: int, want_text: str) -> None:
    if words[-1] == "nvidia" and nvidia_driver() is not None:
        pytest.skip("this machine has an NVIDIA driver")
    done = run_aliquot(*words)
    assert done.returncode == want_code
    assert want_text in done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    # The parsers of these two add their usage.
    assert len(lines) == 1 or words[0] in ("agent", "relay")


def test_a_terminal_of_few_letters_is_no_traceback(run_aliquot, an_environment: dict[str, str]) -> None:
    an_environment["PYTHONIOENCODING"] = "ascii"
    done = run_aliquot("sizes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "python3.gpu-0.25" in done.stdout


def test_without_a_command_it_lists_the_commands(run_aliquot) -> None:
    done = run_aliquot()
    assert done.returncode == 0
    assert all(f"  {command}" in done.stdout for command in COMMANDS)


def test_an_option_of_the_first_word_is_not_taken_for_a_command(run_aliquot) -> None:
    assert run_aliquot("--help").stdout == run_aliquot().stdout
