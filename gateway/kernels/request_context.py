"""Values of the request being served: its variables, the kernel that it replaces, one that it must not end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_server import CallContext
from jupyter_server.services.kernels.handlers import MainKernelHandler

# In a request's context: the kernel that it must not end by itself, for its session is a guest's.
SPARED_KERNEL = "aliquot_spared_kernel"

# In a request's context: the kernel of the session that changes it.
REPLACED_KERNEL = "aliquot_replaced_kernel"
# In the variables of a request for a kernel, beside KERNEL_GPU. A gateway of another kind takes no notice of it.
VARIABLE = "KERNEL_REPLACES"
# In the answer of a gateway that ends those by itself: their ids.
ANSWER = "replaces"


def replace(kernel_id: str) -> None:
    """The kernel that the request starts which is served now comes in the place of this one."""
    CallContext.set(REPLACED_KERNEL, kernel_id)


def variables() -> Mapping[str, str]:
    """What tells a gateway so; nothing for a start that replaces none."""
    kernel_id = CallContext.get(REPLACED_KERNEL)
    return {VARIABLE: kernel_id} if kernel_id else {}


def is_left_to_gateway(model: Mapping[str, Any] | None, kernel_id: str) -> bool:
    """Whether a gateway that answered so ends this kernel when it is time."""
    return kernel_id in ((model or {}).get(ANSWER) or ())


def requested_env() -> dict[str, str]:
    """The variables in the body of the request for a kernel that is being served: this request's, and nobody else's."""
    handler = CallContext.get(CallContext.JUPYTER_HANDLER)
    body = handler.get_json_body() if isinstance(handler, MainKernelHandler) else None
    return dict((body or {}).get("env") or {})
