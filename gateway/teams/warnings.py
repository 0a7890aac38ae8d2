"""Warnings about a quota file that is in force: sums beyond the cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_aliquot.provisioner.resources import GpuShare

from .values import ANY_MODEL, Quotas, Team


def total_nominal(quotas: Quotas, model: str) -> int:
    """Return what all teams are owed together, in hundredths.

    A team is owed its own nominal quota beside those of the teams below it.
    """
    return sum(team.nominal.get(model, 0) for team in quotas.teams.values())


def quota_warnings(quotas: Quotas, gpus: Mapping[str, int]) -> tuple[str, ...]:
    """Return a sentence for each model of which teams are owed more than there is.

    *gpus* are hundredths of devices by model; without any, the node is not known yet.
    """
    if not gpus:
        return ()
    found = []
    for model in quotas.models:
        owed, there = total_nominal(quotas, model), gpus.get(model, 0)
        if owed > there:
            kind = f"{model} GPUs" if model != ANY_MODEL else "GPUs"
            found.append(
                f"The nominal quotas come to {GpuShare(owed)} {kind} ({_summands(quotas, model)}), and there are "
                f"{GpuShare(there)}. Not every team can have its quota at once"
            )
    return tuple(found)


def _summands(quotas: Quotas, model: str) -> str:
    def shown(team: Team) -> str:
        return f"{team.name} {GpuShare(team.nominal.get(model, 0))}"

    return ", ".join(shown(team) for team in quotas.teams.values() if team.nominal.get(model, 0))
