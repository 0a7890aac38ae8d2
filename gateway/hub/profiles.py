"""The choice of a gateway and of a GPU size as options of KubeSpawner's profiles.

Values; KubeSpawner draws the page and reads it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jupyter_aliquot.gateway.sizes.grammar import example_sizes

from .availability import Availabilities
from .gateway_choice import gateway_option
from .gateways import SERVER_FIELD, Gateways
from .options_form import CUSTOM_PATTERN, FIELD
from .settings import HubConfigError
from .size_choice import OfferedSizes, choice_label
from .spawn import VARIABLE, last_options, teams_of

_ONLY_PROFILE = {"display_name": "JupyterLab", "slug": "jupyterlab", "default": True}


def profile_list(gateways: Gateways, available: Availabilities, found: Any) -> Callable[[Any], Any]:
    """Return a function that makes the profiles for a spawner, from the profiles that are set.

    ``found`` is a list of profiles, a function of the spawner, or None for one profile of ours. The
    result is a function because each user is offered what their GPU limits allow, and what is free
    changes.
    """
    sizes = gateways.sizes()
    ours = [*([SERVER_FIELD] if gateways.are_named else []), *([FIELD] if sizes else [])]

    async def options(spawner: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if gateways.are_named:
            last = last_options(spawner).get(SERVER_FIELD)
            made[SERVER_FIELD] = gateway_option(gateways, await available.on_page(spawner), last)
        if sizes is not None:
            made[FIELD] = size_option(sizes, spawner.user.name, teams_of(spawner))
        return made

    async def profiles(spawner: Any) -> list[dict[str, Any]]:
        theirs = found(spawner) if callable(found) else found
        if inspect.isawaitable(theirs):
            theirs = await theirs
        if isinstance(theirs, dict):
            # KubeSpawner sorts such a table by its keys.
            theirs = [theirs[key] for key in sorted(theirs)]
        return with_options(theirs or [_ONLY_PROFILE], await options(spawner))

    if not callable(found):
        with_options(found.values() if isinstance(found, dict) else found or (), dict.fromkeys(ours))
    return profiles


def size_option(choice: OfferedSizes, name: str, teams: Iterable[str]) -> dict[str, Any]:
    """Return the entry for a profile's `profile_options`, for this user."""
    known = list(teams)
    default = choice.default_for(name, known)
    option: dict[str, Any] = {
        "display_name": "GPU for kernels",
        "choices": {
            size: {
                "display_name": choice_label(size),
                "kubespawner_override": {"environment": {VARIABLE: size}},
                **({"default": True} if size == default else {}),
            }
            for size in choice.offered(name, known)
        },
    }
    if choice.has_custom:
        examples = example_sizes(choice.limit_of(name, known))
        option["unlisted_choice"] = {
            "enabled": True,
            "display_name": "Another size",
            "display_name_in_choices": "Another size",
            "validation_regex": f"^{CUSTOM_PATTERN}$",
            "validation_message": f"A size is <gpus>[-<n>g][-low], such as {examples}",
            "kubespawner_override": {"environment": {VARIABLE: "{value}"}},
        }
    return option


def with_options(profiles: Iterable[dict[str, Any]], ours: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the profiles, each with our options beside its own.

    Raises HubConfigError for a profile that has an option of such a name already.
    """
    made = []
    for profile in profiles:
        known = profile.get("profile_options", {})
        if taken := [name for name in ours if name in known]:
            remedy = "rename it, or call configure(sizes=())" if taken == [FIELD] else "rename it"
            raise HubConfigError(
                f"c.KubeSpawner.profile_list: the profile {profile.get('display_name')!r} has an option {taken[0]!r} "
                f"already, which configure() adds; {remedy}"
            )
        made.append({**profile, "profile_options": {**known, **ours}})
    return made
