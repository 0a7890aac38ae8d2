"""The hooks that the Hub calls when a server starts: the form, its options, and the checked size.

An administrator's own form and hooks stay: they run first, and these add to their result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tornado.web import HTTPError

from jupyter_aliquot.gateway.base.jupyter_private import apply_options_table, validated_options_from_form

from .accounts import check_spawner
from .availability import Availabilities
from .gateway_choice import GatewayAwayError, GatewayChoiceError, choose, gateway_form, preselected, read_server
from .gateways import SERVER_FIELD, Gateway, Gateways
from .options_form import FIELD, read_form, rest_of, size_form
from .settings import HubConfigError
from .size_choice import OfferedSizes, SizeChoice, SizeChoiceError

# Of the user's server, whose gateway mode sends it with each kernel request.
VARIABLE = "KERNEL_GPU"
# KubeSpawner's name for the text that is typed in place of a listed choice.
UNLISTED = f"{FIELD}--unlisted-choice"


def teams_of(spawner: Any) -> list[str]:
    """The Hub's groups of the server's user."""
    return sorted(group.name for group in spawner.user.groups)


def asked_size(options: Mapping[str, Any]) -> Any:
    """Return the requested size, unchecked, from a form, KubeSpawner's profile, or the API."""
    return options.get(UNLISTED) or options.get(FIELD)


def options_form(gateways: Gateways, available: Availabilities) -> Callable[[Any], Any]:
    """Return the function that extends the form that is set by our gateways and sizes.

    That form is a text or a function of the spawner; if none is set, it is the spawner class's own.
    """

    def make(found: Any) -> Any:
        async def form(spawner: Any) -> str:
            theirs = spawner.trait_defaults("options_form") if found is None else found
            if callable(theirs):
                theirs = theirs(spawner)
            if inspect.isawaitable(theirs):
                theirs = await theirs
            return f"{theirs or ''}{await _gateway_form(gateways, available, spawner)}{_size_form(gateways, spawner)}"

        return form

    return make


def options_from_form(gateways: Gateways) -> Callable[[Any], Any]:
    """Return the function that extends the reader of forms that is set.

    The Hub passes the spawner with a form, and none with a query.
    """

    def make(found: Any) -> Any:
        def from_form(form: dict[str, Any], spawner: Any = None) -> Any:
            theirs = found
            if theirs in (None, "simple", "passthrough") and spawner is not None:
                theirs = validated_options_from_form(spawner, _Proposal(theirs)) if theirs else None
                theirs = theirs or spawner.trait_defaults("options_from_form")
            rest: Any = rest_of(form, (SERVER_FIELD,) if gateways.are_named else ())
            if callable(theirs):
                has_spawner = "spawner" in inspect.signature(theirs).parameters
                rest = theirs(rest, spawner=spawner) if has_spawner else theirs(rest)
            try:
                read = {FIELD: read_form(form), SERVER_FIELD: read_server(form) if gateways.are_named else None}
            except (SizeChoiceError, GatewayChoiceError) as error:
                raise _refusal(400, str(error)) from None
            return _joined(rest, {name: value for name, value in read.items() if value is not None})

        return from_form

    return make


def apply_user_options(
    gateways: Gateways, available: Availabilities, decided_for: str | None = None
) -> Callable[[Any], Any]:
    """Return the function that extends the application of options that is set.

    That is a function, or the Hub's table of options and attributes. *decided_for* is the spawner
    that decided whose accounts kernels have; None where it did not.
    """
    offered = gateways.sizes()
    our_options = (FIELD, SERVER_FIELD) if gateways.are_named else (FIELD,)

    def make(found: Any) -> Any:
        async def apply(spawner: Any, options: dict[str, Any]) -> None:
            _check_environment(spawner)
            if decided_for is not None:
                _check_class(spawner, decided_for)
            gateway = await _chosen(gateways, available, spawner, options)
            if gateway.sizes is not None and offered is not None:
                _set_size(gateway.sizes, offered, spawner, options)
            rest = {name: value for name, value in options.items() if name not in our_options}
            if callable(found):
                done = found(spawner, rest)
                if inspect.isawaitable(done):
                    await done
            elif found:
                # The Hub reads its table from the attribute.
                spawner.apply_user_options, ours = found, spawner.apply_user_options
                try:
                    apply_options_table(spawner, rest)
                finally:
                    spawner.apply_user_options = ours

        return apply

    return make


class _Proposal:
    """The proposal that traitlets passes to a validator."""

    def __init__(self, value: Any) -> None:
        self.value = value


async def _gateway_form(gateways: Gateways, available: Availabilities, spawner: Any) -> str:
    if not gateways.are_named:
        return ""
    answers = await available.on_page(spawner)
    return gateway_form(gateways, answers, preselected(gateways, answers, last_options(spawner).get(SERVER_FIELD)))


async def _chosen(gateways: Gateways, available: Availabilities, spawner: Any, options: dict[str, Any]) -> Gateway:
    """Return the gateway of this start, and keep a choice in the options that the Hub stores."""
    if not gateways.are_named:
        return gateways.each[0]
    asked = options.get(SERVER_FIELD)
    if gateways.find(asked) is None and _takes_stored_options(spawner):
        asked = None
    try:
        gateway = await choose(gateways, available, spawner, asked)
    except GatewayChoiceError as error:
        # Not 5xx: the Hub ends after a number of those (consecutive_failure_limit).
        raise _refusal(409 if isinstance(error, GatewayAwayError) else 400, str(error)) from None
    if (stored := getattr(spawner, "orm_spawner", None)) is not None:
        # Written before the table changes: the database's session compares with that very table.
        stored.user_options = {**options, SERVER_FIELD: gateway.name}
        spawner.db.commit()
    options[SERVER_FIELD] = gateway.name
    return gateway


def _takes_stored_options(spawner: Any) -> bool:
    """Return whether the request of this start names no gateway: the Hub takes the options of the last one.

    Those may name a gateway that was renamed or removed since.
    """
    request = getattr(getattr(spawner, "handler", None), "request", None)
    return request is not None and SERVER_FIELD not in request.query and SERVER_FIELD.encode() not in request.body


def _size_form(gateways: Gateways, spawner: Any) -> str:
    if (choice := gateways.sizes()) is None:
        return ""
    name, teams = spawner.user.name, teams_of(spawner)
    # Caps or sizes may have changed since the last choice.
    chosen = choice.last_or_default(asked_size(last_options(spawner)), name, teams)
    return size_form(choice.offered(name, teams), chosen, str(choice.limit_of(name, teams)), choice.has_custom)


def last_options(spawner: Any) -> Mapping[str, Any]:
    """Return the user's last choice; the Hub's database keeps it over a restart."""
    stored = getattr(spawner, "orm_spawner", None)
    return spawner.user_options or getattr(stored, "user_options", None) or {}


def _set_size(choice: SizeChoice, offered: OfferedSizes, spawner: Any, options: dict[str, Any]) -> None:
    try:
        size = choice.check(asked_size(options), spawner.user.name, teams_of(spawner))
    except SizeChoiceError as error:
        raise _refusal(400, str(error)) from None
    # A new table: others may hold the one that is there.
    spawner.environment = {**spawner.environment, VARIABLE: size}
    if spawner.has_trait("profile_list"):
        _choose_in_profile(options, size, offered.offered(spawner.user.name, teams_of(spawner)))


def _choose_in_profile(options: dict[str, Any], size: str, offered: Sequence[str]) -> None:
    """Write the size into the options of the chosen profile.

    KubeSpawner takes a listed choice by one name, any other by another, and knows no second way to
    write a size.
    """
    options.pop(UNLISTED, None)
    options.pop(FIELD, None)
    options[FIELD if size in offered else UNLISTED] = size


def _check_environment(spawner: Any) -> None:
    if "JUPYTER_GATEWAY_URL" not in spawner.environment:
        raise _refusal(
            500,
            "the Hub's configuration sets the spawner's environment after Aliquot's configure(), and with that takes "
            "the gateway away; an administrator should call configure() last",
        )


def _check_class(spawner: Any, decided_for: str) -> None:
    try:
        check_spawner(decided_for, type(spawner))
    except HubConfigError as error:
        raise _refusal(500, str(error)) from None


def _refusal(status: int, message: str) -> HTTPError:
    error = HTTPError(status, "%s", message, reason=None)
    # The Hub's spawn page shows this one, its API the other.
    error.jupyterhub_message = message  # type: ignore[attr-defined]
    return error


def _joined(rest: Any, ours: dict[str, Any]) -> Any:
    if inspect.isawaitable(rest):

        async def join() -> dict[str, Any]:
            return {**await rest, **ours}

        return join()
    return {**rest, **ours}
