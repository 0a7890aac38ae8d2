"""Values of the request being served: its variables, and two kernels.

They are the kernel that it replaces, and the one that it must not end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_server import CallContext
from jupyter_server.services.kernels.handlers import MainKernelHandler

# In a request's context: the kernel that it must not end by itself, because the session belongs to
# a collaborator.
SPARED_KERNEL = "aliquot_spared_kernel"

# In a request's context: the kernel of the session that changes its kernel.
REPLACED_KERNEL = "aliquot_replaced_kernel"
# In the variables of a request for a kernel, beside KERNEL_GPU. A gateway of another kind takes no
# notice of it.
VARIABLE = "KERNEL_REPLACES"
# In the answer of a gateway that ends the replaced kernels by itself: their ids.
ANSWER = "replaces"


def replace(kernel_id: str) -> None:
    """Let the kernel that this request starts replace the kernel of this id."""
    CallContext.set(REPLACED_KERNEL, kernel_id)


def replaced_kernel(env: Mapping[str, str]) -> str:
    """Return the id of the kernel that the request's start replaces, by its session or *env*.

    Empty for none.
    """
    return str(CallContext.get(REPLACED_KERNEL) or env.get(VARIABLE) or "")


def variables() -> Mapping[str, str]:
    """Return the variables that tell a gateway of the replacement.

    It is empty for a start that replaces no kernel.
    """
    kernel_id = CallContext.get(REPLACED_KERNEL)
    return {VARIABLE: kernel_id} if kernel_id else {}


def is_left_to_gateway(model: Mapping[str, Any] | None, kernel_id: str) -> bool:
    """Return whether the gateway that sent this model ends the replaced kernel by itself."""
    return kernel_id in ((model or {}).get(ANSWER) or ())


def spare(kernel_id: str) -> None:
    """Keep the rest of this request from ending the kernel: it only ends a collaborator's session."""
    CallContext.set(SPARED_KERNEL, kernel_id)


def is_spared(kernel_id: str) -> bool:
    """Return whether this request must not end the kernel."""
    return bool(CallContext.get(SPARED_KERNEL) == kernel_id)


def requested_env() -> dict[str, str]:
    """Return the variables in the body of the kernel request that is being served.

    Empty for any other request.
    """
    handler = CallContext.get(CallContext.JUPYTER_HANDLER)
    body = handler.get_json_body() if isinstance(handler, MainKernelHandler) else None
    return dict((body or {}).get("env") or {})
