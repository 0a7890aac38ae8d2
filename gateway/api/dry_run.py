"""REST of /aliquot/api/v1/dry-run: read a request, and answer what it would get. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, authenticated

from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.kernels.operations import read_resize_request
from jupyter_aliquot.gateway.reports.status import DryRun as DryRunReport
from jupyter_aliquot.gateway.scheduling.dry_run import LARGEST, DryRun
from jupyter_aliquot.gateway.scheduling.dry_run_service import DryRunService
from jupyter_aliquot.gateway.scheduling.resize import ResizeRequest
from jupyter_aliquot.gateway.sizes.grammar import parse_size, size_suffix
from jupyter_aliquot.gateway.sizes.wish import Wish, read_models
from jupyter_aliquot.provisioner.errors import RequestError, SizeNameError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request, WorkloadClass

from .kernels import OneKernelHandler, told_as_http

_SIZE = ("gpus", "memory", "priority")
_NEW_OR_OLD = ("kernel", "replaces", "models")
# The most sizes in one request: each costs a plan of the whole queue.
_MOST_SIZES = 64
_SIZE_MARK = "gpu-"
_GIB = 1 << 30
_MOST_GIB = 99_999  # what size_names.PATTERN reads


class _DryRunHandlerBase(OneKernelHandler):
    """The part that requests for one size and for several sizes share."""

    async def dry_runs_of(self, resizes: Sequence[ResizeRequest], asked: Mapping[str, str]) -> list[DryRun]:
        """Return one dry run for each requested size. Raises HTTPError."""
        kernel_id, replaces = asked.get("kernel"), asked.get("replaces")
        if kernel_id is not None and replaces is not None:
            raise HTTPError(
                400,
                "Requested kernel and replaces, but a dry run takes one of them. Use kernel for a change "
                "of it, or replaces for a kernel that takes its place",
            )
        if kernel_id is not None and "models" in asked:
            raise HTTPError(
                400, "Requested kernel and models, but a running kernel keeps its GPUs. Leave one of them out"
            )
        with told_as_http():
            wish = Wish(read_models(asked.get("models", ""), "models of the query"))
            if kernel_id is not None:
                self.changes_of(kernel_id)
                return await self._outlooks().of_kernel(self.requester, kernel_id, resizes)
            outlooks = self._outlooks()
            replaced = frozenset[str]() if replaces is None else self._replaced_with(replaces)
            requests = [_new_request(resize) for resize in resizes]
            return await outlooks.of_new(self.requester, requests, replaced, wish)

    def _replaced_with(self, kernel_id: str) -> frozenset[str]:
        """Return the kernels that end for a new one in the place of this one. Raises HTTPError 404."""
        self.state(kernel_id)
        manager = cast(AliquotKernelManager, self.kernel_manager)
        if manager.owner_of(kernel_id) != self.requester.name:
            # A notebook ends no other user's kernel, not even an administrator's: its room stays taken.
            return frozenset()
        return manager.replacements.replaced_with(kernel_id)

    def asked_once(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of the named arguments that the query has.

        Raises HTTPError 400 for an argument that the query repeats.
        """
        found = {name: self.get_query_arguments(name) for name in names}
        for name, values in found.items():
            if len(values) > 1:
                raise HTTPError(
                    400, f"Requested {name} {len(values)} times, but a dry run takes it once. Remove the others"
                )
        return {name: values[0] for name, values in found.items() if values}

    def _outlooks(self) -> DryRunService:
        if self.sources.outlooks is None:
            raise HTTPError(503, "This server grants nothing itself, for its kernels are a gateway's: ask that one")
        return self.sources.outlooks


class DryRunHandler(_DryRunHandlerBase):
    """Answer a dry run of a request for one size now; with `kernel`, of a resize of that kernel.

    `replaces` names a kernel that ends when the new one is requested, as when a notebook gets
    another kernel.
    """

    @authenticated
    @authorized
    async def get(self) -> None:
        asked, size = self.asked_once(_NEW_OR_OLD), wanted(self.asked_once(_SIZE))
        with told_as_http():
            resize = read_resize_request(size, LARGEST, "the query")
        (found,) = await self.dry_runs_of([resize], asked)
        self.answer(dry_run_report(found))


class DryRunsHandler(_DryRunHandlerBase):
    """Answer dry runs of requests for several sizes, each by itself: one answer for a size picker."""

    @authenticated
    @authorized
    async def get(self) -> None:
        asked, sizes = self.asked_of_sizes()
        with told_as_http():
            resizes = [_resize_of(size) for size in sizes]
        found = await self.dry_runs_of(resizes, asked)
        self.answer({"dry_runs": [dry_run_report(one) for one in found]})

    def asked_of_sizes(self) -> tuple[dict[str, str], list[str]]:
        """Return the query: what is not a size, and the sizes. Raises HTTPError 400."""
        sizes = self.get_query_arguments("size")
        if not 1 <= len(sizes) <= _MOST_SIZES:
            raise HTTPError(400, f"Requested {len(sizes)} sizes. Request 1 to {_MOST_SIZES}, such as size=gpu-0.25")
        return self.asked_once(_NEW_OR_OLD), sizes


def wanted(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the query in the form of a resize request's body. Raises HTTPError 400."""
    found: dict[str, Any] = dict(query)
    try:
        if "gpus" in found:
            found["gpus"] = float(found["gpus"])
    except ValueError:
        asked = found["gpus"][:20]
        raise HTTPError(400, f"Requested gpus={asked!r}, which is not a number. Use one such as 0.25") from None
    if found.get("memory") in ("", "null"):
        found["memory"] = None
    return found


def _resize_of(size: str) -> ResizeRequest:
    """Read ``gpu-0.25-4g-low`` as a complete resize request. Raises RequestError."""
    text = size.lower()
    if not text.startswith(_SIZE_MARK):
        raise RequestError(
            f"Requested the size {size[:40]!r}. Write a size as a kernelspec's name ends, such as gpu-0.25"
        )
    try:
        request = parse_size(text.removeprefix(_SIZE_MARK), LARGEST, _SIZE_MARK)
    except SizeNameError as error:
        raise RequestError(str(error)) from None
    return ResizeRequest(request.gpus, request.memory_limit or Bytes(0), request.workload_class)


def dry_run_report(dry_run: DryRun) -> DryRunReport:
    """Return the dry run as openapi.yaml describes it."""
    request = dry_run.request
    return {
        "suffix": size_suffix(_named(request)),
        "gpus": float(request.gpus),
        "requested_memory_bytes": None if request.memory_limit is None else int(request.memory_limit),
        "memory_limit_bytes": dry_run.quota_bytes,
        "priority": request.workload_class.priority,
        "outcome": dry_run.outcome.value,
        "position": dry_run.position,
        "message": dry_run.message,
        "memory_sharing": None if dry_run.sharing is None else dry_run.sharing.report(),
        "keeps_memory": request.residency == "off",
    }


def _new_request(resize: ResizeRequest) -> Request:
    """Return a request of a size that a kernelspec's name can carry. Raises RequestError."""
    if resize.gpus is None:
        raise RequestError("No size was requested. Add one such as gpus=0.25, or kernel= for a kernel that runs")
    request = resize.applied_to(Request(GpuShare(0), None, WorkloadClass.PRODUCTION))
    asked = request.memory_limit
    if request != _named(request) or (asked is not None and asked > _MOST_GIB * _GIB):
        raise RequestError(
            f"Requested a memory limit of {asked}, but a kernelspec's name carries whole GiB, up to "
            f"{_MOST_GIB}. Use such a limit"
        )
    return request


def _named(request: Request) -> Request:
    """Return the nearest size that has a name and holds this one.

    It differs from the request only for a running kernel.
    """
    if request.memory_limit is None:
        return request
    whole = -(-int(request.memory_limit) // _GIB) * _GIB
    return Request(request.gpus, Bytes(whole), request.workload_class)
