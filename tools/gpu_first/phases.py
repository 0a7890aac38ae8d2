"""The phases with their time limits, ordered by how many questions each settles per second.

The module decides which programs run, not how they run.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gpu_probes
import gpu_tests

from . import frameworks, machine_facts, pacing_cost, trace
from .context import ROOT, Context
from .steps import PROBE, run_benchmark, run_probe, run_program, run_tests, softgpu

sys.path.append(str(ROOT / "benchmarks"))
CONFORMANCE = "tests/gpu_hook/conformance"
WORKERS = 12
SOFTGPU_SECONDS = 200.0
NEWEST_RISK = "vmm or swappable or linear or contexts or pools or streams or events or graphs"
_IMPORT_AGENT = "import json; from jupyter_aliquot.gpu_hook.agent import main; print(json.dumps(main.__name__))"


@dataclass(frozen=True)
class Phase:
    """One phase.

    ``seconds``: the limit on a GPU; ``retires``: rows of the review that its outcome settles.
    """

    name: str
    seconds: float
    needs: Sequence[str]
    retires: Sequence[str]
    run: Callable[[Context], None]
    is_optional: bool = False  # runs only if it is named

    def limit(self, gpu: str) -> float:
        """Return the time limit.

        A rehearsal shares its processors with other tests, and its measurements do not count: it
        gets more time.
        """
        return max(self.seconds, SOFTGPU_SECONDS) if gpu == "softgpu" else self.seconds


def build(context: Context) -> None:
    """Build the native libraries and the probe, and import the agent.

    If the build fails, the phase uses the libraries that were carried to the machine.
    """
    source = "import gpu_tests; gpu_tests.build()"
    done = context.run([sys.executable, "-c", source], max(5.0, context.left() - 8))
    carried = context.prebuilt / "native" if context.prebuilt else None
    if done.code == 0:
        context.tell(build="built here", seconds=round(done.seconds, 1))
    elif carried and carried.is_dir():
        gpu_tests.link_package(carried)
        context.tell(build="carried", because=done.why)
    else:
        context.complain(
            f"The libraries were not built: {done.why}. Phases through the hook are skipped.", "hook", "native"
        )
        context.has_failed = True
    _build_probe(context)
    imported, value = run_program(context, _IMPORT_AGENT, context.environment(), 20)
    if value is None:
        context.complain(f"The agent cannot be imported: {imported.why}. Its phases are skipped.", "agent")
        context.has_failed = True


def _build_probe(context: Context) -> None:
    PROBE.parent.mkdir(parents=True, exist_ok=True)
    carried = context.prebuilt / "gpu_probe" if context.prebuilt else None
    try:
        gpu_probes.compile_probe(PROBE)
    except (gpu_probes.ProbeError, LookupError) as error:
        compiles = "Tests that compile programs are skipped."
        context.complain(f"{error}. {compiles}", "compiler")
        if carried and carried.exists():
            shutil.copy2(carried, PROBE)
            context.tell(probe="carried", because=str(error))
        else:
            context.complain(f"{error}. The probe is skipped.", "probe")
            context.has_failed = True


def resolver(context: Context) -> None:
    names = gpu_probes.write_names(context.file("names"))
    for found in run_probe(context, "resolver", str(names), seconds=18):
        if found.get("not_exported"):
            context.fail(f"cuGetProcAddress hands out addresses that are no exports: {found['not_exported_names'][:6]}")
        if found.get("not_in_the_table"):
            context.fail(f"the driver exports functions that the table lacks: {found['not_in_the_table_names'][:6]}")


def shim(context: Context) -> None:
    """Run one program of each framework behind the shim, alone and with an agent; the self-check."""
    short = [program for program in frameworks.PROGRAMS if program.is_short]
    env = frameworks.shim_alone(context)
    source = "import ctypes, json; print(json.dumps(ctypes.CDLL('libcuda.so.1').cuInit(0)))"
    soft = {name: value for name, value in softgpu(context).items() if name != "LD_LIBRARY_PATH"}
    done, code = run_program(context, source, {**env, **soft}, 20)
    context.tell(shim_alone_cuInit=code)
    if code != 0:
        context.fail(f"cuInit behind the shim alone: {done.why if code is None else f'answered {code}'}")
    for program in short:
        frameworks.try_program(context, program, env, "behind the shim alone")
    with frameworks.hooked(context) as (hooked, log):
        for program in short:
            frameworks.try_program(context, program, hooked, "under a node agent")
        frameworks.tell_unknown(context, log)
    run_tests(context, "self-check", "tests/gpu/test_driver.py", "-k", "self_check or nvml or nvidia_smi")


def quota(context: Context) -> None:
    run_probe(context, "nvml", str(context.driver().nvml))
    chosen = "share or kill or Alloc-" if context.is_soft else "not self_check and not tells_the_quota"
    run_tests(context, "quota", "tests/gpu/test_driver.py", "-k", chosen)
    if not context.is_soft:
        run_tests(context, "PyTorch's allocators", "tests/gpu/test_pytorch.py", "-k", "retries")


def costs(context: Context) -> None:
    for command in ("free-zero", "contexts", "full", "pointers", "graph", "events", "vmm"):
        run_probe(context, command)


def swap(context: Context) -> None:
    run_tests(context, "swap", "tests/gpu/test_swapping.py", seconds=0 if context.is_soft else 45)
    if context.is_soft:  # the software GPU copies with the CPU: the smoke tests run this benchmark
        return
    few = ("--rounds", "3", "--cycles", "3")
    for threads in (4, 8, 2):
        run_benchmark(
            context, "swap", "--threads", str(threads), *few, label=f"swap with {threads} threads", seconds=15
        )
    run_benchmark(
        context, "swap", "--mib", "32768", "--rounds", "2", "--cycles", "1", label="swap of 32 GiB", seconds=25
    )


def overhead(context: Context) -> None:
    pacing_cost.run(context)
    run_benchmark(context, "hook_gpu", *([] if context.is_soft else ["--rounds", "5"]))


def conformance_bare(context: Context) -> None:
    _run_conformance(context, f"bare and ({NEWEST_RISK})")


def conformance_swapped(context: Context) -> None:
    _run_conformance(
        context, "(swappable or swapped) and (vmm or swappable or copies or graphs) and not bare and not paged"
    )


def _run_conformance(context: Context, chosen: str) -> None:
    """Run the conformance tests; on the software GPU only one of them.

    `make test` runs all of them on the software GPU.
    """
    chosen += " and a_segment_grows" if context.is_soft else ""
    workers = 0 if context.is_soft else WORKERS
    run_tests(context, "conformance", CONFORMANCE, "-k", chosen, workers=workers, seconds=context.left() - 8)


_HOOKED = ("gpu", "native", "hook", "agent")
PHASES = (
    Phase("facts", 15, (), ("7", "19", "22"), machine_facts.run),
    Phase("build", 45, (), ("26",), build),
    Phase("resolver", 20, ("gpu", "probe"), ("2", "4"), resolver),
    Phase("shim", 60, (*_HOOKED, "room"), ("2", "4", "23"), shim),
    Phase("quota", 45, (*_HOOKED, "probe", "room"), ("7", "15"), quota),
    Phase("costs", 45, ("gpu", "probe", "room"), ("1", "3", "5", "9", "10", "11", "19"), costs),
    Phase("swap", 110, (*_HOOKED, "compiler", "room"), ("1", "8", "11", "18"), swap),
    Phase("trace", 40, (*_HOOKED, "compiler", "room"), ("14",), trace.run),
    Phase("overhead", 50, (*_HOOKED, "compiler", "probe", "room"), ("3",), overhead),
    Phase("conformance-bare", 130, ("gpu", "native", "compiler", "room"), ("software GPU",), conformance_bare),
    Phase("conformance-swapped", 60, (*_HOOKED, "compiler", "room"), ("hook",), conformance_swapped),
    Phase("frameworks", 300, (*_HOOKED, "room"), ("hook",), frameworks.run, is_optional=True),
)


def choose(only: Sequence[str] | None) -> tuple[Phase, ...]:
    """Return the phases that were named, in their order, after a build where there is none yet.

    Without names: all but the optional phases.
    """
    if not only:
        return tuple(phase for phase in PHASES if not phase.is_optional)
    is_built = (Path(gpu_tests.FARM) / "jupyter_aliquot" / "native").exists() and PROBE.exists()
    wanted = {*only, *(() if is_built else ("build",))}
    return tuple(phase for phase in PHASES if phase.name in wanted)
