"""Requests about one running kernel: to the gateway, or to the node agent where no gateway runs.

The gateway checks limits and queues; the agent accepts or refuses a change at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from jupyter_aliquot.gateway.auth.identity import operating_system_user
from jupyter_aliquot.gateway.kernels.operations import read_resize_request
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.scheduling.resize import ResizeRequest
from jupyter_aliquot.gateway.sizes.grammar import largest_here
from jupyter_aliquot.gateway.status.report import StatusSnapshot, kernel_reports
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query, read_status
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.grants.codec import read_request
from jupyter_aliquot.provisioner.resources import GpuShare, WorkloadClass

from .rest_client import GatewayRefusal, Gateways, NoGatewayHere, OwnGateway

# The node agent's names of moves.
_AGENT_OPS = {"swap-out": "swap_out", "restore": "wake"}
Report = dict[str, Any]
_LARGEST = GpuShare(999900)
_WHOLE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class NoSuchKernelError(AliquotError):
    """The error of a name that no running kernel has, or several have."""


class ChangeError(AliquotError):
    """The change was refused; the message is the gateway's, or the node agent's."""


def pick_kernel(kernels: Iterable[Mapping[str, Any]], word: str) -> Mapping[str, Any]:
    """Return the kernel with this name.

    A name is its id, first letters of it, its notebook, or the notebook's file name. Raises
    NoSuchKernelError.
    """
    # A kernel without a notebook has an empty label: an empty word names none of these.
    running = [kernel for kernel in kernels if kernel["state"] != "ended"]
    tests: tuple[Callable[[Mapping[str, Any]], bool], ...] = (
        lambda kernel: kernel["id"] == word,
        lambda kernel: kernel["label"] == word,
        lambda kernel: _file(kernel) == word,
        lambda kernel: _file(kernel).removesuffix(".ipynb") == word,
        lambda kernel: len(word) >= 3 and str(kernel["id"]).startswith(word),
    )
    for is_called_so in tests:
        found = [kernel for kernel in running if word and is_called_so(kernel)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(f"{kernel['id'][:8]} of {kernel['owner']}" for kernel in found)
            raise NoSuchKernelError(f"{word!r} names {len(found)} kernels: {ids}. Name one by its id")
    names = ", ".join(str(kernel["label"] or kernel["id"][:8]) for kernel in running) or "none"
    raise NoSuchKernelError(
        f"no running kernel has the id or the notebook {word!r}; there are: {names} (aliquot status shows the ids)"
    )


def _file(kernel: Mapping[str, Any]) -> str:
    """Return the name of the kernel's notebook, without its folders."""
    return str(kernel["label"]).rpartition("/")[2]


class RunningKernel:
    """A kernel, and the way to change it. ``gateway`` None: requests go to the node agent."""

    def __init__(self, runtime: RuntimeDir, gateway: OwnGateway | None, kernel_id: str) -> None:
        self._runtime = runtime
        self._gateway = gateway
        self.kernel_id = kernel_id

    @classmethod
    def find(cls, gateways: Gateways, word: str, *, takes_ids: bool = False) -> RunningKernel:
        """Find a kernel by its name; with ``takes_ids`` also one without a GPU, by its id.

        Raises AliquotError.
        """
        gateway: OwnGateway | None
        runtime = gateways.runtime
        try:
            gateway, told = gateways.ask("status")
            kernels = told["kernels"]
        except NoGatewayHere as error:
            if gateways.elsewhere:
                raise ChangeError(str(error)) from error
            gateway, kernels = None, _known_to_agent(runtime)
        except GatewayRefusal as error:
            raise ChangeError(str(error)) from error
        except (KeyError, TypeError) as error:
            raise ChangeError(f"what answers at {gateway and gateway.url} tells of no kernels: no Aliquot") from error
        if gateway is not None and takes_ids and _WHOLE_ID.fullmatch(word):
            return cls(runtime, gateway, word)  # a kernel without a GPU is in no list
        return cls(runtime, gateway, str(pick_kernel(kernels, word)["id"]))

    def report(self) -> Report:
        """Return the kernel's report. Raises AliquotError."""
        if self._gateway is not None:
            found: Report = self._ask("GET")
            return found
        for kernel in _known_to_agent(self._runtime):
            if kernel["id"] == self.kernel_id:
                return kernel
        raise NoSuchKernelError(f"kernel {self.kernel_id} has ended")

    def resize(self, body: Mapping[str, Any]) -> Report:
        """Change its size or priority; *body* is that of PATCH. Raises AliquotError."""
        if self._gateway is not None:
            done: Report = self._ask("PATCH", body=dict(body))
            return done
        resize = read_resize_request(dict(body), _LARGEST, here=largest_here(_LARGEST, self._count_devices()))
        self._query("resize", **self._applied(resize))
        return self.report()

    def withdraw_resize(self) -> None:
        """Withdraw a queued change of its size. Raises AliquotError."""
        if self._gateway is None:
            raise ChangeError(
                "No change of size can be withdrawn: no gateway runs here, and without one no change is queued"
            )
        self._ask("DELETE", "/resize")

    def shares(self) -> Report:
        """Return its collaborators. Raises AliquotError."""
        return self._ask_shares("GET")

    def share(self, kind: str, name: str, access: str | None) -> Report:
        """Share it; *kind* is ``users`` or ``teams``, and *access* None stops sharing.

        Raises AliquotError.
        """
        more, body = f"/{kind}/{quote(name, safe='')}", None if access is None else {"access": access}
        return self._ask_shares("DELETE" if access is None else "PUT", more, body)

    def message_owner(self, text: str) -> None:
        """Send its owner a message. Raises AliquotError."""
        if self._gateway is None:
            raise ChangeError("Messages to owners go through a gateway, and none runs here")
        self._ask("POST", "/message", {"text": text})

    def end(self) -> None:
        """End it. Raises AliquotError."""
        if self._gateway is None:
            raise ChangeError("Kernels are ended through the gateway that started them, and none runs here")
        try:
            self._gateway.end_kernel(quote(self.kernel_id))
        except (GatewayRefusal, NoGatewayHere) as error:
            raise ChangeError(str(error)) from error

    def _ask_shares(self, method: str, more: str = "", body: Any = None) -> Report:
        if self._gateway is None:
            raise ChangeError("Kernels can be shared only through a gateway, and none runs here")
        found: Report = self._ask(method, f"/shares{more}", body)
        return found

    def move(self, verb: str) -> None:
        """Swap the kernel out, or restore it. Raises AliquotError.

        ``verb``: ``swap-out`` or ``restore``.
        """
        if self._gateway is not None:
            self._ask("POST", f"/{verb}", body={})
        else:
            self._query(_AGENT_OPS[verb])

    def _ask(self, method: str, more: str = "", body: Any = None) -> Any:
        assert self._gateway is not None  # asked before
        try:
            return self._gateway.ask(f"kernels/{quote(self.kernel_id)}{more}", method, body)
        except GatewayRefusal as error:
            raise ChangeError(str(error)) from error

    def _applied(self, resize: ResizeRequest) -> dict[str, Any]:
        report = self.report()
        before = read_request(
            {
                "hundredths": round(report["gpus"] * 100),
                "memory_limit": report["requested_memory_bytes"],
                "workload_class": WorkloadClass.of_priority(report["priority"]).value,
            }
        )
        request = resize.applied_to(before)
        limit = request.memory_limit
        return {
            "hundredths": request.gpus.hundredths,
            "memory_limit": None if limit is None else int(limit),
            "workload_class": request.workload_class.value,
        }

    def _count_devices(self) -> int:
        try:
            status = query("status", runtime_dir=self._runtime.path, seconds=30)
        except AgentClientError as error:
            raise ChangeError(str(error)) from error
        return sum(not device["lost"] for device in status["devices"])

    def _query(self, op: str, **fields: Any) -> None:
        try:
            query(op, runtime_dir=self._runtime.path, seconds=30, kernel_id=self.kernel_id, **fields)
        except AgentClientError as error:
            raise ChangeError(str(error)) from error


def _known_to_agent(runtime: RuntimeDir) -> list[Report]:
    try:
        status = read_status(query("status", runtime_dir=runtime.path))
    except AgentClientError as error:
        raise ChangeError(str(error)) from error
    return [
        dict[str, Any](kernel)
        for kernel in kernel_reports(StatusSnapshot("", node=NodeView(status)), operating_system_user())
    ]
