"""Sizes for Jupyter: a KernelSpecManager that lists the presets and resolves valid sized names.

It owns no kernelspec: a sized one is derived from its base at each look-up, so that a changed base
is seen at once. A base is an installed kernelspec, or an image of the catalogue, which exists only
for users who may use it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from traitlets import Instance, TraitError, default

from jupyter_aliquot.gateway.auth.identity import current_user
from jupyter_aliquot.gateway.config import Aliquot, configuration_of
from jupyter_aliquot.gateway.containers.images import IMAGES_SETTING, CatalogueImage, ImageCatalogue, image_kernel_spec
from jupyter_aliquot.gateway.reports.status import Size
from jupyter_aliquot.gateway.sizes.grammar import (
    GRAMMAR,
    STEP,
    SizedName,
    base_before_size,
    describe_grammar,
    largest_here,
    parse_plain_name,
    parse_size_name,
    plain_name,
    size_label,
    size_name,
)
from jupyter_aliquot.provisioner.errors import SizeNameError
from jupyter_aliquot.provisioner.grants.codec import NO_FOLDER, PROVISIONER_NAME
from jupyter_aliquot.provisioner.resources import GpuShare, Request

from .own_specs import OwnSpecs

__all__ = [
    "GRAMMAR",
    "STEP",
    "NoSuchBase",
    "NoSuchSize",
    "OfferedSize",
    "SizedKernelSpecManager",
    "SizedName",
    "parse_size_name",
    "size_name",
]

_LOCAL_PROVISIONER_NAME = "local-provisioner"


class NoSuchSize(SizeNameError, NoSuchKernel):
    """A name that is no valid size.

    Also Jupyter's NoSuchKernel, so that stock callers treat it as not found.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name)
        self.message = message

    def __str__(self) -> str:
        return self.message


class NoSuchBase(NoSuchKernel):
    """A kernelspec that cannot be used: not installed, not readable, or without sizes.

    It may be the base of a sized name.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name)
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class OfferedSize:
    """One listed size: a preset on a base kernelspec, or on an image of the catalogue.

    With ``is_default`` the catalogue proposes it for its image.
    """

    name: str
    base: str
    display_name: str
    request: Request
    image: CatalogueImage | None = None
    is_default: bool = False

    def report(self) -> Size:
        """Return the size as REST and `aliquot sizes --json` tell it."""
        limit, image = self.request.memory_limit, self.image
        return {
            "name": self.name,
            "kernelspec": self.base,
            "display_name": self.display_name,
            "gpus": float(self.request.gpus),
            "requested_memory_bytes": None if limit is None else int(limit),
            "priority": self.request.workload_class.priority,
            "image": image.container.image if image else None,
            "description": image.description if image else "",
            "is_default": self.is_default,
        }


class SizedKernelSpecManager(KernelSpecManager):
    """Jupyter's kernelspecs, each also in the administrator's sizes.

    Any other valid size is resolved by its name.
    """

    settings = Instance(Aliquot, help="Aliquot's configuration.")
    catalogue = Instance(ImageCatalogue, help="Images that kernels can run in.")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Read now, so that a wrong setting ends the server at its start, and not a later request.
        _ = self.settings
        # The GPUs of the node; 0 if not known. The extension sets it, or a command that found an
        # agent.
        self.count_devices: Callable[[], int] = lambda: 0
        # The kernelspecs in users' homes; None where kernels do not run as their owners. The
        # extension sets it.
        self.own: OwnSpecs | None = None
        for image in self.catalogue.entries:
            self._check_image(image)

    @default("settings")
    def _settings_from_parent(self) -> Aliquot:
        return configuration_of(self.parent) or Aliquot(parent=self)

    @default("catalogue")
    def _catalogue_from_parent(self) -> ImageCatalogue:
        return ImageCatalogue(parent=self)

    def find_kernel_specs(self) -> dict[str, str]:
        """Return name → folder of the plain kernelspecs and of the listed sizes.

        Called by Jupyter's listings.
        """
        plain: dict[str, str] = {
            name: folder for name, folder in super().find_kernel_specs().items() if not self._is_ours(name, folder)
        }
        found, presets = dict(plain), self._offered(self.settings.preset_requests())
        for base, folder in plain.items():
            if self._can_be_sized(base, folder):
                found |= {size_name(base, request): folder for request in presets}
        for image in self.catalogue.entries:
            if image.is_for(current_user()):
                found |= dict.fromkeys(filter(self._is_allowed, self._names_of(image)), image.logos)
        for name, spec in self._own_specs().items():
            if name not in found:  # what is registered for all wins
                names = [name, *(size_name(name, request) for request in presets)]
                found |= dict.fromkeys(filter(self._is_allowed, names), spec.resource_dir)
        for name, folder in self._allowed_by_name():
            found.setdefault(name, folder)
        return found

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernelspec of this name.

        Raises NoSuchKernel, whose message says what is wrong with a size.
        """
        image = self._own_image(kernel_name)
        if image is not None:
            return image_kernel_spec(image)
        folder = self._find_spec_directory(kernel_name.lower())
        if folder is not None and not self._is_ours(kernel_name, folder):
            return self._read(kernel_name, folder)
        if (own := self._own_spec(kernel_name)) is not None:
            return own
        if (plain := parse_plain_name(kernel_name)) is not None:
            return plain_kernel_spec(self._base(kernel_name, plain), plain)
        try:
            sized = parse_size_name(kernel_name, self.settings.largest())
        except SizeNameError as error:
            if unsized := base_before_size(kernel_name):
                self._base(kernel_name, unsized)  # without it, no size of it is right
            raise NoSuchSize(kernel_name, self._with_range(kernel_name, error)) from None
        if sized is None:
            self._refuse_own(kernel_name, kernel_name)
            return super().get_kernel_spec(kernel_name)
        base = self._base(kernel_name, sized.base)
        return sized_kernel_spec(base, sized, self.settings.residency_of(sized.request))

    def remove_kernel_spec(self, name: str) -> str:
        """Remove a kernelspec's folder.

        A size has none of its own: removing it would remove its base.
        """
        sized = parse_size_name(name)
        if sized is not None and self._find_spec_directory(name.lower()) is None:
            raise NoSuchSize(name, f"{name!r} cannot be removed: a size has no folder. Remove {sized.base!r} instead.")
        return str(super().remove_kernel_spec(name))

    def grammar(self) -> str:
        """Return the form of a size's name here, in one sentence."""
        return describe_grammar(self.largest_here())

    def largest_here(self) -> GpuShare:
        """Return the most that one kernel can have.

        A name of more is valid, and refused by the node.
        """
        return largest_here(self.settings.largest(), self.count_devices())

    def has_sizes(self, name: str) -> bool:
        """Return whether this kernelspec, or image that the user may use, has sizes."""
        if self._own_image(name) is not None:
            return True
        folder = self._find_spec_directory(name.lower())
        return is_plain(name, folder) if folder is not None else self._own_spec(name) is not None

    async def refresh(self, name: str | None = None) -> None:
        """Look at the kernelspecs in the user's home anew, before a list, or a start of *name*.

        An empty name is that of the default, which is installed for all.
        """
        if self.own is None or name == "" or (name is not None and self._is_for_all(name)):
            return
        await self.own.refresh(current_user().name)

    def _is_for_all(self, name: str) -> bool:
        """Return whether no look into a home can change what the name is."""
        base = name if (sized := self._read_valid(name)) is None else sized.base
        return self._find_spec_directory(base.lower()) is not None or self.catalogue.find(base) is not None

    def offered_sizes(self) -> list[OfferedSize]:
        """Return the listed sizes, in the order of the presets on each base."""
        offered = []
        for name in self.find_kernel_specs():
            sized = self._read_valid(name)
            if sized is None or self._is_foreign(name):
                continue
            try:
                spec = self.get_kernel_spec(name)
            except NoSuchKernel as error:
                # A kernelspec that cannot be read hides no other, as in Jupyter's own listing.
                self.log.warning("kernelspec=%s offered=no reason=%s", name, error)
                continue
            image = self._own_image(sized.base)
            is_default = image is not None and self._proposed(image) == [sized.request]
            offered.append(OfferedSize(name, sized.base, spec.display_name, sized.request, image, is_default))
        return offered

    def _base(self, name: str, base_name: str) -> KernelSpec:
        """Return the base of the size *name*. Raises NoSuchBase."""
        image = self._own_image(base_name)
        if image is not None:
            return image_kernel_spec(image)
        folder = self._find_spec_directory(base_name.lower())
        if folder is None:
            if (own := self._own_spec(base_name)) is not None:
                return own
            self._refuse_own(name, base_name)
            raise NoSuchBase(
                name,
                f"Requested {name!r}, but no kernelspec named {base_name!r} is installed. 'jupyter "
                "kernelspec list' shows those that are",
            )
        base = self._read(base_name, folder)
        provisioner = _provisioner_of(base.metadata)
        if provisioner not in (None, _LOCAL_PROVISIONER_NAME):
            raise NoSuchBase(
                name,
                f"Requested {name!r}, but the provisioner {provisioner!r} starts the kernelspec "
                f"{base_name!r}, and has no sizes. Use {base_name!r} itself",
            )
        return base

    def _own_image(self, name: str) -> CatalogueImage | None:
        """Return the image of this name; None if the user may not use it, or there is none."""
        image = self.catalogue.find(name)
        return image if image is not None and image.is_for(current_user()) else None

    def _own_specs(self) -> Mapping[str, KernelSpec]:
        """Return the kernelspecs in the user's home, which exist for that user alone."""
        return {} if self.own is None else self.own.of(current_user().name)

    def _own_spec(self, name: str) -> KernelSpec | None:
        found = self._own_specs().get(name.lower())
        return None if found is None else copy.deepcopy(found)

    def _refuse_own(self, name: str, base_name: str) -> None:
        """Say why a kernelspec in the user's home cannot be used. Raises NoSuchBase."""
        if self.own is not None and (reason := self.own.why_not(current_user().name, base_name)):
            raise NoSuchBase(name, f"Requested {name!r}, but {reason}")

    def _names_of(self, image: CatalogueImage) -> list[str]:
        """Return the listed kernelspecs of an image: its proposed size, itself, and the presets."""
        sizes = [size_name(image.name, request) for request in self._offered(self.settings.preset_requests())]
        first = [size_name(image.name, request) for request in self._proposed(image)]
        return list(dict.fromkeys([*first, image.name, *sizes]))

    def _proposed(self, image: CatalogueImage) -> list[Request]:
        return [] if image.default_size is None else self._offered([image.default_size])

    def _offered(self, requests: list[Request]) -> list[Request]:
        """Return those of these sizes whose class the user may have.

        The others are resolved, too: kernels may have them.
        """
        return self.settings.class_policy().offered(current_user(), requests)

    def _is_allowed(self, name: str) -> bool:
        base = name if (sized := self._read_valid(name)) is None else sized.base
        return not self.allowed_kernelspecs or bool({name, base} & self.allowed_kernelspecs)

    def _check_image(self, image: CatalogueImage) -> None:
        """Check an image against the installed kernelspecs and the other settings.

        Raises TraitError.
        """
        folder = self._find_spec_directory(image.name)
        if folder is not None:
            raise TraitError(
                f"{IMAGES_SETTING}: an installed kernelspec in {folder} has the name of the image {image.name!r}. "
                "Choose another name, or remove that kernelspec."
            )
        if image.default_size is not None:
            try:
                parse_size_name(size_name(image.name, image.default_size), self.settings.largest())
            except SizeNameError as error:
                raise TraitError(f"{IMAGES_SETTING}: the default_size of {image.name!r}: {error}") from None

    def _read(self, name: str, folder: str) -> KernelSpec:
        """Return an installed kernelspec.

        Raises NoSuchBase for a file that is none; Jupyter accepts any file.
        """
        try:
            return super().get_kernel_spec(name)
        except (OSError, ValueError, TypeError, TraitError) as error:
            message = (
                f"Requested {name!r}, but {folder}/kernel.json cannot be read: {error}. Correct it, or "
                "remove the folder"
            )
            raise NoSuchBase(name, message) from error

    def _can_be_sized(self, name: str, folder: str) -> bool:
        """Return whether sizes are listed for it.

        Another provisioner's kernelspec has none, nor has a name like a size's.
        """
        return is_plain(name, folder)

    def _allowed_by_name(self) -> Iterator[tuple[str, str]]:
        """Return the sizes that the administrator allowed one by one, with their base's folder.

        The setting is `allowed_kernelspecs`.
        """
        for name in self.allowed_kernelspecs:
            sized = self._read_valid(name)
            folder = self._find_spec_directory(sized.base.lower()) if sized else None
            is_offered = sized is not None and self._offered([sized.request]) == [sized.request]
            if sized and folder and is_offered and self._can_be_sized(sized.base, folder):
                yield name, folder

    def _with_range(self, name: str, error: SizeNameError) -> str:
        """Return why the name is no size, with the range of this node."""
        try:
            parse_size_name(name, self.largest_here())
        except SizeNameError as here:
            return str(here)
        return str(error)

    def _read_valid(self, name: str) -> SizedName | None:
        try:
            return parse_size_name(name, self.settings.largest())
        except SizeNameError:
            return None

    def _is_ours(self, name: str, folder: str) -> bool:
        """Return whether it is a size's file on disk.

        Such files are for clients without this manager, which supersedes them.
        """
        return _looks_sized(name) and _provisioner_of(_metadata_on_disk(folder)) == PROVISIONER_NAME

    def _is_foreign(self, name: str) -> bool:
        folder = self._find_spec_directory(name.lower())
        return folder is not None and not self._is_ours(name, folder)


def sized_kernel_spec(base: KernelSpec, sized: SizedName, residency: str = "") -> KernelSpec:
    """Return a copy of *base* that requests the size *sized*.

    *residency* is how memory may leave the GPU, if the base's own metadata do not say it.
    """
    request = sized.request
    config = {"gpus": str(request.gpus), "priority": request.workload_class.priority}
    if sized.host.cpus is not None:
        config["cpus"] = f"{sized.host.cpus:g}"
    if sized.host.memory is not None:
        config["ram"] = f"{sized.host.memory >> 30}GiB"
    if sized.host.folders is not None:
        config["folders"] = ",".join(sized.host.folders) or NO_FOLDER
    if request.memory_limit is not None:
        config["memory_limit"] = f"{request.memory_limit >> 30}GiB"
    metadata = copy.deepcopy(base.metadata)
    if mode := metadata.get("aliquot", {}).get("residency") or residency:
        config["residency"] = str(mode)
    metadata["kernel_provisioner"] = {"provisioner_name": PROVISIONER_NAME, "config": config}
    metadata["aliquot"] = {**metadata.get("aliquot", {}), "kernelspec": sized.base.lower(), **config}
    name, label = size_name(sized.base, request, sized.host), size_label(request, sized.host)
    return _copy(base, name, label, metadata)


def plain_kernel_spec(base: KernelSpec, base_name: str) -> KernelSpec:
    """Return a copy of *base* whose name says that it requests no GPU."""
    metadata = copy.deepcopy(base.metadata)
    metadata["aliquot"] = {**metadata.get("aliquot", {}), "kernelspec": base_name.lower()}
    return _copy(base, plain_name(base_name), "no GPU", metadata)


def _copy(base: KernelSpec, name: str, label: str, metadata: dict[str, Any]) -> KernelSpec:
    ours = {"name": name, "display_name": f"{base.display_name} · {label}", "metadata": metadata}
    # Releases of jupyter_client differ in what else a kernelspec has.
    others = {trait: copy.deepcopy(getattr(base, trait)) for trait in base.trait_names() if trait not in ours}
    return type(base)(**others, **ours)


def is_plain(name: str, folder: str) -> bool:
    """Return whether an installed kernelspec requests no GPU, and has Jupyter's own provisioner."""
    return not _looks_sized(name) and _provisioner_of(_metadata_on_disk(folder)) in (None, _LOCAL_PROVISIONER_NAME)


def _looks_sized(name: str) -> bool:
    try:
        return parse_size_name(name) is not None
    except SizeNameError:
        return True


def _provisioner_of(metadata: dict[str, Any]) -> str | None:
    stanza = metadata.get("kernel_provisioner")
    name = stanza.get("provisioner_name") if isinstance(stanza, dict) else None
    return name if isinstance(name, str) else None


def _metadata_on_disk(folder: str) -> dict[str, Any]:
    """Return a kernelspec's metadata; {} if it cannot be read, about which Jupyter itself warns."""
    try:
        spec = json.loads((Path(folder) / "kernel.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    metadata = spec.get("metadata") if isinstance(spec, dict) else None
    return metadata if isinstance(metadata, dict) else {}
