"""The checks of a request for a new kernel, before anything of the kernel is made.

They refuse requests that waiting cannot help. Admission decides when a request that passed gets its
grant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from tornado.web import HTTPError

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.base.lead import lead_error
from jupyter_aliquot.gateway.containers.host_choice import HostOffer
from jupyter_aliquot.gateway.containers.planner import REQUEST_ENV
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.sharing.registry import KernelOwners
from jupyter_aliquot.gateway.sizes.environment import with_size
from jupyter_aliquot.gateway.sizes.wish import read_wish, wish_arguments
from jupyter_aliquot.gpu_hook.paths import KERNEL_ID
from jupyter_aliquot.provisioner.errors import AliquotError, LimitError
from jupyter_aliquot.provisioner.grants.codec import stanza_host_part, stanza_request
from jupyter_aliquot.provisioner.resources import GpuShare

from .owner_accounts import requested_folder
from .request_context import requested_env
from .services import KernelServices


class StartChecks:
    """The checks of a start before its kernel exists. Made by the kernel manager.

    *default_name* returns the kernelspec of a request that names none.
    """

    def __init__(
        self,
        services: KernelServices,
        specs: object,
        owners: KernelOwners,
        default_name: Callable[[], str],
    ) -> None:
        self._services = services
        self._specs = cast(KernelSpecManager, specs)
        self._owners = owners
        self._default_name = default_name

    def check_id(self, kernel_id: str, user: User) -> None:
        """Refuse an id that is not valid, or that a kernel of another user had. Raises HTTPError.

        The owner's notebooks come back to such an id, and would run in another user's kernel. An
        administrator may use each id again.
        """
        endings = self._services.endings
        ended = None if endings is None else endings.remembered.of(kernel_id)
        if ended is not None and ended.owner != user.name and not user.is_admin:
            raise HTTPError(409, f"Kernel already exists: {kernel_id}")
        if not KERNEL_ID.fullmatch(kernel_id):
            raise HTTPError(400, f"Kernel id {kernel_id!r} is not valid. Use 1 to 36 letters, digits, '_', '.', '-'")

    def with_requested_size(self, kernel_name: str | None) -> str | None:
        """Return the kernelspec in the size that the request's body names, where it has sizes.

        Raises HTTPError 400.
        """
        specs, name = self._specs, kernel_name or self._default_name()
        if not isinstance(specs, SizedKernelSpecManager):
            return kernel_name
        try:
            sized = with_size(name, requested_env(), specs.settings.largest())
        except AliquotError as error:
            raise http_error(error) from error
        return sized if sized != name and specs.has_sizes(name) else kernel_name

    def check(self, kernel_name: str | None, user: User, replaced: frozenset[str]) -> bool:
        """Return whether the kernelspec requests a grant.

        The kernels of *replaced* count for no limit.

        Raises NoSuchKernel, and HTTPError for a request that could never be granted.
        """
        limits, admission = self._services.limits, self._services.admission
        try:
            self._check_lease()
            if limits is not None:
                has = len(self._owners.of(user.name)) - len(replaced)
                limits.check_kernels(user.name, has, is_admin=user.is_admin)
            name = kernel_name or self._default_name()
            self._check_account(name, user)
            metadata = self._specs.get_kernel_spec(name).metadata
            request = stanza_request(metadata)
            if host := stanza_host_part(metadata):
                self.host_offer(name, None if request is None else request.gpus, user).check(host)
            if request is not None and admission is not None:
                wish = read_wish(requested_env())
                requester = KernelRef("", user.name, kernelspec=name, teams=user.teams, replaces=replaced, wish=wish)
                admission.check(requester, request)
        except AliquotError as error:
            raise http_error(error) from error
        return request is not None

    def _check_lease(self) -> None:
        """Refuse a start while another replica may lead. Raises EngineUnavailableError."""
        if not self._services.lead.is_current():
            raise lead_error("a kernel")

    def host_offer(self, kernel_name: str, share: GpuShare | None, user: User) -> HostOffer:
        """Return what a user may choose of the host for a kernel of this size. Raises RequestError."""
        containers = self._services.containers
        if containers is None:
            return HostOffer(None, None, reason="This server starts kernels without limits on their host.")
        return containers.host_offer(kernel_name, share, user, self._services.why_no_process_limits())

    def request_arguments(self, kernel_name: str | None) -> dict[str, Any]:
        """Return the variables of the request that reach the kernel, and its wish, as arguments of its start."""
        containers, env = self._services.containers, requested_env()
        wished = wish_arguments(read_wish(env)) if self.requests_grant(kernel_name) else {}
        if containers is not None and containers.wants(kernel_name or self._default_name()):
            return {REQUEST_ENV: containers.allowed_env(env), **wished}
        return wished if self._services.accounts is None else {REQUEST_ENV: requested_folder(env), **wished}

    def _check_account(self, name: str, user: User) -> None:
        """Refuse a kernel that would be a process of root for another person.

        Refuse an owner without an account, where kernels run as their owners. Raises AliquotError.
        """
        containers = self._services.containers
        if containers is not None and containers.wants(name):
            containers.check_owner(name, user.name)
            return
        if self._services.starts_pods:
            raise LimitError(
                f"Requested {name}, a process of the gateway's machine, but this gateway starts kernels as pods of a "
                "cluster. Choose an image of c.ImageCatalogue"
            )
        if self._services.accounts is not None:
            self._services.accounts.of(user.name)
        elif self._services.refuses_processes():
            raise LimitError(
                f"Requested {name}, a process of the gateway's account, but this gateway runs as root. Choose an "
                "image, or ask an administrator to give the gateway an account: configure(gateway_user=…)"
            )

    def requests_grant(self, kernel_name: str | None) -> bool:
        """Return whether the kernelspec requests a grant; False for a name that is not valid."""
        try:
            name = self.with_requested_size(kernel_name or None) or self._default_name()
            return stanza_request(self._specs.get_kernel_spec(name).metadata) is not None
        except (AliquotError, HTTPError, NoSuchKernel):
            return False
