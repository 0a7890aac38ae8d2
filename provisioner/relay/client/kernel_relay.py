"""Start and end one kernel's relay, and lead clients to it.

The runtime starts the kernel behind the relay. This module is bound to no event loop: each question
to a relay has a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.paths import KERNEL_ID, PathError, RuntimeDir, prepare_runtime_dir
from jupyter_aliquot.provisioner.accounts import find_account
from jupyter_aliquot.provisioner.control_groups import NO_LIMITS, GroupLimits
from jupyter_aliquot.provisioner.errors import (
    AccountError,
    LaunchError,
    RelayError,
    RelayRefusedError,
    RelayUnavailableError,
)
from jupyter_aliquot.provisioner.grants.codec import grant_record
from jupyter_aliquot.provisioner.relay.wire.files import (
    UNREAD_BYTES,
    UNSENT,
    RelayRecord,
    RelayRequest,
    UnreadableRecordError,
    UnsentBytes,
    expected_record,
    keep_links,
    read_relay_record,
)
from jupyter_aliquot.provisioner.relay.wire.messages import new_id
from jupyter_aliquot.provisioner.relay.wire.proc import start_time_ticks
from jupyter_aliquot.provisioner.resources import Grant

from .connection_info import curve_keys, lead_clients, reason_against, tell_manager
from .control import RelaySettings, ensure_relay_host, limit_kernel, set_facts, start_relay, stop_relay

WITHOUT_RELAY = "set c.AliquotProvisioner.relay = False to start kernels without relays, which end with their client"


@dataclass(frozen=True)
class RelayOptions:
    """Options of a kernel's relay.

    Without ``gateway`` it ends with this process, unless it ``is_independent``.
    """

    gateway: str = ""
    orphan_seconds: float | None = None
    unread_bytes: int = UNREAD_BYTES
    unsent_bytes: UnsentBytes = UNSENT
    user: str = ""
    account: str = ""  # the system account as which relay and kernel run; empty: our own
    group: GroupLimits = NO_LIMITS  # of the account's kernel
    is_independent: bool = False
    tells_agent: bool = False
    waiting_notice: bool = True
    trim: bool = True
    has_sidecar: bool = False  # the kernel will be a pod
    facts: Mapping[str, Any] = field(default_factory=dict)


def relay_options(
    given: Mapping[str, Any] | None, grant: Grant | None, in_container: bool, arguments: Mapping[str, Any]
) -> RelayOptions:
    """Return the options from Popen's arguments and from the gateway's; other arguments are kept."""
    given = dict(given or {})
    facts = {
        "runtime": "container" if in_container else "process",
        "grant": None if grant is None else grant_record(grant),
        "cwd": os.fspath(arguments.get("cwd") or ""),
        **given,
    }
    return RelayOptions(
        gateway=given.get("gateway", ""),
        orphan_seconds=given.get("orphan_seconds"),
        unread_bytes=int(given.get("unread_bytes", UNREAD_BYTES)),
        unsent_bytes=UnsentBytes(**given.get("unsent_bytes", {})),
        user=str(given.get("owner", "")),
        is_independent=bool(arguments.get("independent")),
        tells_agent=grant is not None,
        facts=facts,
    )


class NoRelayError(Exception):
    """The kernel can have no relay, but can start without one. The message says why."""


def check_place(manager: Any, runtime: RuntimeDir, kernel_id: str) -> None:
    """Check that a relay can be here. Raises NoRelayError."""
    if not KERNEL_ID.fullmatch(kernel_id):
        raise NoRelayError(f"its id {kernel_id!r} is not 1 to 36 letters, digits, '_', '.', '-'")
    reason = reason_against(manager, runtime.relay(kernel_id))
    if reason:
        raise NoRelayError(reason)
    try:
        prepare_runtime_dir(runtime)
    except PathError as error:
        raise NoRelayError(str(error)) from error


class KernelRelay:
    """One kernel's relay, from before its first process until after its last."""

    def __init__(self, record: RelayRecord, log: logging.Logger, request: RelayRequest | None = None) -> None:
        self.record = record
        # Of a relay that `begin` began; None: its record has it.
        self.request = request
        self._log = log
        self._starting: asyncio.Task[RelayRecord] | None = None

    @classmethod
    async def start(
        cls, manager: Any, runtime: RuntimeDir, kernel_id: str, options: RelayOptions, log: logging.Logger
    ) -> KernelRelay:
        """Start a relay, and the relay host if none runs. Raises LaunchError."""
        relay = cls(await _start(runtime, _request(manager, kernel_id, options)), log)
        try:
            relay.lead(manager)
        except BaseException:
            await relay.stop()
            raise
        return relay

    @classmethod
    def begin(
        cls, manager: Any, runtime: RuntimeDir, kernel_id: str, options: RelayOptions, log: logging.Logger
    ) -> KernelRelay:
        """Start a relay beside the rest of its kernel's start, which knows all of it but its process.

        ``until_there`` waits for it, and so does ``stop``.
        """
        request = replace(_request(manager, kernel_id, options), prefix=f"link-{new_id()}-")
        relay = cls(expected_record(runtime.relay(kernel_id), request), log, request)
        tell_manager(manager, relay.record)
        relay._starting = asyncio.create_task(_start(runtime, request), name=f"aliquot-relay-{kernel_id}")
        return relay

    async def until_there(self, manager: Any) -> None:
        """Wait until a relay that `begin` began has started, and lead clients to it. Raises LaunchError."""
        if self._starting is not None:
            self.record = await asyncio.shield(self._starting)
            self._starting = None
            self.lead(manager)

    @classmethod
    def find(cls, folder: Path, log: logging.Logger) -> KernelRelay | None:
        """Return the relay whose record is there, dead or alive; None without a readable record."""
        with contextlib.suppress(FileNotFoundError, UnreadableRecordError):
            return cls(read_relay_record(folder), log)
        return None

    def is_alive(self) -> bool:
        """Tell whether the relay runs now. Its host replaces a killed one under another pid."""
        with contextlib.suppress(FileNotFoundError, UnreadableRecordError):
            self.record = read_relay_record(self.record.folder)
            return self.record.is_alive
        return False

    def require_account(self, name: str) -> None:
        """Check that the relay is of this account, as its kernel will be. Raises LaunchError."""
        try:
            is_its = os.stat(self.record.folder).st_uid == find_account(name).uid
        except (OSError, AccountError) as error:
            raise LaunchError(str(error)) from error
        if not is_its:
            raise LaunchError(
                f"Requested to restart kernel {self.record.kernel_id} as {name!r}, but its relay is of another "
                "account. Shut the kernel down, and start it again"
            )

    def lead(self, manager: Any) -> None:
        """Let the manager's clients connect here. Raises LaunchError."""
        try:
            lead_clients(manager, self.record)
        except OSError as error:
            raise LaunchError(
                f"cannot write into {self.record.folder}: {error.strerror}. Or {WITHOUT_RELAY}"
            ) from error

    def keep_links(self) -> None:
        """Put the links back that the manager removes before each restart."""
        try:
            keep_links(self.record.folder)
        except OSError as error:
            self._log.warning("kernel=%s relay=hidden reason=%s", self.record.kernel_id, error.strerror)

    def with_private_file(self, cmd: list[str], manager: Any) -> list[str]:
        """Return the command line with the connection file of the kernel's own sockets.

        Clients never see these.
        """
        public, private = os.path.realpath(manager.connection_file), os.fspath(self.record.kernel_connection_file)
        return [word.replace(public, private) for word in cmd]

    async def note_grant(self, grant: Grant) -> None:
        """Store the grant in the relay's record, for a gateway that recovers the kernel.

        Failures are ignored.
        """
        try:
            self.record = await set_facts(self.record, {**self.record.facts, "grant": grant_record(grant)})
        except RelayError as error:
            self._log.warning("kernel=%s relay=not_told reason=%s", self.record.kernel_id, error)

    async def limit(self, limits: GroupLimits) -> str:
        """Change the limits of the kernel's control group; return in words what could not be changed."""
        try:
            await limit_kernel(self.record, limits)
        except RelayError as error:
            self._log.warning("kernel=%s limits=kept reason=%s", self.record.kernel_id, error)
            return f"Its limits on this machine stay as they are until it gives memory back, or starts anew: {error}"
        return ""

    async def stop(self) -> None:
        """End the relay and its kernel, and remove its folder."""
        starting, self._starting = self._starting, None
        if starting is not None:
            await asyncio.wait({starting})
            if starting.cancelled() or starting.exception() is not None:
                return  # the host removed what was there
            self.record = starting.result()
        try:
            await stop_relay(self.record)
        except RelayError as error:
            self._log.error("kernel=%s relay=stuck reason=%s", self.record.kernel_id, error)


async def _start(runtime: RuntimeDir, request: RelayRequest) -> RelayRecord:
    """Start the relay, and the relay host if none runs. Raises LaunchError."""
    try:
        return await _ask_for_relay(runtime, request)
    except RelayError as error:
        if isinstance(error, RelayRefusedError) and error.code == "account":
            raise AccountError(str(error)) from error
        raise LaunchError(
            f"Requested a relay for kernel {request.kernel_id}, but it did not start: {error}. Correct that, "
            f"or {WITHOUT_RELAY}"
        ) from error


async def _ask_for_relay(runtime: RuntimeDir, request: RelayRequest) -> RelayRecord:
    """Ask the host for a relay. Raises RelayError."""
    await ensure_relay_host(runtime, RelaySettings())
    try:
        return await start_relay(runtime, request)
    except RelayUnavailableError:
        # The host had just ended, after its idle time.
        await ensure_relay_host(runtime, RelaySettings())
        return await start_relay(runtime, request)


def _request(manager: Any, kernel_id: str, options: RelayOptions) -> RelayRequest:
    public, secret = curve_keys(manager)
    owner = None if options.gateway or options.is_independent else os.getpid()
    request = RelayRequest(
        kernel_id=kernel_id,
        key=manager.session.key.decode(),
        signature_scheme=manager.session.signature_scheme,
        kernel_name=manager.kernel_name,
        gateway=options.gateway or None,
        owner_pid=owner,
        owner_start_time_ticks=None if owner is None else start_time_ticks(owner),
        tells_agent=options.tells_agent,
        waiting_notice=options.waiting_notice,
        trim=options.trim,
        has_sidecar=options.has_sidecar,
        unread_bytes=options.unread_bytes,
        store_bytes=options.unsent_bytes.kernel,
        user=options.user,
        account=options.account,
        group_memory=int(options.group.memory),
        group_cpus=float(options.group.cpus),
        group_pids=options.group.pids,
        user_store_bytes=options.unsent_bytes.user,
        all_store_bytes=options.unsent_bytes.all,
        facts={"kernelspec": manager.kernel_name, "connection_file": manager.connection_file, **options.facts},
        curve_publickey=public,
        curve_secretkey=secret,
    )
    return request if options.orphan_seconds is None else replace(request, orphan_seconds=options.orphan_seconds)
