"""Run the services of a compose file by an engine's API.

An entry that this module cannot read is an error.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import yaml

_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
_READ = frozenset(
    ("image", "build", "command", "pid", "ipc", "network_mode", "cap_add", "restart", "volumes", "environment")
) | {"depends_on", "profiles", "pull_policy"}


class ComposeError(Exception):
    """The file has an entry that this module cannot carry out."""


@dataclass(frozen=True)
class ComposeFile:
    """A compose file with its variables filled in."""

    services: Mapping[str, Any]

    def started(self) -> list[str]:
        """Return the services that `up` starts, each after those that it depends on."""
        order: list[str] = []

        def visit(name: str) -> None:
            for other in self.services[name].get("depends_on", ()):
                visit(other)
            if name not in order:
                order.append(name)

        for name, service in self.services.items():
            if not service.get("profiles"):
                visit(name)
        return order

    def builds(self) -> dict[str, str]:
        """Return the build targets by image."""
        return {s["image"]: s["build"]["target"] for s in self.services.values() if "build" in s}


def read_compose(path: Path, environment: Mapping[str, str]) -> ComposeFile:
    """Read a compose file. Raises ComposeError."""

    def variable(match: re.Match[str]) -> str:
        name, kind, more = match.groups()
        if environment.get(name):
            return environment[name]
        if kind == "?":
            raise ComposeError(f"{name}: {more}")
        if kind != "-":
            raise ComposeError(f"{name} is not set, and has no default")
        return str(more)

    def fill(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: fill(value) for key, value in node.items()}
        if isinstance(node, list):
            return [fill(value) for value in node]
        return _VARIABLE.sub(variable, node) if isinstance(node, str) else node

    data = fill(yaml.safe_load(path.read_text()))
    for name, service in data["services"].items():
        if unknown := set(service) - _READ:
            raise ComposeError(f"{name}: {sorted(unknown)}")
    return ComposeFile(data["services"])


@dataclass
class Composed:
    """The services of a file on one engine."""

    client: docker.DockerClient
    file: ComposeFile
    containers: dict[str, Any] = field(default_factory=dict)

    def up(self) -> None:
        for name in self.file.started():
            self.start(name)

    def start(self, name: str) -> None:
        service = self.file.services[name]
        body = {
            "Image": service["image"],
            "Cmd": service.get("command"),
            "Env": [f"{key}={value}" for key, value in service.get("environment", {}).items()],
            "Labels": {"com.docker.compose.service": name},
            "HostConfig": {
                "PidMode": service.get("pid", ""),
                "IpcMode": service.get("ipc", "private"),
                "NetworkMode": service["network_mode"],
                "CapAdd": service.get("cap_add", []),
                "RestartPolicy": {"Name": service["restart"]},
                "Binds": service.get("volumes", []),
            },
        }
        created = self.client.api.create_container_from_config({k: v for k, v in body.items() if v is not None})
        self.containers[name] = self.client.containers.get(created["Id"])
        self.containers[name].start()

    def replace(self, name: str) -> None:
        """Replace a service as `up` does with a new image.

        The old container is stopped and removed, a new one is started.
        """
        self.containers[name].stop(timeout=20)
        self.containers.pop(name).remove()
        self.start(name)

    def logs(self) -> str:
        told = {name: container.logs(tail=60).decode(errors="replace") for name, container in self.containers.items()}
        return "\n".join(f"--- {name}\n{text}" for name, text in told.items())

    def down(self) -> None:
        for name in reversed(list(self.containers)):
            with contextlib.suppress(docker.errors.NotFound):
                self.containers.pop(name).remove(force=True, v=True)

    def wait_for(self, what: str, holds: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait until *holds* returns a true value; return it.

        A service that ended meanwhile is reported with its log.
        """
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            for name, container in self.containers.items():
                container.reload()
                assert container.status == "running", f"{name} is {container.status}\n{self.logs()}"
            assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s\n{self.logs()}"
            time.sleep(0.1)
        return found
