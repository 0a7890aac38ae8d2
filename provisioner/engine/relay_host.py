"""Run the relay host in a container of its own, one for each runtime folder.

Relays then depend on no gateway's container. This module starts the relay host if none answers. It
never ends it, because that would end the relays in it.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.errors import APIError

from jupyter_aliquot.gpu_hook.base.daemon import answers
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, prepare_runtime_dir
from jupyter_aliquot.provisioner.containers.plan import LABEL_PREFIX, Pull
from jupyter_aliquot.provisioner.containers.spec import RUNTIME_DIR_LABEL
from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.relay.store.spill_room import SPILL_VARIABLE

from .client import ContainerEngine, inspect_container, refusal
from .start import ask_to_create, last_words

RELAY_HOST_LABEL = f"{LABEL_PREFIX}relay-host"
_ANSWER_SECONDS = 20.0
_LOOK_AGAIN_SECONDS = 0.05
_CONFLICT = 409
_SPILL = "/var/spill/output"
_SPILL_OPTIONS = "rw,nosuid,nodev,noexec,mode=1777,size=2g"


def relay_host_name(runtime: RuntimeDir) -> str:
    """Return the container's name: one for each runtime folder, whichever gateway starts it."""
    return f"aliquot-relay-{hashlib.sha256(os.fsencode(runtime.path)).hexdigest()[:12]}"


def relay_host_body(image: str, runtime: RuntimeDir, user: str) -> dict[str, Any]:
    """Return the body of the engine's "create". Pure.

    ``user`` is the owner of the runtime folder, the gateway's own user.
    """
    folder = str(runtime.path)
    mount = {"Type": "bind", "Source": folder, "Target": folder, "BindOptions": {"Propagation": "rprivate"}}
    return {
        "Image": image,
        "Entrypoint": [],
        "Cmd": ["aliquot", "relay", "--runtime-dir", folder],
        "User": user,
        "WorkingDir": "/",
        "Env": ["HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1", f"{SPILL_VARIABLE}={_SPILL}"],
        "Labels": {RELAY_HOST_LABEL: "1", RUNTIME_DIR_LABEL: folder},
        "HostConfig": {
            "Mounts": [mount],
            # Waiting output has a bound of its own, and no part of the runtime folder.
            "Tmpfs": {"/tmp": "rw,nosuid,nodev,mode=1777", os.path.dirname(_SPILL): _SPILL_OPTIONS},
            # Gateways recognize a living relay by its pid.
            "PidMode": "host",
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            # Root writes to the socket of another user's kernel by the first capability, and names it
            # again by the second.
            "CapAdd": ["DAC_OVERRIDE", "FOWNER"] if user.startswith("0:") else [],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "RestartPolicy": {"Name": "always"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}},
        },
    }


async def ensure_relay_container(engine: ContainerEngine, image: str, runtime: RuntimeDir) -> None:
    """Make sure that a relay host answers. Raises LaunchError, EngineError."""
    if answers(runtime.relay_socket):
        return
    try:
        prepare_runtime_dir(runtime)
    except PathError as error:
        raise LaunchError(str(error)) from error
    await engine.image(image, Pull.MISSING, lambda _: None)
    body = relay_host_body(image, runtime, f"{os.geteuid()}:{os.getegid()}")
    await engine.call(lambda client: _start(client, relay_host_name(runtime), body, runtime.relay_socket))


def _start(client: APIClient, name: str, body: dict[str, Any], socket: Path) -> None:
    """Start the relay host, in a worker thread.

    Another gateway may be starting the same one, or have done so before a reboot.
    """
    try:
        ask_to_create(client, body, name)
    except APIError as error:
        if error.status_code != _CONFLICT and inspect_container(client, name) is None:
            raise LaunchError(
                f"Requested a relay host of {body['Image']}, but the engine refused: {refusal(error)}"
            ) from error
    try:
        client.start(name)
    except APIError as error:
        raise LaunchError(
            f"Requested a relay host of {body['Image']}, but the engine refused: {refusal(error)}"
        ) from error
    deadline = time.monotonic() + _ANSWER_SECONDS
    while not answers(socket):
        if time.monotonic() > deadline:
            found = inspect_container(client, name)
            words = "" if found is None else last_words(client, found).strip()
            raise LaunchError(
                f"Started a relay host in the container {name} of {body['Image']}, but it did not answer "
                f"at {socket} within {_ANSWER_SECONDS:g} s: {words or 'it printed nothing'}. Remove it to "
                "have another"
            )
        time.sleep(_LOOK_AGAIN_SECONDS)
