"""The image catalogue: container images from the configuration, which users pick like kernelspecs.

This module reads and checks the entries, and makes base kernelspecs of them. It starts no
container.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from traitlets import List, TraitError, Unicode, validate
from traitlets.config import Configurable

from jupyter_aliquot.gateway.auth.principals import Audience, User, read_audience
from jupyter_aliquot.gateway.base.fields import Entry
from jupyter_aliquot.gateway.sizes.grammar import parse_size, parse_size_name
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan, Pull
from jupyter_aliquot.provisioner.errors import RequestError, SizeNameError
from jupyter_aliquot.provisioner.grants.codec import PROVISIONER_NAME, RESIDENCY_MODES
from jupyter_aliquot.provisioner.resources import Bytes, Request

from .environment import is_reserved

IMAGES_SETTING = "c.ImageCatalogue.images"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
# With `env`: Jupyter replaces a bare `python3` by the server's own interpreter, which an image need
# not have.
_PYTHON = ("/usr/bin/env", "python3", "-m", "ipykernel_launcher", "-f", "{connection_file}")
_NO_LOGOS = "/nonexistent"
# In the place of uid:gid: kernels run as their owner's account, in its home.
OWNER = "owner"
_INTERRUPT_MODES = ("signal", "message")


@dataclass(frozen=True)
class BaseSpec:
    """The part of a kernelspec that says how to run a kernel; here, inside the image."""

    argv: tuple[str, ...] = _PYTHON
    language: str = "python"
    interrupt_mode: str = "signal"
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class CatalogueImage:
    """One entry.

    ``container`` is the plan of its kernels before folders, limits and owner are known.

    ``limits`` are those that the entry sets for every size. None leaves a limit to the share.

    ``runs_as_owner``: the user of the container is the account of the kernel's owner.
    """

    name: str
    display_name: str
    description: str
    base: BaseSpec
    default_size: Request | None
    audience: Audience
    logos: str
    limits: ContainerLimits
    container: ContainerPlan
    # How the memory of its kernels may leave a GPU; empty for the server's setting.
    residency: str = ""
    runs_as_owner: bool = False

    def is_for(self, user: User) -> bool:
        """Return whether the user may pick it.

        An entry without users and teams is for all users; administrators use all.
        """
        return user.is_admin or self.audience.is_empty or self.audience.includes(user)


class ImageCatalogue(Configurable):
    """The images that kernels can run in, and their common settings."""

    images: List[Any] = List(
        help=(
            "Images that kernels can run in, each a table; shown in the kernel picker in the sizes of "
            "`c.Aliquot.presets`. Fields: see images.md."
        ),
    ).tag(config=True)
    allowed_env = List(
        Unicode(),
        ["KERNEL_WORKING_DIR"],
        help=(
            "Variables of a client's request to start a kernel that its container gets, by name; "
            "`KERNEL_*` allows all that begin so, but none that name the user or what is loaded "
            "(`KERNEL_USERNAME`, `LD_*`, …). Nothing of the server's own environment ever gets there."
        ),
    ).tag(config=True)

    # In the order of the configuration. The check of `images` alone writes it.
    entries: tuple[CatalogueImage, ...] = ()

    def find(self, name: str) -> CatalogueImage | None:
        """Return the image of this name, for any user. Jupyter compares names without case."""
        return next((entry for entry in self.entries if entry.name == name.lower()), None)

    @validate("images")
    def _images_are_complete(self, proposal: dict[str, Any]) -> list[object]:
        tables: list[object] = proposal["value"]
        entries: dict[str, CatalogueImage] = {}
        for number, table in enumerate(tables):
            try:
                entry = read_image(table, number)
            except RequestError as error:
                raise TraitError(f"{IMAGES_SETTING}: {error}") from None
            if entry.name in entries:
                raise TraitError(f"{IMAGES_SETTING}: two images are named {entry.name!r}. Give each its own name.")
            entries[entry.name] = entry
        self.entries = tuple(entries.values())
        return tables

    @validate("allowed_env")
    def _are_names_of_variables(self, proposal: dict[str, Any]) -> list[str]:
        names: list[str] = proposal["value"]
        for name in names:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name):
                raise TraitError(
                    f"c.ImageCatalogue.allowed_env: {name!r} is not the name of a variable. Use one such as "
                    "'KERNEL_PROJECT', or 'KERNEL_*'"
                )
            if is_reserved(name):
                raise TraitError(
                    f"c.ImageCatalogue.allowed_env: {name!r} is reserved: no request may set it, for a client decides "
                    "neither its user nor what a kernel loads. Remove it"
                )
        return names


def read_image(table: object, number: int = 0) -> CatalogueImage:
    """Read and check one entry of the catalogue. Raises RequestError."""
    entry = Entry(f"images[{number}]", table)
    name = entry.text("name")
    entry.where = f"the image {name!r}"
    _check_name(entry, name)
    label, version = entry.text("display_name", name), entry.text("version", "")
    base = _read_base(entry.table("kernelspec"))
    image = CatalogueImage(
        name=name,
        display_name=f"{label} {version}".strip(),
        description=entry.text("description", ""),
        base=base,
        default_size=_read_size(entry),
        audience=read_audience(entry),
        logos=_read_logos(entry, base.language),
        limits=_read_limits(entry.table("limits")),
        container=_read_container(entry, base),
        residency=_read_residency(entry),
        runs_as_owner=entry.text("user", "") == OWNER,
    )
    entry.finish()
    return image


def image_kernel_spec(image: CatalogueImage) -> KernelSpec:
    """Return the base kernelspec of an image. It has sizes as any other."""
    metadata: dict[str, Any] = {
        "kernel_provisioner": {"provisioner_name": PROVISIONER_NAME, "config": {}},
        "aliquot": {"kernelspec": image.name, "image": image.container.image, "description": image.description},
    }
    if image.residency:
        metadata["aliquot"]["residency"] = image.residency
    if image.base.argv == _PYTHON:
        metadata["debugger"] = True
    return KernelSpec(
        name=image.name,
        argv=list(image.base.argv),
        display_name=image.display_name,
        language=image.base.language,
        env=dict(image.base.env),
        resource_dir=image.logos,
        interrupt_mode=image.base.interrupt_mode,
        metadata=metadata,
    )


def image_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the image in a kernelspec's metadata, as `image_kernel_spec` wrote it.

    None for a kernel that is a process.
    """
    about = metadata.get("aliquot")
    image = about.get("image") if isinstance(about, Mapping) else None
    return image if isinstance(image, str) else None


def _read_container(entry: Entry, base: BaseSpec) -> ContainerPlan:
    """Read the container's part, checked by the plan's own rules.

    So an error ends the server at its start.
    """
    user, userns = entry.text("user", ""), entry.text("userns", "")
    if user == OWNER:
        if userns not in ("", "host"):
            raise entry.refused("userns", userns, "'host', or leave it out: user 'owner' is a number of this machine")
        # An engine that maps all users would make the account another one.
        user, userns = "", "host"
    try:
        return ContainerPlan(
            image=entry.text("image"),
            pull=Pull(entry.text("pull", Pull.MISSING.value)),
            user=user,
            userns=userns,
            network=entry.text("network", "none"),
            env=base.env,
            read_only_root=entry.flag("read_only_root", True),
            cuda_compat=entry.text("cuda_compat", ""),
        )
    except ValueError:
        choices = ", ".join(pull.value for pull in Pull)
        raise entry.refused("pull", entry.text("pull"), f"one of {choices}") from None


def _check_name(entry: Entry, name: str) -> None:
    try:
        is_sized = parse_size_name(name) is not None
    except SizeNameError:
        is_sized = True
    if is_sized:
        raise entry.refused("name", name, "a name without '.gpu-', which sizes are told by")
    if not _NAME.fullmatch(name):
        raise entry.refused("name", name, "at most 100 of a-z, 0-9, '.', '_' and '-', such as 'pytorch-2.11'")


def _read_base(entry: Entry) -> BaseSpec:
    base = BaseSpec(
        argv=entry.texts("argv", _PYTHON),
        language=entry.text("language", "python"),
        interrupt_mode=entry.text("interrupt_mode", "signal"),
        env=entry.pairs("env"),
    )
    entry.finish()
    if "{connection_file}" not in " ".join(base.argv):
        raise entry.refused("argv", list(base.argv), "a command with '{connection_file}', as in a kernel.json")
    if base.interrupt_mode not in _INTERRUPT_MODES:
        raise entry.refused("interrupt_mode", base.interrupt_mode, f"one of {', '.join(_INTERRUPT_MODES)}")
    return base


def _read_size(entry: Entry) -> Request | None:
    size = entry.text("default_size", "")
    try:
        return parse_size(size) if size else None
    except SizeNameError as error:
        raise entry.refused("default_size", size, f"a size such as '0.25' ({error})") from None


def _read_residency(entry: Entry) -> str:
    mode = entry.text("residency", "")
    if mode and mode not in RESIDENCY_MODES:
        raise entry.refused("residency", mode, f"one of {', '.join(RESIDENCY_MODES)}, or leave it out")
    return mode


def _read_limits(entry: Entry) -> ContainerLimits:
    values: dict[str, Any] = {}
    for field in ("memory", "shm"):
        text = entry.text(field, "")
        try:
            values[field] = Bytes.parse(text) if text else None
        except ValueError:
            raise entry.refused(field, text, "an amount of memory, such as '8GiB'") from None
    values["cpus"], pids = entry.number("cpus"), entry.number("pids")
    if pids is not None and not float(pids).is_integer():
        raise entry.refused("pids", pids, "a whole number")
    entry.finish()
    return ContainerLimits(values["memory"], values["cpus"], None if pids is None else int(pids), values["shm"])


def _read_logos(entry: Entry, language: str) -> str:
    """Read the folder of the picker's pictures, such as `logo-64x64.png`.

    For Python it is ipykernel's by default.
    """
    folder = entry.text("logos", "")
    if folder and not Path(folder).is_dir():
        raise entry.refused("logos", folder, "a folder of this machine with logo-64x64.png in it, or leave it out")
    return folder or logos_of(language)


def logos_of(language: str) -> str:
    """Return a folder of the picker's pictures: ipykernel's for Python, else none.

    Never empty: Jupyter would serve its own working folder as pictures.
    """
    ipykernel = importlib.util.find_spec("ipykernel") if language == "python" else None
    if ipykernel is not None and ipykernel.origin:
        return str(Path(ipykernel.origin).parent / "resources")
    return _NO_LOGOS
