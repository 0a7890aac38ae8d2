"""Private names of Jupyter's libraries, tornado and traitlets, used on their objects.

The libraries are Jupyter Server, jupyter_client and JupyterHub. Each name has a function here, so
that a release without one is mended in one place. It imports none of them, for the Hub's process
loads no Jupyter server. Private names that our subclasses override or call on themselves stay where
they are. tests/gateway/test_private_names.py checks that each exists, and that no other module of
the gateway uses these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# The newer of the two protocols of a kernel's websocket; Jupyter Server has it as text in several
# places.
V1 = "v1.kernel.websocket.jupyter.org"

# ---- jupyter_server


def signal_stop(server: Any) -> Callable[..., Any]:
    """Return the handler that a ServerApp sets for SIGTERM."""
    found: Callable[..., Any] = server._signal_stop
    return found


def known_user(handler: Any) -> Any:
    """Return the user that JupyterHandler.prepare found; None before that, and for none."""
    return getattr(handler, "_jupyter_current_user", None)


def forget_user(handler: Any) -> None:
    """Set the user as JupyterHandler.prepare does when it refuses a host: an error page needs it."""
    handler.current_user = handler._jupyter_current_user = None


def open_sockets(connection_class: Any) -> set[Any]:
    """Return the set of open websockets that ZMQChannelsWebsocketConnection keeps."""
    found: set[Any] = connection_class._open_sockets
    return found


def connection_counts(kernel_manager: Any) -> dict[str, int]:
    """Return the number of websockets of each kernel, which MappingKernelManager keeps."""
    found: dict[str, int] = kernel_manager._kernel_connections
    return found


# ---- jupyter_client


def restarter_of(kernel: Any) -> Any:
    """Return what restarts a kernel that died; None where nothing does."""
    return kernel._restarter


def has_started_before(restarter: Any) -> None:
    """Tell a KernelRestarter that its kernel ran already: it is restarted at its ports."""
    restarter._initial_startup = False


def forget_failed_start(kernel_manager: Any, kernel_id: str) -> None:
    """Have a MultiKernelManager forget a kernel whose start failed: its stop would wait for it."""
    kernel_manager._pending_kernels.pop(kernel_id, None)


def write_connection_file_again(kernel: Any) -> None:
    """Have a KernelManager write its connection file at the next start."""
    kernel._connection_file_written = False


# ---- jupyterhub


async def hub_answer(auth: Any, url: str, headers: Mapping[str, str]) -> Any:
    """Return what the Hub answers a GET of HubAuth."""
    return await auth._api_request("GET", url, headers=dict(headers))


def validated_options_from_form(spawner: Any, proposal: object) -> Any:
    """Return the function that a Spawner makes of what is configured as `options_from_form`."""
    return spawner._validate_options_from_form(proposal)


def apply_options_table(spawner: Any, options: Mapping[str, Any]) -> None:
    """Apply user options by the table of a Spawner's `apply_user_options`."""
    spawner._apply_user_options_dict(options)


# ---- tornado


def replace_log(handler: Any, say: Callable[[], None]) -> None:
    """Put *say* in the place of a handler's line in the access log."""
    handler._log = say


def is_finished(handler: Any) -> bool:
    """Return whether a handler has sent its answer."""
    return bool(handler._finished)


def abort_of(protocol: Any) -> Callable[[], None]:
    """Return what a WebSocketProtocol calls to end a connection at once."""
    found: Callable[[], None] = protocol._abort
    return found


def replace_abort(protocol: Any, abort: Callable[[], None]) -> None:
    """Put *abort* in its place."""
    protocol._abort = abort


# ---- traitlets


def appended(value: Any) -> list[Any]:
    """Return what a LazyConfigValue puts before and after a list."""
    return [*value._prepend, *value._extend]


def updated(value: Any) -> Any:
    """Return what a LazyConfigValue adds to a table; None where it adds nothing."""
    return value._update
