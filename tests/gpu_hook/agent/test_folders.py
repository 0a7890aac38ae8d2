"""The agent's folder: one agent a folder, and folders that it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run_agent(node: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(node.command(*arguments), capture_output=True, text=True, timeout=90, check=False)


class TestFolders:
    def test_a_second_agent_ends_and_says_who_is_first(self, a_node: Any) -> None:
        second = run_agent(a_node, "--log-file", os.devnull)
        want = f"aliquot agent: an agent runs on {a_node.folder} already (pid {a_node.process.pid})"
        assert second.returncode == 1
        assert second.stderr.startswith(want)
        assert a_node.answers()

    def test_a_folder_with_a_long_name_is_refused(self, a_folder: Path) -> None:
        self.check_refused(a_folder / ("x" * 50), "at most 50 fit into a socket's path; set ALIQUOT_RUNTIME_DIR")

    def test_a_file_in_place_of_the_folder_is_refused(self, a_folder: Path) -> None:
        (a_folder / "f").touch()
        self.check_refused(a_folder / "f", "is no folder; remove it or set ALIQUOT_RUNTIME_DIR")

    def test_a_folder_of_somebody_else_is_refused(self, a_folder: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(a_folder, 1234, 1234)
        self.check_refused(a_folder, "belongs to user 1234, we are user 0; set ALIQUOT_RUNTIME_DIR")

    def test_a_folder_that_cannot_be_written_is_refused(self) -> None:
        self.check_refused(Path("/proc/aliquot"), "cannot write into the runtime folder /proc/aliquot")

    def check_refused(self, folder: Path, want: str) -> None:
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--log-file",
            os.devnull,
        ]
        result = subprocess.run(
            [*command, "--runtime-dir", str(folder)], capture_output=True, text=True, timeout=90, check=False
        )
        assert result.returncode == 1
        assert want in result.stderr
        assert result.stderr.count("\n") == 1
