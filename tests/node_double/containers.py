"""A container as a process: its command, environment and folders, from the pod and the plugins' answers.

There is no mount namespace, which needs privileges. A path in a container's mount that stands in
its command, environment or working folder is replaced by the folder's path; /tmp is TMPDIR. So is one of an
empty folder in a file of a Secret or ConfigMap.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "ALIQUOT_SOFTGPU_CONTEXT")
_PYTHONS = ("python", "python3")
_TMP = "/tmp"


@dataclass(frozen=True)
class Image:
    """An image: its entrypoint and environment. ``pull_error``: it cannot be pulled, and why."""

    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    pull_error: str = ""


@dataclass
class Container:
    """One container that runs, ran, or cannot."""

    name: str
    process: subprocess.Popen[bytes] | None = None
    is_ready: bool = False
    is_started: bool = False
    restarts: int = 0
    waiting: tuple[str, str] = ("ContainerCreating", "")
    image: str = ""
    resources: Object = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return the code as a container's runtime tells it: 128 and the signal's number."""
        code = None if self.process is None else self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    def end(self, number: int) -> None:
        """Signal the container's first process, as a kubelet does; SIGKILL ends all."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            elif self.is_running:
                self.process.send_signal(number)

    def status(self) -> Object:
        code = self.exit_code
        state: Object = {
            "waiting": {"reason": self.waiting[0], **({"message": self.waiting[1]} if self.waiting[1] else {})}
        }
        if code is not None:
            state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        elif self.process is not None:
            state = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.is_ready and self.is_running,
            "started": self.is_started,
            # A node that tells none supports no resize.
            "resources": {kind: self.resources.get(kind, {}) for kind in ("requests", "limits")},
            "restartCount": self.restarts,
            "state": state,
        }


class Paths:
    """The folders of one container by their paths in it. The longest path wins."""

    def __init__(self, mounts: Mapping[str, Path]) -> None:
        self._mounts = dict(sorted(mounts.items(), key=lambda pair: -len(pair[0])))

    def folder(self, path: str) -> str:
        """Return a path of the container as it is on the host."""
        for mount, folder in self._mounts.items():
            if mount != _TMP and (path == mount or path.startswith(f"{mount}/")):
                return os.fspath(folder) + path[len(mount) :]
        return path

    def word(self, word: str) -> str:
        """Return a word of a command, or a variable: a path, ``--name=PATH``, or paths with colons."""
        if word.startswith("-") and "=" in word:
            option, _, path = word.partition("=")
            return f"{option}={self.word(path)}"
        return ":".join(self.folder(part) for part in word.split(":")) if "/" in word else word

    @property
    def tmp(self) -> str:
        return os.fspath(self._mounts[_TMP]) if _TMP in self._mounts else ""


@dataclass(frozen=True)
class Facts:
    """The facts about a pod for its containers' variables."""

    name: str
    namespace: str
    uid: str
    ip: str
    node: str

    def field(self, path: str) -> str:
        return {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "status.podIP": self.ip,
            "status.hostIP": self.ip,
            "spec.nodeName": self.node,
        }[path]


def environment(
    container: Object, image: Image, given: Mapping[str, str], facts: Facts, paths: Paths
) -> dict[str, str]:
    """Return the variables of a container: the image's, the plugins', and the pod's own last."""
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    env |= {"HOSTNAME": facts.name, **image.env, **given}
    for one in container.get("env") or ():
        source = one.get("valueFrom")
        env[one["name"]] = one.get("value", "") if source is None else facts.field(source["fieldRef"]["fieldPath"])
    env = {name: paths.word(value) for name, value in env.items()}
    if paths.tmp:
        env["TMPDIR"] = paths.tmp
    return env


def command(container: Object, image: Image, paths: Paths) -> list[str]:
    """Return the command line; an image's ``python`` is the tests' own."""
    words = [*(container.get("command") or image.entrypoint), *(container.get("args") or ())]
    words = [sys.executable if words[0] in _PYTHONS else words[0], *words[1:]]
    return [words[0], *map(paths.word, words[1:])]


def start(words: list[str], env: Mapping[str, str], cwd: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a container's process in a group of its own. Raises OSError."""
    with log.open("ab") as output:
        return subprocess.Popen(
            words,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def passes(probe: Object, container: Object, env: Mapping[str, str], ip: str) -> bool:
    """Return whether a probe succeeds now."""
    if "tcpSocket" in probe:
        port = probe["tcpSocket"]["port"]
        named = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
        with contextlib.suppress(OSError), socket.create_connection((ip, named.get(port, port)), 1.0):
            return True
        return False
    words = probe["exec"]["command"]
    return subprocess.run(words, env=dict(env), capture_output=True, check=False).returncode == 0


def wait_all(containers: list[Container], until: float) -> bool:
    """Wait for containers' ends up to a moment of the monotonic clock; return whether all ended."""
    for one in containers:
        if one.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(max(0.0, until - time.monotonic()))
    return not any(one.is_running for one in containers)
