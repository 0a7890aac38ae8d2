"""The doctor's look at GPU, NVML and hook: a short-lived agent of its own, a process in a kernel's environment.

The user's own agent, where one runs, is asked what acts on compute there, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence

from jupyter_aliquot.gateway.serverapp.ephemeral_stack import Ring, RingError, RingSettings
from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentClientError
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.paths import native_dir
from jupyter_aliquot.gpu_hook.waiting import within
from jupyter_aliquot.provisioner.grants.codec import agent_grant
from jupyter_aliquot.provisioner.launch_spec import LaunchSettings, LaunchSpec, launch_spec
from jupyter_aliquot.provisioner.resources import Bytes

from .runner import FAIL, OK, WARN, Finding

_KERNEL = "doctor"
_SHARE = 10  # hundredths: enough for a context
_CHECK_SECONDS = 20.0
_REPORT_SECONDS = 15.0


def look_at_node() -> Sequence[Finding]:
    """Devices by NVML, and the hook's self-check."""
    return asyncio.run(_look())


async def _look() -> list[Finding]:
    ring = Ring(RingSettings(), has_gateway=False)
    try:
        async with ring, await AgentClient.connect(ring.runtime.path) as agent:
            status = await agent.status()
            users = await _status_of_users_agent() or status
            of_users = [*_actuators(users), *obstacles(users)]
            return [*_devices(status), *_enforcers(status), *of_users, await _self_check(agent)]
    except (RingError, AgentClientError) as error:
        return [Finding("devices", FAIL, f"no node agent could be started: {error}", "the lines above name the cause")]


def _devices(status: NodeStatus) -> list[Finding]:
    if not status.devices:
        remedy = "look at nvidia-smi; or choose the software GPU: --driver softgpu"
        return [Finding("devices", FAIL, f"NVML of driver {status.driver} names no device", remedy)]
    return [
        Finding("devices", OK, f"gpu{d.index}: {d.name}, {Bytes(d.memory_bytes)}, {d.uuid} (by NVML, {status.driver})")
        for d in status.devices
    ]


def _enforcers(status: NodeStatus) -> list[Finding]:
    """Which holds kernels to their memory here, and why the others do not."""
    lines = []
    for enforcer in status.enforcers:
        label = f"{enforcer.name} (experimental)" if enforcer.experimental else enforcer.name
        lines.append(f"{label}: {'in force' if enforcer.in_force else enforcer.reason}")
    return [Finding("enforcer", OK, line) for line in lines]


async def _status_of_users_agent() -> NodeStatus | None:
    """It has the options that kernels get; None where none runs."""
    try:
        async with await AgentClient.connect() as agent:
            return await within(agent.status(), _REPORT_SECONDS)
    except (AgentClientError, asyncio.TimeoutError):
        return None


def _actuators(status: NodeStatus) -> list[Finding]:
    """What acts on kernels' compute here, what to know of it, and why the others do not."""
    findings = []
    for actuator in status.actuators:
        label = f"{actuator.name} (experimental)" if actuator.experimental else actuator.name
        if actuator.warning:
            remedy = f"for programs that are trusted; without: an agent whose --compute-actuators lacks {actuator.name}"
            findings.append(Finding("actuator", WARN, f"{label}: in force: {actuator.warning}", remedy))
        else:
            findings.append(Finding("actuator", OK, f"{label}: {'in force' if actuator.in_force else actuator.reason}"))
    return findings


def obstacles(status: NodeStatus) -> list[Finding]:
    """Warn of what keeps running kernels from being swapped: one line for each reason."""
    reasons = Counter(one.residency.obstacle for one in status.kernels if one.residency and one.residency.obstacle)
    remedy = "install a newer jupyter-aliquot, and restart the kernels; or report the name as an issue"
    return [
        Finding("swap", WARN, f"{count} kernel{'s are' if count > 1 else ' is'} not swappable: {reason}", remedy)
        for reason, count in sorted(reasons.items())
    ]


async def _self_check(agent: AgentClient) -> Finding:
    """What a kernel would find: run the start program in a kernel's environment, around one that does nothing."""
    program = native_dir() / "bin" / "aliquot-kernel-start"
    granted = agent_grant(await agent.reserve(_KERNEL, owner="doctor", hundredths=_SHARE, label="aliquot doctor"))
    # cat lives until we close its input: a kernel, too, outlives its check.
    spec = launch_spec(_KERNEL, ["cat"], os.environ, granted, LaunchSettings(str(program)))
    try:
        interception, absolute_paths, code, said = await _run(spec, agent)
    except (OSError, asyncio.TimeoutError) as error:
        reason = str(error) or f"it did not end within {_CHECK_SECONDS:.0f} s"
        return Finding("self-check", FAIL, f"{program} could not be run: {reason}", "install again: pip install .")
    finally:
        await agent.release(_KERNEL)
    if code == 0 and interception == "holds":
        names = "in a kernel's environment every CUDA and NVML name leads to the hook"
        return Finding("self-check", OK, f"{names}; absolute paths: {absolute_paths}")
    found = f"{interception}; exit status {code}{': ' + said if said else ''}"
    remedy = "something puts another driver before the hook: look at LD_PRELOAD, LD_AUDIT and LD_LIBRARY_PATH"
    return Finding("self-check", FAIL, found, remedy)


async def _run(spec: LaunchSpec, agent: AgentClient) -> tuple[str, str, int, str]:
    """What the check told the agent, in two words, the exit status, and what was printed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *spec.argv, env=dict(spec.env), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    try:
        interception, absolute_paths = await _words_of_check(agent)
        output, _ = await within(process.communicate(b""), _CHECK_SECONDS)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return interception, absolute_paths, process.returncode or 0, output.decode(errors="replace").strip()


async def _words_of_check(agent: AgentClient) -> tuple[str, str]:
    """What the check told the agent of names and of absolute paths; ``unknown`` when it told nothing in time."""
    deadline = asyncio.get_running_loop().time() + _REPORT_SECONDS
    while True:
        kernels = {kernel.kernel_id: kernel for kernel in (await agent.status()).kernels}
        kernel = kernels.get(_KERNEL)
        found = (kernel.interception, kernel.absolute_paths) if kernel else ("unknown", "unknown")
        if found[0] != "unknown" or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(0.02)
