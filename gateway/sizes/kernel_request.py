"""The size that a kernel has, or else the one that its kernelspec requests."""

from __future__ import annotations

from typing import Any, cast

from jupyter_client.kernelspec import NoSuchKernel

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.grants.codec import stanza_request
from jupyter_aliquot.provisioner.resources import Grant, Request


def request_of(kernel: Any) -> Request | None:
    """Return a kernel's size, or else its kernelspec's.

    None for a plain kernel, and if the kernelspec is gone.
    """
    if (grant := getattr(kernel, "grant", None)) is not None:
        return cast(Grant, grant).request
    try:
        return stanza_request(kernel.kernel_spec.metadata)
    except (NoSuchKernel, RequestError):
        return None
