"""Controllers of compute shares against each other, on the plant: a simulated GPU, in simulated time.

So far one pair at a time: ``benchmarks/compute.py resnet50.idle gpt2 --controller none --seconds 10``.
"""

from __future__ import annotations

import argparse
import importlib
import statistics

from aliquot.gpu_hook.agent.compute.views import Controller
from compute.opportunistic import OPPORTUNISTIC
from compute.plant import OnlyMeasured, Plant, Process
from compute.production import PRODUCTION
from compute.programs import SECOND


def percentile(values: list[int], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def controller_named(name: str) -> Controller:
    """``none``, or module:class to be called without arguments."""
    if name == "none":
        return OnlyMeasured()
    module, _, kind = name.partition(":")
    made: Controller = getattr(importlib.import_module(module), kind)()
    return made


def try_pair(production: str, opportunistic: str, controller: str, seconds: int, seed: int) -> None:
    one = Process(PRODUCTION[production], is_production=True, hundredths=75)
    other = Process(OPPORTUNISTIC[opportunistic], hundredths=25)
    horizon, warm = seconds * SECOND, min(2, seconds // 2) * SECOND
    solo = Plant([one], OnlyMeasured(), horizon, seed).run()
    alone = Plant([other], OnlyMeasured(), horizon, seed).run()
    outcome = Plant([one, other], controller_named(controller), horizon, seed, keeps_verdicts=True).run()
    before, after = solo.steps_between(0, warm, horizon), outcome.steps_between(0, warm, horizon)
    window = horizon - warm
    idle = window - solo.own_between(0, warm, horizon)
    harvest = outcome.own_between(1, warm, horizon)
    print(f"{production} beside {opportunistic}, {controller}: {len(before)} steps alone, {len(after)} beside")
    for share in (0.5, 0.99):
        alone_ms, beside_ms = percentile(before, share) / 1e6, percentile(after, share) / 1e6
        print(f"  p{share * 100:g}: {alone_ms:.2f} → {beside_ms:.2f} ms, {100 * (beside_ms / alone_ms - 1):+.1f} %")
    print(f"  idle {100 * idle / window:.1f} % of the time; harvest {100 * harvest / max(1, idle):.1f} % of idle;")
    print(f"  alone the other takes {100 * alone.own_between(0, warm, horizon) / window:.1f} %")
    print(f"  mean step {statistics.mean(before) / 1e6:.2f} → {statistics.mean(after) / 1e6:.2f} ms")
    for now, verdict in outcome.verdicts[-3:]:
        print(f"  {now / 1e9:.3f} s: {verdict.orders.get(1)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("production", choices=sorted(PRODUCTION))
    parser.add_argument("opportunistic", choices=sorted(OPPORTUNISTIC))
    parser.add_argument("--controller", default="none")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try_pair(options.production, options.opportunistic, options.controller, options.seconds, options.seed)


if __name__ == "__main__":
    main()
