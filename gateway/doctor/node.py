"""Checks of GPU, NVML and hook, with a short-lived agent and a process in a kernel's environment.

The user's own agent, where one runs, is asked only for its actuators, its kernels, and the driver's settings.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence

from jupyter_aliquot.gateway.serverapp.ephemeral_stack import EphemeralStack, StackError, StackSettings
from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentClientError
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.paths import native_dir
from jupyter_aliquot.gpu_hook.waiting import within
from jupyter_aliquot.provisioner.grants.codec import agent_grant
from jupyter_aliquot.provisioner.launch_spec import LaunchSettings, LaunchSpec, launch_spec
from jupyter_aliquot.provisioner.resources import Bytes

from .nvidia import driver_modes
from .runner import FAIL, OK, WARN, Finding

_KERNEL = "doctor"
_SHARE = 10  # hundredths: enough for a context
_CHECK_SECONDS = 20.0
_REPORT_SECONDS = 15.0


def check_node() -> Sequence[Finding]:
    """Check the devices by NVML, and run the hook's self-check."""
    return asyncio.run(_look())


async def _look() -> list[Finding]:
    stack = EphemeralStack(StackSettings(), has_gateway=False)
    try:
        async with stack, await AgentClient.connect(stack.runtime.path) as agent:
            status = await agent.status()
            users = await _status_of_users_agent() or status
            of_users = [*_actuators(users), *overcommit(users), *obstacles(users)]
            modes = driver_modes(users.devices)
            return [*_devices(status), *modes, *_enforcers(status), *of_users, await _self_check(agent)]
    except (StackError, AgentClientError) as error:
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
    """Name the enforcer of memory limits in force here, and why the others are not."""
    lines = []
    for enforcer in status.enforcers:
        label = f"{enforcer.name} (experimental)" if enforcer.experimental else enforcer.name
        lines.append(f"{label}: {'in force' if enforcer.in_force else enforcer.reason}")
    return [Finding("enforcer", OK, line) for line in lines]


async def _status_of_users_agent() -> NodeStatus | None:
    """Return the status of the user's agent, which has the options that kernels get.

    None if none runs.
    """
    try:
        async with await AgentClient.connect() as agent:
            return await within(agent.status(), _REPORT_SECONDS)
    except (AgentClientError, asyncio.TimeoutError):
        return None


def _actuators(status: NodeStatus) -> list[Finding]:
    """Return findings on the actuators of GPU time in force here, with their warnings.

    The findings also say why the other actuators are not in force.
    """
    findings = []
    for actuator in status.actuators:
        label = f"{actuator.name} (experimental)" if actuator.experimental else actuator.name
        if actuator.warning:
            remedy = f"for programs that are trusted; without: an agent whose --compute-actuators lacks {actuator.name}"
            findings.append(Finding("actuator", WARN, f"{label}: in force: {actuator.warning}", remedy))
        else:
            findings.append(Finding("actuator", OK, f"{label}: {'in force' if actuator.in_force else actuator.reason}"))
    return findings


def overcommit(status: NodeStatus) -> list[Finding]:
    """Tell how far each device is overcommitted, and warn where it is not, or host memory lacks."""
    findings = []
    for device in status.devices:
        ratio = status.oversubscription if device.overcommit is None else device.overcommit
        limit = f"; no more, for {device.overcommit_reason}" if device.overcommit_reason else ""
        if ratio > 1:
            told = f"gpu{device.index}: kernels may reserve up to {ratio:g} times its memory, and take turns{limit}"
            findings.append(Finding("overcommit", OK, told))
        elif not limit:
            findings.append(Finding("overcommit", OK, f"gpu{device.index}: off, as asked for (--overcommit 1)"))
        else:
            remedy = (
                "more host memory for copies (--swap-memory), or a smaller software GPU; --overcommit 1 asks for this"
            )
            told = f"gpu{device.index}: not overcommitted: {device.overcommit_reason}"
            findings.append(Finding("overcommit", WARN, told, remedy))
    if status.host_memory_problem:
        remedy = "end other programs, or lower --swap-memory"
        findings.append(Finding("overcommit", WARN, status.host_memory_problem, remedy))
    return findings


def obstacles(status: NodeStatus) -> list[Finding]:
    """Warn of each reason for which running kernels cannot be swapped out."""
    reasons = Counter(one.residency.obstacle for one in status.kernels if one.residency and one.residency.obstacle)
    remedy = "install a newer jupyter-aliquot, and restart the kernels; or report the name as an issue"
    return [
        Finding("swap", WARN, f"{count} kernel{'s are' if count > 1 else ' is'} not swappable: {reason}", remedy)
        for reason, count in sorted(reasons.items())
    ]


async def _self_check(agent: AgentClient) -> Finding:
    """Run the start program in a kernel's environment, around a program that does nothing."""
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
    """Run the check.

    Returns its two results, as the agent has them, the exit status, and the output.
    """
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
    """Return the check's results for names and for absolute paths; ``unknown`` for none in time."""
    deadline = asyncio.get_running_loop().time() + _REPORT_SECONDS
    while True:
        kernels = {kernel.kernel_id: kernel for kernel in (await agent.status()).kernels}
        kernel = kernels.get(_KERNEL)
        found = (kernel.interception, kernel.absolute_paths) if kernel else ("unknown", "unknown")
        if found[0] != "unknown" or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(0.02)
