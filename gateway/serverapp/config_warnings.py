"""Warnings of a server that works otherwise than its documentation says, and unknown settings.

This module changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from jupyter_server.auth import IdentityProvider, PasswordIdentityProvider
from jupyter_server.serverapp import ServerApp
from traitlets import HasTraits, TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.identity import AliquotIdentityProvider, tells_people_apart
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.sharing.authorizer import AliquotAuthorizer
from jupyter_aliquot.gateway.sizes.grammar import base_of


def refuse_unknown(config: Config, classes: Iterable[type[HasTraits]]) -> None:
    """Refuse settings of these classes that do not exist. Raises TraitError.

    Jupyter warns and goes on, perhaps without the limit that was meant. A class among them takes the
    settings of those that it is made of.
    """
    classes = list(classes)
    for owner in classes:
        made_of_it = [one for one in classes if issubclass(one, owner)]
        known = {name for one in made_of_it for name in one.class_trait_names(config=True)}
        for name, value in config.get(owner.__name__, {}).items():
            if name not in known and not isinstance(value, Config):  # that is a section for another class
                likely = get_close_matches(name, known, n=1)
                advice = f"Did you mean {likely[0]}?" if likely else "See docs/reference/configuration.md"
                raise TraitError(f"c.{owner.__name__}.{name}: there is no such setting. {advice}")


def gateway_mode(url: str) -> tuple[str, ...]:
    """Return the remark of a server whose kernels are on a gateway."""
    if not url:
        return ()
    return (f"This server takes its kernels from the gateway at {url}, which gives them their sizes and their GPUs.",)


def replaced_classes(server: ServerApp) -> tuple[str, ...]:
    """Return remarks on the effects of other classes that the configuration puts in place of ours."""
    remarks = []
    if not isinstance(server.kernel_manager, AliquotKernelManager):
        remarks.append(
            f"This server's kernel manager is {_name(server.kernel_manager)}, not ours: its kernels ask for their GPU "
            "by themselves, and have no owners here. Remove c.ServerApp.kernel_manager_class to change that."
        )
    if not isinstance(server.kernel_spec_manager, SizedKernelSpecManager):
        remarks.append(
            f"This server's kernelspec manager is {_name(server.kernel_spec_manager)}, not ours: only installed "
            "kernelspecs are offered. Remove c.ServerApp.kernel_spec_manager_class to change that."
        )
    if tells_people_apart(server.identity_provider) and not isinstance(server.authorizer, AliquotAuthorizer):
        remarks.append(
            f"This server has several users, but its authorizer is {_name(server.authorizer)}, not ours: users may "
            "reach each other's kernels. Remove c.ServerApp.authorizer_class to change that."
        )
    return tuple(remarks)


def engine_within_reach(server: ServerApp) -> str:
    """Return a warning if users' processes run as an account that may use a container engine.

    It is for the administrator's log; empty if there is none.
    """
    specs = server.kernel_spec_manager
    if not tells_people_apart(server.identity_provider) or not isinstance(specs, SizedKernelSpecManager):
        return ""
    images = {image.name for image in specs.catalogue.entries}
    if not images or (specs.allowed_kernelspecs and {base_of(name) for name in specs.allowed_kernelspecs} <= images):
        return ""
    return (
        "this server has several users and starts containers, and it offers kernels that are processes, too: those "
        "run as its own account, which may use the container engine and so do all that root may. Name images alone "
        "in c.KernelSpecManager.allowed_kernelspecs, unless the users trust each other (SECURITY.md)"
    )


def unknown_users(server: ServerApp) -> str:
    """Return a warning if another identity provider names users, whose roles are unknown here.

    It is for the administrator's log; empty if there is none.
    """
    provider = server.identity_provider
    is_known = isinstance(provider, AliquotIdentityProvider)
    if is_known or type(provider) in (IdentityProvider, PasswordIdentityProvider):
        return ""
    return (
        f"the identity provider {_name(provider)} tells no roles: everyone that it lets in is an administrator of "
        "Aliquot here, and may see, resize, and end the kernels of all users. If several people share this server, set "
        "c.ServerApp.identity_provider_class to "
        "jupyter_aliquot.gateway.auth.identity.AliquotIdentityProvider and name them in "
        "c.AliquotIdentityProvider.users (SECURITY.md)"
    )


def _name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
