"""Fetch JupyterHub's proxy, a program for Node, into build/hub-proxy, by the example's lock file.

A Hub does not run without it; tests that need it are skipped, and say so.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

LEAST_NODE = 18  # Node's version that the locked proxy requires
_FILES = ("package.json", "package-lock.json")


class HubProxy:
    """The installation of the proxy. ``run_step`` and ``leave_out`` are those of setup.py."""

    def __init__(
        self, root: Path, run_step: Callable[[str, Sequence[str]], bool], leave_out: Callable[[str, str, str], None]
    ) -> None:
        self._sources = [root / "examples" / "jupyterhub" / name for name in _FILES]
        self.folder = root / "build" / "hub-proxy"
        self._run_step, self._leave_out = run_step, leave_out

    def problem(self) -> str:
        """Return why it cannot be installed here; empty if it can."""
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            missing = " and ".join(name for name, path in (("node", node), ("npm", npm)) if path is None)
            return f"not found: {missing} (Node {LEAST_NODE} or newer; Debian: apt-get install nodejs npm)"
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        version = re.match(r"v(\d+)\.", said)
        if version is None or int(version[1]) < LEAST_NODE:
            return f"Node {LEAST_NODE} or newer is needed, but {node} is {said or 'not a Node that runs'}. Install it"
        return ""

    def install(self) -> str:
        """Bring it up to date with the lock file. Return the problem, empty on success."""
        digest = hashlib.sha256()
        for path in self._sources:
            digest.update(path.read_bytes())
        stamp, want = self.folder / "setup.stamp", digest.hexdigest()
        if stamp.exists() and stamp.read_text() == want:
            return ""
        if problem := self.problem():
            return problem
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for path in self._sources:
            shutil.copy(path, self.folder)
        command = ["npm", "ci", "--prefix", str(self.folder), "--ignore-scripts", "--no-audit", "--no-fund"]
        if not self._run_step("fetching JupyterHub's proxy", command):
            return "npm ci failed: is the registry of Node's packages reachable?"
        stamp.write_text(want)
        return ""

    def install_for_tests(self) -> None:
        if problem := self.install():
            self._leave_out("JupyterHub's proxy", "the tests with a Hub are skipped", problem)
