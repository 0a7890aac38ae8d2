"""The one line of jupyterhub_config.py: `configure` adds the gateway to the Hub's configuration."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue
from traitlets.log import get_logger

from jupyter_aliquot.gateway.base.jupyter_private import appended, updated

from . import config_merge as sections, spawn
from .accounts import check_account, check_owners, depends_on_spawner, say_accounts, with_kernel_accounts
from .availability import Availabilities
from .gateways import Gateways
from .profiles import profile_list
from .scopes import (
    ADMIN_ROLE,
    ADMIN_SCOPE,
    CUSTOM_SCOPES,
    SERVICE_ROLE,
    SERVICE_SCOPES,
    USER_SCOPES,
    USERS_ROLE,
    USERS_SCOPES,
    access_scope,
    availability_role,
    availability_service,
)
from .service import (
    check_command,
    check_internal_tls,
    check_reach,
    relay_host_entry,
    server_environment,
    server_token_scopes,
    service_entry,
)
from .settings import HubConfigError, HubSettings
from .tokens import remove_token


def configure(c: Config, **settings: Any) -> HubSettings:
    """Add the gateway.

    Call it at the end of the file, with the fields of HubSettings. Raises HubConfigError.
    """
    known = [field.name for field in fields(HubSettings)]
    if unknown := sorted(settings.keys() - set(known)):
        raise HubConfigError(f"configure({unknown[0]}=…): no such argument. Use one of {', '.join(known)}")
    wanted, spawner, user_id = HubSettings(**settings), _spawner_name(c), os.geteuid()
    asked = Gateways.of(wanted)
    gateways = asked.with_settings(lambda one: with_kernel_accounts(one, user_id, spawner))
    for before, gateway in zip(asked.each, gateways.each, strict=True):
        _check(c, gateway.settings, spawner)
        is_default = not before.settings.run_kernels_as
        say_accounts(gateway.settings, user_id, spawner, is_default=is_default, log=get_logger())
        _add_service(c, gateway.settings, is_one_of_several=gateways.are_named)
    _add_scopes(c, wanted, gateways)
    if gateways.are_named:
        _add_page(c, gateways)
    _add_environment(c, gateways)
    for section in sections.sections_of(c, "Spawner", "args"):
        # A server without Aliquot ignores it.
        sections.add_to_list(c, section, "args", [f"--Aliquot.keep_kernels={wanted.keep_kernels}"])
    available = Availabilities(gateways)
    is_decided = any(depends_on_spawner(one.settings, user_id) for one in asked.each)
    decided_for = spawner if is_decided and not _has_other_accounts(c) else None
    sections.compose(c, "Spawner", "server_token_scopes", server_token_scopes(gateways.names))
    sections.compose(c, "Spawner", "post_stop_hook", remove_token(gateways.names))
    sections.compose(c, "Spawner", "apply_user_options", spawn.apply_user_options(gateways, available, decided_for))
    if wanted.has_choice or gateways.are_named:
        _add_choice(c, gateways, available, spawner)
    return wanted if gateways.are_named else gateways.each[0].settings


def configure_part(c: Config, **settings: Any) -> HubSettings:
    """Add the gateway in a file that another configuration loads with load_subconfig.

    Such a file has a new *c*, whose lists and tables would replace those of the configuration that
    loads it: here they are added to them. The spawner is set elsewhere, so kernels run as the
    gateway's account unless `run_kernels_as` says otherwise. Raises HubConfigError.
    """
    own = Config()
    wanted = configure(own, **{"run_kernels_as": "gateway", **settings})
    for section, knobs in own.items():
        for knob, value in knobs.items():
            if isinstance(value, list):
                c[section][knob].extend(value)
            elif isinstance(value, dict):
                c[section][knob].update(value)
            else:
                c[section][knob] = value
    return wanted


def _check(c: Config, wanted: HubSettings, spawner: str) -> None:
    """Refuse a gateway that would not work with the rest of the file. Raises HubConfigError."""
    check_reach(wanted, spawner)
    check_command(wanted, spawner, any(sections.found_in(c, name, "cmd") for name in ("KubeSpawner", "Spawner")))
    check_owners(wanted, os.geteuid(), spawner)
    check_account(wanted, os.geteuid())
    check_internal_tls(wanted, bool(sections.found_in(c, "JupyterHub", "internal_ssl")))


def _add_environment(c: Config, gateways: Gateways) -> None:
    for section in sections.sections_of(c, "Spawner", "environment"):
        if gateways.sizes() is not None and spawn.VARIABLE in sections.dict_in(c, section, "environment"):
            raise HubConfigError(
                f"c.{section}.environment sets {spawn.VARIABLE}, which the spawn page chooses. Remove it, or call "
                "configure(sizes=())"
            )
        sections.add_to_dict(c, section, "environment", server_environment(gateways))


def _add_service(c: Config, wanted: HubSettings, *, is_one_of_several: bool) -> None:
    has_relay_host = wanted.runs_as_owner and wanted.start_relay_host
    # The relay host first: the gateway needs its folder.
    relays = [relay_host_entry(wanted)] if has_relay_host else []
    _add_services(c, [*relays, service_entry(wanted, is_one_of_several=is_one_of_several)])


def _add_services(c: Config, entries: list[dict[str, Any]]) -> None:
    found = sections.found_in(c, "JupyterHub", "services")
    known = appended(found) if isinstance(found, LazyConfigValue) else found or ()
    ours = [entry["name"] for entry in entries]
    if taken := [service["name"] for service in known if service.get("name") in ours]:
        raise HubConfigError(
            f"c.JupyterHub.services has a service {taken[0]!r} already. Remove it, or give the gateway another "
            "name: configure(name=…)"
        )
    sections.add_to_list(c, "JupyterHub", "services", entries)


def _add_page(c: Config, gateways: Gateways) -> None:
    """Let the spawn page ask each gateway, as a service of the Hub, which the gateway lets do nothing else."""
    for name in gateways.names:
        page = availability_service(name)
        _add_services(c, [{"name": page, "display": False}])
        sections.add_role(c, availability_role(name), [access_scope(name)], services=[page])


def _add_scopes(c: Config, wanted: HubSettings, gateways: Gateways) -> None:
    access = [access_scope(name) for name in gateways.names]
    sections.add_to_dict(c, "JupyterHub", "custom_scopes", CUSTOM_SCOPES)
    roles = sections.found_in(c, "JupyterHub", "load_roles")
    extra = sections.found_in(c, "JupyterHub", "extra_user_scopes")
    has_user_role = isinstance(roles, list) and any(role.get("name") == "user" for role in roles)
    if extra is not None and not has_user_role:
        # A role "user" of ours would make the Hub ignore it.
        sections.add_to_list(c, "JupyterHub", "extra_user_scopes", access)
    else:
        sections.add_role(c, "user", access, before=USER_SCOPES)
    admins = set()
    for section in sections.sections_of(c, "Authenticator", "admin_users"):
        found = sections.found_in(c, section, "admin_users")
        admins |= set((updated(found) or ()) if isinstance(found, LazyConfigValue) else found or ())
    members = {"users": sorted(admins), "groups": list(wanted.admin_groups)}
    sections.add_role(c, ADMIN_ROLE, [ADMIN_SCOPE], **members)
    sections.add_role(c, USERS_ROLE, USERS_SCOPES, services=list(gateways.names))
    if asking := [one.name for one in gateways.each if one.settings.minutes_without_server]:
        sections.add_role(c, SERVICE_ROLE, SERVICE_SCOPES, services=asking)


def _add_choice(c: Config, gateways: Gateways, available: Availabilities, spawner: str) -> None:
    if "kube" in spawner.lower():
        sections.compose(c, "KubeSpawner", "profile_list", lambda found: profile_list(gateways, available, found))
        return
    sections.compose(c, "Spawner", "options_form", spawn.options_form(gateways, available))
    sections.compose(c, "Spawner", "options_from_form", spawn.options_from_form(gateways))


def _spawner_name(c: Config) -> str:
    """The names of its class and of those it is made of, or the text that names it."""
    found = sections.found_in(c, "JupyterHub", "spawner_class")
    if _has_other_accounts(c):
        return "simple"
    if isinstance(found, type):
        return " ".join(cls.__name__ for cls in found.__mro__)
    return str(found or "")


def _has_other_accounts(c: Config) -> bool:
    """Return whether SystemdSpawner makes accounts up, or derives their names: a user's name is none of them."""
    template = sections.found_in(c, "SystemdSpawner", "username_template")
    is_made_up = sections.found_in(c, "SystemdSpawner", "dynamic_users") is True
    return is_made_up or template not in (None, "{USERNAME}")
