"""Requests that waiting cannot help, and why: no empty node holds them. Pure."""

from __future__ import annotations

from jupyter_aliquot.gateway.scheduling.capacity import Capacity, Held
from jupyter_aliquot.gateway.scheduling.resize import check_devices
from jupyter_aliquot.gateway.sizes.wish import NO_WISH, Wish
from jupyter_aliquot.gpu_hook.placement.placement import BAD_REQUEST, DEVICE_LOST, WHOLE
from jupyter_aliquot.provisioner.errors import AliquotError, DeviceLostError, NeverFitsError, RequestError
from jupyter_aliquot.provisioner.resources import Request


def never_fits(
    capacity: Capacity, request: Request, held: Held | None = None, wish: Wish = NO_WISH
) -> AliquotError | None:
    """Return the error of a request that waiting cannot help.

    None if it fits the empty node with *held* on it.
    """
    try:
        if held is not None:
            check_devices(held, request)
    except AliquotError as error:
        return error
    placed = capacity.place_alone(request, held, wish.models)
    if isinstance(placed, tuple):
        return _never_paged(capacity, request, held, wish)
    if held is None and wish.models and isinstance(capacity.place_alone(request), tuple):
        return None if not capacity.is_complete else _no_such_model(capacity, request, wish)
    if placed.code == BAD_REQUEST:
        return RequestError(placed.message)
    if not capacity.is_complete and held is None:
        return None
    if placed.code == DEVICE_LOST or isinstance(capacity.found().place_alone(request, held), tuple):
        return DeviceLostError(placed.message)
    return NeverFitsError(f"{placed.message}{_of_one_node(capacity, request)}")


def _of_one_node(capacity: Capacity, request: Request) -> str:
    """Return why a request fits no node that all nodes together would hold; empty for another one.

    A process of CUDA sees the GPUs of its own host alone.
    """
    there = sum(not device.is_lost for device in capacity.devices)
    if len(capacity.nodes) < 2 or request.gpus.hundredths > WHOLE * there:
        return ""
    return (
        f", or start several kernels: the nodes have {there} GPUs together, and those of a kernel are all on one node"
    )


def _never_paged(capacity: Capacity, request: Request, held: Held | None, wish: Wish) -> NeverFitsError | None:
    """Return the error of a managed request whose pages no host can hold, on whichever devices it is."""
    if request.residency != "managed" or (held is None and not capacity.is_complete):
        return None
    refused = capacity.refusal_of_pages(request, held, wish.models)
    return None if refused is None else NeverFitsError(refused.message)


def _no_such_model(capacity: Capacity, request: Request, wish: Wish) -> AliquotError:
    if isinstance(capacity.found().place_alone(request, models=wish.models), tuple):
        wanted = capacity.of_models(wish.models)
        lost = ", ".join(
            f"gpu{one.index} ({one.name})" for one in capacity.devices if one.is_lost and one.uuid in wanted
        )
        return DeviceLostError(
            f"Requested {request.gpus} GPU of the model {wish.text}, but the node lost {lost}. Choose another "
            "model, or see nvidia-smi and aliquot doctor"
        )
    names = ", ".join(dict.fromkeys(one.name for one in capacity.devices))
    return NeverFitsError(
        f"Requested {request.gpus} GPU of the model {wish.text}, but no node has so many of one of these: the models "
        f"here are {names}. Choose another model"
    )
