"""The choice of a GPU size as an option of KubeSpawner's profiles.

Values; KubeSpawner draws the page and reads it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from .options_form import CUSTOM_PATTERN, FIELD
from .settings import HubConfigError
from .size_choice import SizeChoice, choice_label
from .spawn import VARIABLE, teams_of

_ONLY_PROFILE = {"display_name": "JupyterLab", "slug": "jupyterlab", "default": True}


def profile_list(choice: SizeChoice, found: Any) -> Callable[[Any], Any]:
    """Return a function that makes the profiles for a spawner, from the profiles that are set.

    ``found`` is a list of profiles, a function of the spawner, or None for one profile of ours. The
    result is a function because each user is offered what their GPU limits allow.
    """

    async def profiles(spawner: Any) -> list[dict[str, Any]]:
        theirs = found(spawner) if callable(found) else found
        if inspect.isawaitable(theirs):
            theirs = await theirs
        option = size_option(choice, spawner.user.name, teams_of(spawner))
        if isinstance(theirs, dict):
            # KubeSpawner sorts such a table by its keys.
            theirs = [theirs[key] for key in sorted(theirs)]
        return with_option(theirs or [_ONLY_PROFILE], option)

    if not callable(found):
        with_option(found.values() if isinstance(found, dict) else found or (), {})
    return profiles


def size_option(choice: SizeChoice, name: str, teams: Iterable[str]) -> dict[str, Any]:
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
        option["unlisted_choice"] = {
            "enabled": True,
            "display_name": "Another size",
            "display_name_in_choices": "Another size",
            "validation_regex": f"^{CUSTOM_PATTERN}$",
            "validation_message": "A size is GPUs[-<n>g][-low], such as 0.25, 2.5, 0.5-8g or 0.25-low",
            "kubespawner_override": {"environment": {VARIABLE: "{value}"}},
        }
    return option


def with_option(profiles: Iterable[dict[str, Any]], option: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the profiles, each with our option beside its own.

    Raises HubConfigError for a profile that has an option of that name already.
    """
    made = []
    for profile in profiles:
        known = profile.get("profile_options", {})
        if FIELD in known:
            raise HubConfigError(
                f"c.KubeSpawner.profile_list: the profile {profile.get('display_name')!r} has an option {FIELD!r} "
                "already, which configure() adds; rename it, or call configure(sizes=())"
            )
        made.append({**profile, "profile_options": {**known, FIELD: option}})
    return made
