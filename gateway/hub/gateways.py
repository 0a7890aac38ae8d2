"""The gateways behind one Hub: one, or several that the spawn page offers by their names.

Values only; availability.py asks the gateways.
"""

from __future__ import annotations

import os.path
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlsplit

from .settings import HubConfigError, HubSettings
from .size_choice import OfferedSizes, SizeChoice

# In a server's options, and of the form's field: the name of the chosen gateway.
SERVER_FIELD = "gpu_server"
_OF_ONE = (
    "name",
    "url",
    "connect_url",
    "api_token",
    "gateway_user",
    "gateway_options",
    "gateway_environment",
    "run_kernels_as",
    "account_of",
    "start_relay_host",
)
_MAY_DIFFER = (
    "largest_gpus",
    "user_limit_gpus",
    "user_limits",
    "team_limits",
    "quota_file",
    "minutes_without_server",
)
_ENTRY = ("label", *_OF_ONE, *_MAY_DIFFER)
_LONGEST_LABEL = 80


@dataclass(frozen=True)
class Gateway:
    """One gateway. ``label`` is its text on the spawn page; ``sizes`` is None without a choice of sizes."""

    label: str
    settings: HubSettings
    sizes: SizeChoice | None

    @property
    def name(self) -> str:
        """Return the name of its service, which the user's options have."""
        return self.settings.name


@dataclass(frozen=True)
class Gateways:
    """All gateways, in the order of the configuration.

    ``are_named``: whether the user chooses one of them. A Hub with one gateway offers no choice.
    """

    each: tuple[Gateway, ...]
    are_named: bool

    @classmethod
    def of(cls, settings: HubSettings) -> Gateways:
        """Read the arguments of `configure`. Raises HubConfigError."""
        if settings.gateways is None:
            return cls((_gateway("", settings),), are_named=False)
        return cls(tuple(_named(settings)), are_named=True)

    def with_settings(self, change: Callable[[HubSettings], HubSettings]) -> Gateways:
        """Return the same gateways with changed settings. Raises HubConfigError where two clash."""
        each = tuple(replace(gateway, settings=change(gateway.settings)) for gateway in self.each)
        for number, gateway in enumerate(each):
            for other in each[:number]:
                _check_distinct(other.settings, gateway.settings)
        return replace(self, each=each)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the services."""
        return tuple(gateway.name for gateway in self.each)

    def sizes(self) -> OfferedSizes | None:
        """Return the sizes of the spawn page; None where it offers none."""
        choices = [gateway.sizes for gateway in self.each if gateway.sizes is not None]
        return OfferedSizes(tuple(choices)) if choices else None

    def find(self, name: object) -> Gateway | None:
        """Return the gateway of this name."""
        return next((gateway for gateway in self.each if gateway.name == name), None)

    def settings_for(self, spawner: Any) -> HubSettings:
        """Return the gateway of a server that starts, whose options have been applied.

        Raises KeyError where a hook of the administrator's took the choice away.
        """
        if not self.are_named:
            return self.each[0].settings
        if found := self.find(chosen := spawner.user_options.get(SERVER_FIELD)):
            return found.settings
        raise KeyError(f"the options of the server of {spawner.user.name} have {SERVER_FIELD}={chosen!r}, no gateway")

    def service_of(self, spawner: Any) -> str:
        """Return the name of the service that a starting server uses."""
        return self.settings_for(spawner).name


def _gateway(label: str, settings: HubSettings) -> Gateway:
    return Gateway(label, settings, settings.choice() if settings.has_choice else None)


def _named(settings: HubSettings) -> list[Gateway]:
    entries = settings.gateways
    _check_list(entries)
    assert entries is not None
    _check_shared(settings)
    found: list[Gateway] = []
    for entry in entries:
        gateway = _read(settings, entry)
        for other in found:
            _check_distinct(other.settings, gateway.settings)
        found.append(gateway)
    return found


def _check_list(entries: Any) -> None:
    if isinstance(entries, (str, Mapping)) or not isinstance(entries, Sequence):
        raise HubConfigError(
            f"configure(gateways=…): a value of type {type(entries).__name__} is not valid. Use a list of tables, such "
            "as [{'name': 'gpu-1', 'url': 'https://gpu-1:8890', 'api_token': '…'}]"
        )
    if not entries:
        raise HubConfigError(
            "configure(gateways=[]) names no gateway. Name each GPU server, or remove the argument for the one gateway "
            "that the Hub starts"
        )


def _check_shared(settings: HubSettings) -> None:
    """Refuse an argument beside `gateways` that can be of one gateway alone."""
    defaults = {field.name: getattr(HubSettings(), field.name) for field in fields(HubSettings)}
    if given := [knob for knob in _OF_ONE if getattr(settings, knob) != defaults[knob]]:
        raise HubConfigError(
            f"configure({given[0]}=…) is of one gateway, and gateways=[…] names several. Write {given[0]!r} into the "
            "entry of its gateway"
        )


def _read(settings: HubSettings, entry: Any) -> Gateway:
    if not isinstance(entry, Mapping):
        raise HubConfigError(
            f"configure(gateways=…): an entry of type {type(entry).__name__} is not valid. Use a table such as "
            "{'name': 'gpu-1', 'url': 'https://gpu-1:8890', 'api_token': '…'}"
        )
    shown = entry.get("name") if isinstance(entry.get("name"), str) else "without a name"
    if missing := [knob for knob in ("name", "url") if not entry.get(knob)]:
        raise HubConfigError(f"configure(gateways=…): the gateway {shown!r} has no {missing[0]!r}. Add it")
    if unknown := sorted(str(knob) for knob in entry if knob not in _ENTRY):
        raise HubConfigError(
            f"configure(gateways=…): the gateway {shown!r} has {unknown[0]!r}, which is not of one gateway. Use "
            f"{', '.join(_ENTRY)}"
        )
    label = entry.get("label", "")
    if not isinstance(label, str) or len(label) > _LONGEST_LABEL or not (label.isprintable()):
        raise HubConfigError(
            f"configure(gateways=…): the label of the gateway {shown!r} is not valid. Use a line of at most "
            f"{_LONGEST_LABEL} characters"
        )
    shared = {field.name: getattr(settings, field.name) for field in fields(HubSettings) if field.name not in _OF_ONE}
    own = {knob: value for knob, value in entry.items() if knob != "label"}
    try:
        found = _gateway(label, HubSettings(**{**shared, **own, "gateways": None}))
    except HubConfigError as error:
        raise HubConfigError(f"configure(gateways=…), the gateway {shown!r}: {error}") from None
    if found.settings.is_managed and not _is_of_this_machine(urlsplit(found.settings.url).hostname or ""):
        raise HubConfigError(
            f"configure(gateways=…): the gateway {shown!r} has no api_token, so the Hub would start it, but "
            f"{found.settings.url} is no address of this machine. Give it the api_token with which it was started, or "
            "an address of this machine"
        )
    return found


def _is_of_this_machine(host: str) -> bool:
    """Return whether a program on this machine can listen at the host's address. May ask a name server."""
    if host.lower() in ("localhost", socket.gethostname().lower()):
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in found)


def _can_bind(family: int, address: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((address[0], 0, *address[2:]))
    except OSError:
        return False
    return True


def _check_distinct(one: HubSettings, other: HubSettings) -> None:
    if one.name == other.name:
        raise HubConfigError(
            f"configure(gateways=…): two gateways have the name {one.name!r}. Give each a name of its own"
        )
    for mine, theirs in ((one.url, other.url), (one.url, other.connect_url), (one.connect_url, other.url)):
        if mine and theirs and _place(mine) == _place(theirs):
            raise HubConfigError(
                f"configure(gateways=…): the gateways {one.name!r} and {other.name!r} have one address, {mine}. Give "
                "each its own"
            )
    folder = _shared_folder(one)
    if folder and folder == _shared_folder(other) and one.gateway_user != other.gateway_user:
        raise HubConfigError(
            f"configure(gateways=…): the gateways {one.name!r} and {other.name!r} have one runtime folder, {folder}, "
            f"and run as {one.gateway_user or 'the Hub'} and {other.gateway_user or 'the Hub'}. Give one a folder of "
            "its own (gateway_environment={'ALIQUOT_RUNTIME_DIR': '/run/aliquot-2'}), or both one account"
        )
    if one.api_token and one.api_token == other.api_token:
        raise HubConfigError(
            f"configure(gateways=…): the gateways {one.name!r} and {other.name!r} have one api_token, by which the Hub "
            "knows a gateway. Give each its own"
        )


def _place(url: str) -> tuple[str, int]:
    """Return host and port, which one program alone has, whatever it speaks."""
    parts = urlsplit(url)
    return (parts.hostname or "").rstrip("."), parts.port or (443 if parts.scheme == "https" else 80)


def _shared_folder(settings: HubSettings) -> str:
    """Return the runtime folder that the gateway does not choose by its account; empty for one that does."""
    is_told = settings.runs_as_owner or "ALIQUOT_RUNTIME_DIR" in settings.gateway_environment
    return os.path.normpath(settings.runtime_dir()) if settings.is_managed and is_told else ""
