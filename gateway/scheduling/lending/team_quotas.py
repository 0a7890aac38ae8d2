"""Teams' quotas on the ledger: which team a kernel counts for, and what that team may still take.

Pure. The arithmetic is in ``teams.tree``; this module counts kernels and devices for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from jupyter_aliquot.gateway.planning.colocation import Neighbor
from jupyter_aliquot.gateway.scheduling.capacity import Capacity, Held
from jupyter_aliquot.gateway.scheduling.ledger import Holding, LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.nodes.kept import KeptTeams
from jupyter_aliquot.gateway.sizes.wish import is_of_model
from jupyter_aliquot.gateway.teams.tree import ROOT, TeamTree, Use
from jupyter_aliquot.gateway.teams.values import ANY_MODEL, Quotas
from jupyter_aliquot.gpu_hook.placement.placement import Part, Refusal
from jupyter_aliquot.provisioner.errors import LimitError
from jupyter_aliquot.provisioner.resources import GpuShare, Request, WorkloadClass


@dataclass(frozen=True)
class Claimant:
    """The side of a request that quotas look at: its owner, its size, and what it holds already.

    ``returns_to`` are the parts of an evicted kernel, which it gets again or none. ``models`` are those that it takes,
    the preferred one first; empty: any. ``is_together``: its devices are to be in one NVLink or PCIe domain.
    ``newcomer`` is its load.
    """

    owner: str
    groups: frozenset[str]
    request: Request
    held: Held | None = None
    returns_to: Held | None = None
    models: tuple[str, ...] = ()
    is_together: bool = False
    newcomer: Neighbor | None = None

    @property
    def more(self) -> int:
        """The hundredths beyond those that it holds."""
        held = sum(part.hundredths for part in self.held.parts) if self.held else 0
        return max(0, self.request.gpus.hundredths - held)

    @property
    def devices(self) -> Held | None:
        """The parts on the devices that it keeps; None for a request that takes any."""
        return self.held or self.returns_to

    def place(self, capacity: Capacity) -> tuple[Part, ...] | Refusal:
        """Return its parts, or the reason why it does not fit."""
        if self.returns_to is None:
            asked = (self.request, self.held, self.models)
            return capacity.place(*asked, is_together=self.is_together, newcomer=self.newcomer)
        return capacity.place_back(self.request, self.returns_to.parts)


@dataclass(frozen=True)
class Shortage:
    """A team's quota that lacks for a request: of one model, in hundredths.

    ``available`` is what the team may take now; ``quota`` what it is owed, ``held`` what it holds.
    ``ahead`` is what it could take as well, were it not set aside for requests ahead. It ``is_limited``
    where the team may not take so much however little others hold; it ``is_over`` where the request is
    beyond its quota.
    """

    team: str
    model: str
    available: int
    quota: int
    held: int
    ahead: int = 0
    is_limited: bool = False
    is_over: bool = False

    @property
    def over_clause(self) -> str:
        """A clause about the quota of a team for whose request no device has room either."""
        if not self.is_limited:
            return self._held
        return f"{self._held}, and may take {f'only {GpuShare(self.available)}' if self.available > 0 else 'no'} more"

    @property
    def clause(self) -> str:
        """A clause: the GPUs that the team holds, those set aside for requests ahead, and those left for it."""
        ahead = f", {GpuShare(self.ahead)} is set aside for requests ahead" if self.ahead > 0 else ""
        left = f"only {GpuShare(self.available)}{self._kind}" if self.available > 0 else f"no{self._kind}"
        return f"{self._held}{ahead}, and {left} GPU is free for it to take"

    @property
    def _kind(self) -> str:
        return "" if self.model == ANY_MODEL else f" {self.model}"

    @property
    def _held(self) -> str:
        quota = f"{GpuShare(self.quota)}{self._kind} GPU"
        return f"the team {self.team} holds {GpuShare(self.held)} of its quota of {quota}"


@dataclass(frozen=True)
class TeamQuotas:
    """The tree of teams as a plan has it so far, and the model and the name of each device."""

    tree: TeamTree
    models: dict[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    # Models and devices that were found among all; quotas that differ in the tree alone share them.
    _known: dict[object, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    _others: dict[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(snapshot: LedgerSnapshot) -> TeamQuotas | None:
        """Return the quotas with all that the ledger's kernels hold; None without a quota file."""
        kept = _kept(snapshot)
        if kept is None:
            return None
        found = kept.unused._for(snapshot)
        own, known = found.tree.own, kept.uses(len(snapshot.holdings))
        for kernel_id, holding in snapshot.holdings.items():
            before = known.get(kernel_id)
            if before is None or before[0] is not holding:
                uses = found.uses_of(holding)
                before = known[kernel_id] = (holding, [((use.team, use.model), use.hundredths) for use in uses])
            for key, hundredths in before[1]:
                own[key] = own.get(key, 0) + hundredths
        for holding in snapshot.ending.values():
            for use in found.uses_of(holding):
                found.tree.add(use.team, use.model, use.hundredths)
        return found

    @staticmethod
    def unused(snapshot: LedgerSnapshot) -> TeamQuotas | None:
        """Return the quotas as if no kernel held anything; None without a quota file."""
        kept = _kept(snapshot)
        return None if kept is None else kept.unused._for(snapshot)

    def _for(self, snapshot: LedgerSnapshot) -> TeamQuotas:
        """Return a copy to which a plan of the snapshot may add."""
        tree = replace(self.tree, own={}, _used={}, usage=snapshot.past.usage)
        return replace(self, tree=tree, _known=dict(self._known))

    @property
    def quotas(self) -> Quotas:
        return self.tree.quotas

    @property
    def shown_models(self) -> tuple[str, ...]:
        """The models that a file names and that the node has, each once."""
        if "shown" not in self._known:
            self._known["shown"] = tuple(dict.fromkeys((*self.quotas.models, *self.models.values())))
        return self._known["shown"]

    def team_of(self, owner: str, groups: Iterable[str]) -> str:
        """Return the team's name; ROOT for a user of no team."""
        team = self.quotas.team_of(owner, groups)
        return ROOT if team is None else team.name

    def overcommit_of(self, claimant: Claimant) -> float:
        """Return the most times its memory that the claimant's team lets a device of it be reserved."""
        return self.quotas.overcommit_of(claimant.owner, claimant.groups)

    def uses_of(self, holding: Holding) -> list[Use]:
        """Return what a grant counts for its team: nothing while it is evicted."""
        if holding.is_evicted:
            return []
        team = self.team_of(holding.grant.owner, holding.requester.teams)
        quotas = holding.grant.quotas
        return [Use(team, self._model(quota.uuid), quota.share.hundredths) for quota in quotas]

    def with_parts(self, claimant: Claimant, parts: Iterable[Part]) -> TeamQuotas:
        """Return the quotas once the claimant holds these parts, and no others."""
        team = self.team_of(claimant.owner, claimant.groups)
        before = () if claimant.held is None else claimant.held.parts
        tree = self.tree.plus(self._uses(team, before), -1).plus(self._uses(team, parts))
        return replace(self, tree=tree)

    def without(self, holdings: Iterable[Holding]) -> TeamQuotas:
        """Return the quotas once these grants have ended."""
        return replace(self, tree=self.tree.plus([use for one in holdings for use in self.uses_of(one)], -1))

    def with_grant(self, holding: Holding) -> TeamQuotas:
        """Return the quotas once this grant holds its parts again."""
        return replace(self, tree=self.tree.plus(self.uses_of(holding)))

    def with_gpus(self, model: str, more: int) -> TeamQuotas:
        """Return the quotas as if there were so many hundredths more of a model."""
        return replace(self, tree=self.tree.with_gpus(model, more))

    def may_take(self, claimant: Claimant, uuids: Iterable[str]) -> bool:
        """Return whether the claimant's team may take what it needs of the models of these devices."""
        return {self._model(uuid) for uuid in uuids}.issubset(self.allowed(claimant))

    def drafted(self) -> TeamQuotas:
        """Return a copy in which its owner may ``hold_back`` until others see it."""
        return replace(self, tree=self.tree.draft())

    def hold_back(self, team: str, models: Sequence[str], more: int) -> None:
        """Set so much aside for a team: no later request takes what it waits for. Only for the owner of a draft."""
        if len(models) == 1:
            model = models[0]
        else:
            model = max(models, key=lambda one: self.tree.available(team, one), default=ANY_MODEL)
        self.tree.add(team, model, more)

    def refusal(self, claimant: Claimant) -> LimitError | None:
        """Return the error of a request that the team's quota will never allow; None if it may."""
        team = self.quotas.team_of(claimant.owner, claimant.groups)
        asked = f"Requested {claimant.request.gpus} GPU"
        if not claimant.more and not self._is_raised(claimant):
            return None
        if team is None:
            return LimitError(
                f"{asked}, but no team of the quota file has the user {claimant.owner}. Ask an administrator to add "
                "the user, or a group of the user, to a team"
            )
        most = max((self.most(claimant, model) for model in self.models_for(claimant)), default=0)
        if claimant.request.gpus.hundredths <= most or not self.models:
            return None
        return LimitError(
            f"{asked}, but the team {team.name} may hold {GpuShare(max(0, most))} at most, with all that it may borrow"
            f"{self._low_hint(team.borrowers, claimant)}. Choose a smaller size"
        )

    def most(self, claimant: Claimant, model: str) -> int:
        """Return the most of a model that a kernel of this team and priority could ever have."""
        team = self.team_of(claimant.owner, claimant.groups)
        if self._may_borrow(claimant):
            return self.tree.most(team, model)
        return self.tree.quota(team, model)

    def available(self, claimant: Claimant, model: str) -> int:
        """Return how many hundredths of a model the claimant may take now."""
        team = self.team_of(claimant.owner, claimant.groups)
        if team == ROOT:
            return 0
        available = self.tree.available(team, model)
        return available if self._may_borrow(claimant) else min(available, self.tree.within_quota(team, model))

    def models_for(self, claimant: Claimant) -> list[str]:
        """Return the models to try: first those of which the team is owed enough."""
        if claimant.devices is not None:
            return list(dict.fromkeys(self._model(part.uuid) for part in claimant.devices.parts))
        models = self._models_wished(claimant.models)
        if len(models) < 2:
            return list(models)
        team = self.team_of(claimant.owner, claimant.groups)
        order = {model: place for place, model in enumerate(self.shown_models)}
        return sorted(models, key=lambda one: (self.tree.within_quota(team, one) < claimant.more, order[one]))

    def _models_wished(self, wished: tuple[str, ...]) -> tuple[str, ...]:
        """Return the models of the devices that a request takes, each once: quotas name their own."""
        key = ("wished", wished)
        if key not in self._known:
            found = (
                model
                for uuid, model in self.models.items()
                if not wished or any(is_of_model(self.names.get(uuid, ""), one) for one in wished)
            )
            self._known[key] = tuple(dict.fromkeys(found))
        return self._known[key]

    def place(self, capacity: Capacity, claimant: Claimant) -> tuple[Part, ...] | Refusal | Shortage:
        """Return the parts for a request within its team's quota, or what it lacks.

        It lacks quota where its team may not take so much of any model, whatever is free.
        """
        refusal: Refusal | None = None
        capacity = capacity.under(self.overcommit_of(claimant))
        models = self.allowed(claimant)
        of_any = replace(claimant, models=()) if claimant.models else claimant
        for wished, model in product(claimant.models or ("",), models):
            placed = of_any.place(capacity.of_model(wished).without(self._devices_of_others(model)))
            if not isinstance(placed, Refusal):
                return placed
            refusal = refusal or placed
        return refusal or self.shortage(claimant) or claimant.place(capacity)

    def allowed(self, claimant: Claimant) -> list[str]:
        """Return the models of which the team may take what the request needs, in the order to try them."""
        return [model for model in self.models_for(claimant) if not self._lacks(claimant, model)]

    def names_of_others(self, claimant: Claimant, models: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the devices that a request takes but for these models."""
        names = (
            self.names[uuid]
            for uuid, model in self.models.items()
            if model not in models and model in self._models_wished(claimant.models)
        )
        return tuple(dict.fromkeys(names))

    def _devices_of_others(self, model: str) -> frozenset[str]:
        """Return the devices of all models but this one."""
        if model not in self._others:
            self._others[model] = frozenset(uuid for uuid, one in self.models.items() if one != model)
        return self._others[model]

    def shortage(self, claimant: Claimant) -> Shortage | None:
        """Return the lacking quota of a request, whether its device has room or not; None if none lacks."""
        models = self.models_for(claimant)
        if not all(self._lacks(claimant, model) for model in models):
            return None
        return self.shortage_of(claimant, models[0]) if models else None

    def shortage_of(self, claimant: Claimant, model: str) -> Shortage:
        """Return what the team holds and may take of a model, for a request that lacks quota of it."""
        team = self.team_of(claimant.owner, claimant.groups)
        quota, held = self.tree.quota(team, model), self.tree.used(team, model)
        return Shortage(
            team,
            model,
            max(0, self.available(claimant, model)),
            quota,
            held,
            is_limited=self.most(claimant, model) - held < claimant.more,
            is_over=held + claimant.more > quota,
        )

    def _lacks(self, claimant: Claimant, model: str) -> bool:
        """Return whether the team may not take so much of this model now.

        An evicted kernel that its team may hold no more, since the file changed, is not held up by
        that: it returns to free capacity, as it would have kept its parts had it not left.
        """
        team, more, quotas = self.team_of(claimant.owner, claimant.groups), claimant.more, self
        if claimant.returns_to is not None and (team == ROOT or self.most(claimant, model) < more):
            return False
        if claimant.held is not None and self._is_raised(claimant):
            more = claimant.request.gpus.hundredths
            quotas = replace(self, tree=self.tree.plus(self._uses(team, claimant.held.parts), -1))
        return more > 0 and quotas.available(claimant, model) < more

    def _is_raised(self, claimant: Claimant) -> bool:
        """Return whether a kernel of low priority, which alone may borrow, is to have another one."""
        held = claimant.held
        is_low = held is not None and held.workload_class is WorkloadClass.OPPORTUNISTIC
        return is_low and not self._may_borrow(claimant)

    def _may_borrow(self, claimant: Claimant) -> bool:
        team = self.quotas.team_of(claimant.owner, claimant.groups)
        is_low = claimant.request.workload_class is WorkloadClass.OPPORTUNISTIC
        return team is not None and (team.borrowers == "any" or is_low)

    def _low_hint(self, borrowers: str, claimant: Claimant) -> str:
        if borrowers == "low" and not self._may_borrow(claimant):
            return ", which low-priority kernels alone may"
        return ""

    def _uses(self, team: str, parts: Iterable[Part]) -> list[Use]:
        return [Use(team, self._model(part.uuid), part.hundredths) for part in parts]

    def _model(self, uuid: str) -> str:
        return self.models.get(uuid, self.quotas.models[0])


def _kept(snapshot: LedgerSnapshot) -> KeptTeams | None:
    """Return the findings of the snapshot's quota file for its devices; None without a file."""
    quotas = snapshot.quotas
    if quotas is None:
        return None

    def find() -> TeamQuotas:
        models, names, gpus = _devices_of(snapshot, quotas)
        found = TeamQuotas(TeamTree(quotas, gpus), models, names)
        found._known.update({"shown": found.shown_models, ("wished", ()): found._models_wished(())})
        return found

    # The same devices object while nodes and their devices are the same.
    return snapshot.kept.teams(quotas, snapshot.capacity().devices, find)


def _devices_of(snapshot: LedgerSnapshot, quotas: Quotas) -> tuple[dict[str, str], dict[str, str], dict[str, int]]:
    """Return the model and the name of each device, and the GPUs of each model, in hundredths.

    An unknown node counts: a team is owed what the cluster has, not what answers now.
    """
    models, names, gpus = dict[str, str](), dict[str, str](), dict[str, int]()
    by_name: dict[str, str] = {}
    for node in snapshot.nodes:
        for device in node.devices:
            model = by_name.get(device.name)
            if model is None:
                model = by_name[device.name] = quotas.model_of(device.name)
            models[device.uuid], names[device.uuid] = model, device.name
            if not device.is_lost:
                gpus[model] = gpus.get(model, 0) + node.hundredths_of(device.uuid)
    return models, names, gpus
