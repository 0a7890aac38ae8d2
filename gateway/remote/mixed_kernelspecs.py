"""Kernelspecs of a server in gateway mode: the gateway's, and its own ones as ``local.NAME``.

Its own ones need no GPU. They always have the prefix, so that a name tells where its kernel runs
whether or not the gateway answers. One in the user's home that the gateway offers with sizes is not
listed a second time, but its name works.
"""

# mypy: disable-error-code="no-untyped-call, override"
# Jupyter Server's managers carry no types, and define their coroutines twice.
from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_server.gateway.managers import GatewayKernelSpecManager
from tornado.web import HTTPError

from jupyter_aliquot.gateway.kernelspecs.manager import is_plain
from jupyter_aliquot.gpu_hook.waiting import within

PREFIX = "local."
SIZE_MARK = ".gpu-"
# A launcher waits no longer than this for a gateway that is away.
GATEWAY_SECONDS = 5.0
_NOT_FOUND = 404


class OwnKernelSpecManager(KernelSpecManager):
    """The kernelspecs that are installed on this server and need no GPU."""

    def find_kernel_specs(self) -> dict[str, str]:
        """Return name → folder. Called by Jupyter's listings."""
        found: dict[str, str] = super().find_kernel_specs()
        return {f"{PREFIX}{name}": folder for name, folder in found.items() if is_plain(name, folder)}

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernelspec of this name. Raises NoSuchKernel."""
        if kernel_name not in self.find_kernel_specs():
            raise NoSuchKernel(kernel_name)
        spec = super().get_kernel_spec(kernel_name.removeprefix(PREFIX))
        spec.display_name = f"{spec.display_name} (this server)"
        return spec


class MixedKernelSpecManager(GatewayKernelSpecManager):
    """The kernelspecs of the gateway, under their names, and of this server.

    While the gateway is away, its kernelspecs are those of its last list.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.own = OwnKernelSpecManager(parent=self.parent)
        self._heard: dict[str, Any] = {}

    def is_own(self, kernel_name: str | None) -> bool:
        """Return whether this name is one of this server's own kernelspecs."""
        return bool(kernel_name and kernel_name.startswith(PREFIX)) and kernel_name not in self._heard

    def refuse_size(self, kernel_name: str) -> None:
        """Refuse a size of one of this server's own kernelspecs. Raises HTTPError 404."""
        base, mark, _ = kernel_name.partition(SIZE_MARK)
        own = self.own.find_kernel_specs()
        if mark and base in own and kernel_name not in own:
            if self._is_twin(base):
                raise HTTPError(
                    _NOT_FOUND,
                    f"Requested {kernel_name}, but {base} runs on this server, without a GPU. Choose "
                    f"{kernel_name.removeprefix(PREFIX)}, the same kernelspec with a size",
                )
            raise HTTPError(
                _NOT_FOUND,
                f"Requested {kernel_name}, but {base} runs on this server, and GPU sizes are the gateway's. Choose "
                f"one of its kernelspecs, or ask an administrator to register {base.removeprefix(PREFIX)} there",
            )

    async def get_all_specs(self) -> dict[str, Any]:
        """Called by GET /api/kernelspecs."""
        try:
            self._heard = await within(super().get_all_specs(), GATEWAY_SECONDS) or {}
        except (HTTPError, OSError, ValueError, KeyError, asyncio.TimeoutError) as error:
            self.log.warning("gateway=unavailable kernelspecs=as_heard_last reason=%s", error)
        own: dict[str, Any] = self.own.get_all_specs()
        return {**{name: spec for name, spec in own.items() if not self._is_twin(name)}, **self._heard}

    def _is_twin(self, own_name: str) -> bool:
        """Return whether the gateway offers the same kernelspec, from the user's home, with sizes."""
        found: Any = self._heard.get(own_name.removeprefix(PREFIX))
        for part in ("spec", "metadata", "aliquot"):
            found = found.get(part) if isinstance(found, dict) else None
        return isinstance(found, dict) and found.get("is_own") is True

    async def get_kernel_spec(self, kernel_name: str, **kwargs: Any) -> Any:
        """Called by GET /api/kernelspecs/{name}.

        Raises KeyError, and HTTPError while the gateway is away.
        """
        if self.is_own(kernel_name):
            return self.own.get_kernel_spec(kernel_name)
        return await super().get_kernel_spec(kernel_name, **kwargs)

    async def get_kernel_spec_resource(self, kernel_name: str, path: str) -> bytes | None:
        """Called for a kernelspec's logo."""
        if not self.is_own(kernel_name):
            found: bytes | None = await super().get_kernel_spec_resource(kernel_name, path)
            return found
        return await asyncio.to_thread(self._read_own, kernel_name, path)

    def _read_own(self, kernel_name: str, path: str) -> bytes:
        try:
            folder = Path(self.own.get_kernel_spec(kernel_name).resource_dir).resolve()
            file = (folder / path).resolve()
            if file.is_relative_to(folder):
                return file.read_bytes()
        except (KeyError, OSError, ValueError):
            pass  # answered like any other missing file
        raise HTTPError(_NOT_FOUND, f"Requested {path!r} of the kernelspec {kernel_name!r}, which has no such file")
