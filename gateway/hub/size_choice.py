"""The GPU sizes that a user may choose for a server's kernels, and the check of a choice.

Pure; it draws no page.

The gateway has the same grammar and limits when a kernel starts. This check comes before the server
starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps, first_exceeded
from jupyter_aliquot.gateway.sizes.grammar import example_sizes, parse_size, size_label, size_suffix
from jupyter_aliquot.provisioner.errors import SizeNameError
from jupyter_aliquot.provisioner.resources import GpuShare

NO_GPU = "none"
NO_GPU_LABEL = "No GPU"
LONGEST_SIZE = 40  # of a submitted size; the grammar's own longest is shorter


class SizeChoiceError(Exception):
    """A GPU size was refused; the message is for the page and the API."""


@dataclass(frozen=True)
class SizeChoice:
    """The sizes that users can choose.

    ``sizes`` are in the order of the list, in their normal form; `none` is always one of them, the
    first if the setting does not place it.
    """

    sizes: tuple[str, ...]
    default: str
    has_custom: bool
    largest: GpuShare
    caps: GpuCaps

    @classmethod
    def of(cls, sizes: Sequence[str], default: str, has_custom: bool, largest: GpuShare, caps: GpuCaps) -> SizeChoice:
        """Read an administrator's settings. Raises SizeChoiceError."""
        listed = tuple(dict.fromkeys(normal_size(size, largest) for size in sizes))
        if NO_GPU not in listed:
            listed = (NO_GPU, *listed)
        choice = cls(listed, normal_size(default, largest), has_custom, largest, caps)
        if choice.default not in listed:
            raise SizeChoiceError(f"the default {default!r} is not one of {', '.join(listed)}")
        return choice

    def offered(self, name: str, teams: Iterable[str]) -> tuple[str, ...]:
        """Return the listed sizes that this user's limits allow."""
        known = tuple(teams)
        return tuple(size for size in self.sizes if not self._refusal(size, name, known))

    def default_for(self, name: str, teams: Iterable[str]) -> str:
        """Return the default size, or no GPU where the default exceeds this user's limits."""
        return self.default if self.default in self.offered(name, teams) else NO_GPU

    def limit_of(self, name: str, teams: Iterable[str]) -> GpuShare:
        """Return the largest share that this user may request for one kernel."""
        own = self.caps.of_user(name)
        limits = [self.largest, *([] if own is None else [own])]
        return min([*limits, *(self.caps.teams[team] for team in self.caps.teams_of(teams))])

    def check(self, asked: object, name: str, teams: Iterable[str]) -> str:
        """Return the size in its normal form, for `KERNEL_GPU` of the user's server.

        Raises SizeChoiceError.
        """
        if asked is None or asked == "":
            return self.default_for(name, teams)
        if not isinstance(asked, str) or len(asked) > LONGEST_SIZE:
            advice = f"such as {example_sizes(self.largest)}" if self.has_custom else f"of {', '.join(self.sizes)}"
            raise SizeChoiceError(f"Requested {str(asked)[:LONGEST_SIZE]!r}, which is not a GPU size. Use one {advice}")
        try:
            size = normal_size(asked.strip(), self.largest)
        except SizeChoiceError:
            if self.has_custom:
                raise
            size = asked.strip()
        if size not in self.sizes and not self.has_custom:
            raise SizeChoiceError(
                f"Requested the GPU size {size}, which this Hub does not offer. Use one of {', '.join(self.sizes)}"
            )
        if refusal := self._refusal(size, name, tuple(teams)):
            raise SizeChoiceError(refusal)
        return size

    def _refusal(self, size: str, name: str, teams: Sequence[str]) -> str:
        if size == NO_GPU:
            return ""
        asked = parse_size(size).gpus
        use = first_exceeded(self.caps, (), name, teams, asked.hundredths)
        if use is None:
            return ""
        whose = f"the team {use.team} may have {use.limit} together" if use.team else f"{name} may have {use.limit}"
        return f"Requested {asked} GPU, but {whose}. Choose a smaller size, or no GPU"


@dataclass(frozen=True)
class OfferedSizes:
    """The sizes on a page for all gateways, whose limits may differ.

    The page offers what one gateway allows; the chosen gateway's own SizeChoice has the last word.
    """

    choices: tuple[SizeChoice, ...]

    @property
    def has_custom(self) -> bool:
        """Return whether the page has a field for another size."""
        return self.choices[0].has_custom

    def offered(self, name: str, teams: Iterable[str]) -> tuple[str, ...]:
        """Return the listed sizes that this user's limits allow at one of the gateways."""
        known = tuple(teams)
        allowed = {size for choice in self.choices for size in choice.offered(name, known)}
        return tuple(size for size in self.choices[0].sizes if size in allowed)

    def default_for(self, name: str, teams: Iterable[str]) -> str:
        """Return the default size, or no GPU where no gateway allows this user the default."""
        default = self.choices[0].default
        return default if default in self.offered(name, teams) else NO_GPU

    def limit_of(self, name: str, teams: Iterable[str]) -> GpuShare:
        """Return the largest share that this user may request for one kernel anywhere."""
        known = tuple(teams)
        return max(choice.limit_of(name, known) for choice in self.choices)

    def last_or_default(self, asked: object, name: str, teams: Iterable[str]) -> str:
        """Return the last choice where a gateway still allows it, else the default."""
        known = tuple(teams)
        for choice in self.choices:
            with contextlib.suppress(SizeChoiceError):
                return choice.check(asked, name, known)
        return self.default_for(name, known)


def normal_size(size: str, largest: GpuShare | None = None) -> str:
    """Return a size in its normal form: ``0.50-LOW`` → ``0.5-low``.

    `none` stays. Raises SizeChoiceError.
    """
    if size.lower() == NO_GPU:
        return NO_GPU
    try:
        return size_suffix(parse_size(size, largest)).removeprefix("gpu-")
    except SizeNameError as error:
        raise SizeChoiceError(f"{error}, or {NO_GPU!r} for no GPU") from None


def choice_label(size: str) -> str:
    """Return the label of a size: ``0.25 GPU · 8 GiB · low``."""
    return NO_GPU_LABEL if size == NO_GPU else size_label(parse_size(size))
